//! The proxy through which a sandbox reaches hosts that rules allow: `CONNECT`, and plain HTTP with one request for each
//! connection.
//!
//! It listens in the network namespace of one sandbox, so nobody else can use it. Hosts are names, never addresses. The proxy
//! resolves a name once, refuses addresses of this machine and of private networks, and connects to the address that it has
//! checked: another answer for the same name later changes nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::SpawnError;
use crate::public_address::is_public_address;

/// How many connections one sandbox may have at a time. Others wait.
pub const MAX_PROXY_CONNECTIONS: usize = 64;

/// The largest head of a request, in bytes.
pub const PROXY_HEAD_BYTES: usize = 16 * 1024;

/// How long a client may take to send the head of its request.
pub const PROXY_HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long to resolve a name and to connect to one of its addresses may take.
pub const PROXY_CONNECT_WAIT: Duration = Duration::from_secs(30);

/// The pause after a failed accept, mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The answer of [`ProxyRules::allows`].
pub type ProxyDecision<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// The answer of [`ProxyRules::resolve`].
pub type ProxyAddresses<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Decides what a sandbox may connect to. Used as `dyn`, because others know the rules.
pub trait ProxyRules: fmt::Debug + Send + Sync {
    /// Whether a process may connect to this port of `host`, a lowercase name. May take long: the rules may ask a person.
    fn allows<'a>(&'a self, host: &'a str, port: u16) -> ProxyDecision<'a>;

    /// The addresses of an allowed host.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ProxyAddresses<'a> {
        Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
    }

    /// Whether an allowed host may have this address.
    fn allows_address(&self, address: IpAddr) -> bool {
        is_public_address(address)
    }
}

/// The running proxy of one sandbox. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct ProxyTask(JoinHandle<()>);

impl ProxyTask {
    /// Serves a nonblocking listener. Call it within a tokio runtime.
    pub(crate) fn start(
        listener: std::net::TcpListener,
        rules: Arc<dyn ProxyRules>,
    ) -> Result<Self, SpawnError> {
        let listener = TcpListener::from_std(listener).map_err(SpawnError::runtime("serve a proxy"))?;
        Ok(Self(tokio::spawn(accept_all(listener, rules))))
    }
}

impl Drop for ProxyTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept_all(listener: TcpListener, rules: Arc<dyn ProxyRules>) {
    let slots = Arc::new(Semaphore::new(MAX_PROXY_CONNECTIONS));
    // Dropping it ends the connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((client, _)) => {
                let rules = Arc::clone(&rules);
                connections.spawn(async move {
                    // An error means that one side is gone, and the other one notices.
                    let _ = serve(client, &*rules).await;
                    drop(slot);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(mut client: TcpStream, rules: &dyn ProxyRules) -> io::Result<()> {
    match open(&mut client, rules).await {
        Ok((mut server, first_bytes)) => {
            server.write_all(&first_bytes).await?;
            copy_bidirectional(&mut client, &mut server).await.map(drop)
        }
        Err(Refused::Lost(error)) => Err(error),
        Err(Refused::Answer(status, text)) => {
            let length = text.len() + 1;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}\n"
            );
            client.write_all(answer.as_bytes()).await?;
            client.shutdown().await
        }
    }
}

/// Why a client gets no connection.
enum Refused {
    /// A status line and a text for the user.
    Answer(&'static str, String),
    /// The client is gone.
    Lost(io::Error),
}

fn bad_request(text: &str) -> Refused {
    Refused::Answer("400 Bad Request", format!("parlor's proxy: {text}"))
}

/// Reads a request and connects to its host. Returns the connection, and the bytes to send first.
async fn open(client: &mut TcpStream, rules: &dyn ProxyRules) -> Result<(TcpStream, Vec<u8>), Refused> {
    let late = |_| Refused::Lost(io::ErrorKind::TimedOut.into());
    let (head, rest) = timeout(PROXY_HEAD_WAIT, read_head(client)).await.map_err(late)??;
    let request = Request::parse(&head)?;
    if !rules.allows(&request.host, request.port).await {
        let text = format!("parlor's proxy: no rule allows {}:{}", request.host, request.port);
        return Err(Refused::Answer("403 Forbidden", text));
    }
    let server = timeout(PROXY_CONNECT_WAIT, connect(&request.host, request.port, rules)).await;
    let server = server.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
        let text = format!("parlor's proxy: cannot connect to {}:{}: {error}", request.host, request.port);
        Refused::Answer("502 Bad Gateway", text)
    })?;
    let mut first_bytes = request.forwarded_head.unwrap_or_default().into_bytes();
    if first_bytes.is_empty() {
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.map_err(Refused::Lost)?;
    }
    first_bytes.extend(rest);
    Ok((server, first_bytes))
}

/// Resolves the name once, and connects to the first allowed address that answers.
async fn connect(host: &str, port: u16, rules: &dyn ProxyRules) -> io::Result<TcpStream> {
    let mut allowed = rules.resolve(host, port).await?;
    allowed.retain(|address| rules.allows_address(address.ip()));
    if allowed.is_empty() {
        return Err(io::Error::other("it has no public address"));
    }
    TcpStream::connect(&allowed[..]).await
}

const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Reads up to the empty line. Returns the head as text, and what was read after it.
async fn read_head(client: &mut TcpStream) -> Result<(String, Vec<u8>), Refused> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD) {
            let rest = bytes.split_off(end + END_OF_HEAD.len());
            let head = String::from_utf8(bytes).map_err(|_| bad_request("the head is not UTF-8"))?;
            return Ok((head, rest));
        }
        if bytes.len() >= PROXY_HEAD_BYTES {
            return Err(bad_request("the head is larger than 16 KiB"));
        }
        let mut piece = [0; 4096];
        let count = client.read(&mut piece).await.map_err(Refused::Lost)?;
        if count == 0 {
            return Err(Refused::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        bytes.extend(piece.iter().take(count));
    }
}

/// What a client asks for.
struct Request {
    host: String,
    port: u16,
    /// The head for the server, of plain HTTP.
    forwarded_head: Option<String>,
}

impl Request {
    fn parse(head: &str) -> Result<Self, Refused> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad_request("the first line is not a request"));
        };
        if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
            return Err(bad_request("only HTTP/1.0 and HTTP/1.1 are known"));
        }
        if method == "CONNECT" {
            let (host, port) = host_and_port(target, None)?;
            return Ok(Self { host, port, forwarded_head: None });
        }
        let Some(address) = target.strip_prefix("http://") else {
            return Err(bad_request("only CONNECT and http:// are known"));
        };
        let (authority, path) = address.find('/').map_or((address, "/"), |slash| address.split_at(slash));
        let (host, port) = host_and_port(authority, Some(80))?;
        let mut forwarded =
            format!("{method} {path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
        for line in lines.filter(|line| !line.is_empty()) {
            let name = line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            // The connection to the server is another one, and the host is that of the rules.
            if !matches!(name.as_str(), "host" | "connection" | "keep-alive" | "upgrade")
                && !name.starts_with("proxy-")
            {
                forwarded.push_str(line);
                forwarded.push_str("\r\n");
            }
        }
        forwarded.push_str("\r\n");
        Ok(Self { host, port, forwarded_head: Some(forwarded) })
    }
}

/// The parts of `host:port`.
fn host_and_port(text: &str, default_port: Option<u16>) -> Result<(String, u16), Refused> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (text, default_port),
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    match port.filter(|port| *port != 0) {
        Some(port) if is_host_name(&host) => Ok((host, port)),
        Some(_) => Err(bad_request("the host must be a name, not an address")),
        None => Err(bad_request("the port is not a number from 1 to 65535")),
    }
}

/// Whether `host` is a name: not an address in any notation, and not this machine.
fn is_host_name(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let last = host.rsplit('.').next().unwrap_or_default();
    (1..=253).contains(&host.len())
        && host.bytes().all(is_plain)
        && !host.split('.').any(str::is_empty)
        && last.starts_with(|first: char| first.is_ascii_alphabetic())
        && last != "localhost"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allows the host `allowed.test`, whose address is loopback.
    #[derive(Debug)]
    struct TestRules {
        allows_loopback: bool,
    }

    impl ProxyRules for TestRules {
        fn allows<'a>(&'a self, host: &'a str, _: u16) -> ProxyDecision<'a> {
            Box::pin(async move { host == "allowed.test" })
        }

        fn resolve<'a>(&'a self, _: &'a str, port: u16) -> ProxyAddresses<'a> {
            Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
        }

        fn allows_address(&self, address: IpAddr) -> bool {
            self.allows_loopback || is_public_address(address)
        }
    }

    #[test]
    fn hosts_are_names_and_not_addresses() {
        for name in ["example.com", "a", "static.crates.io", "x-1.test", "xn--nxasmq6b.example"] {
            assert!(is_host_name(name), "{name}");
        }
        for other in [
            "",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "[::1]",
            "::1",
            "localhost",
            "a.localhost",
            "a..b",
            ".",
            "a b",
            "user@host",
            "host/path",
            "1.2.3.4.5",
            "ex%61mple.com",
        ] {
            assert!(!is_host_name(other), "{other}");
        }
    }

    #[test]
    fn plain_requests_are_forwarded_without_what_belongs_to_the_proxy() {
        let head = "GET http://Example.com:81/a?b HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: x\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";
        let request = Request::parse(head).ok().expect("a request");
        assert_eq!((request.host.as_str(), request.port), ("example.com", 81));
        let forwarded =
            "GET /a?b HTTP/1.1\r\nHost: Example.com:81\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(request.forwarded_head.as_deref(), Some(forwarded));
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://example.com/ HTTP/1.1\r\n\r\n",
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT example.com:0 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:443 HTTP/2\r\n\r\n",
            "CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n",
            "GET http://user@example.com/ HTTP/1.1\r\n\r\n",
            "GET  http://example.com/ HTTP/1.1\r\n\r\n",
            "",
        ] {
            assert!(Request::parse(head).is_err(), "{head}");
        }
    }

    /// Sends `request` through a proxy with `rules`. Returns the whole answer.
    async fn ask(rules: TestRules, request: &str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let _proxy = ProxyTask::start(listener, Arc::new(rules)).unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A server that answers one connection with what it got.
    async fn echo_server() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 1024];
            let count = peer.read(&mut bytes).await.unwrap();
            peer.write_all(&bytes[..count]).await.unwrap();
        });
        port
    }

    #[tokio::test]
    async fn allowed_hosts_are_reached() {
        let rules = || TestRules { allows_loopback: true };
        let port = echo_server().await;
        let answer = ask(rules(), &format!("CONNECT allowed.test:{port} HTTP/1.1\r\n\r\nhello")).await;
        assert_eq!(answer, "HTTP/1.1 200 Connected\r\n\r\nhello");
        let port = echo_server().await;
        let answer =
            ask(rules(), &format!("GET http://ALLOWED.test:{port}/x HTTP/1.0\r\nA: b\r\n\r\n")).await;
        assert!(answer.starts_with("GET /x HTTP/1.0\r\n") && answer.contains("A: b\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn other_hosts_private_addresses_and_bad_requests_are_refused() {
        let answer = async |allows_loopback, request: &str| ask(TestRules { allows_loopback }, request).await;
        let forbidden = answer(true, "CONNECT other.test:443 HTTP/1.1\r\n\r\n").await;
        assert!(forbidden.starts_with("HTTP/1.1 403") && forbidden.contains("other.test:443"), "{forbidden}");
        // An allowed name whose address is that of this machine, as after DNS rebinding.
        let port = echo_server().await;
        let private = answer(false, &format!("CONNECT allowed.test:{port} HTTP/1.1\r\n\r\n")).await;
        assert!(private.starts_with("HTTP/1.1 502") && private.contains("no public address"), "{private}");
        let address = answer(true, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).await;
        assert!(address.starts_with("HTTP/1.1 400"), "{address}");
        let long = answer(true, &format!("CONNECT {}\r\n", "a".repeat(PROXY_HEAD_BYTES))).await;
        assert!(long.starts_with("HTTP/1.1 400"), "{long}");
    }
}
