//! Downloads the file at a URL that a client sent, and that may be malicious.
//!
//! The fetcher connects neither to this machine nor to private networks. It checks each address after the name is
//! resolved and before it connects, so that no name and no redirect leads there. It caches nothing and uses no proxy.

use std::error::Error;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::Fetch;
use parlor_process::is_public_address;
use parlor_transport::{FrameAccount, FrameMemory};
use parlor_vocab::FileError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use tokio::time::timeout;

/// How many redirects the fetcher follows.
pub const MAX_REDIRECTS: usize = 5;

/// How long a download may take in all.
pub const FETCH_WAIT: Duration = Duration::from_secs(60);

/// Why a file was not downloaded. The client sees none of these texts; the log does.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The scheme is neither http nor https, or the URL is invalid.
    #[error("the URL is not a valid http or https address")]
    InvalidUrl,
    /// The host is this machine or in a private network.
    #[error(
        "{0} is on this machine or in a private network; allow_private_urls in [channels.supr] would allow it"
    )]
    Private(String),
    /// The server redirects too often.
    #[error("there are more than {MAX_REDIRECTS} redirects")]
    Redirects,
    /// The server answers with another status than 200.
    #[error("the server answers with status {0}")]
    Status(u16),
    /// The file is larger than this limit.
    #[error("the file has more than {0} bytes")]
    TooLarge(u64),
    /// The download took longer than [`FETCH_WAIT`].
    #[error("the file did not arrive in time")]
    Slow,
    /// The connection failed for this reason.
    #[error("{0}")]
    Failed(String),
}

/// Downloads files.
pub struct Fetcher {
    /// Created on first use, since it reads all root certificates.
    client: OnceLock<Client>,
    /// Whether the fetcher may connect to an address.
    is_allowed: fn(IpAddr) -> bool,
    wait: Duration,
    /// The budget that files share with large frames while they arrive.
    memory: FrameMemory,
}

impl Fetcher {
    /// Downloads from the public internet, and from private networks too if `allow_private`.
    pub fn new(allow_private: bool) -> Self {
        Self::with(if allow_private { |_| true } else { is_public_address }, FETCH_WAIT)
    }

    fn with(is_allowed: fn(IpAddr) -> bool, wait: Duration) -> Self {
        Self { client: OnceLock::new(), is_allowed, wait, memory: FrameMemory::unlimited() }
    }

    /// Counts arriving files towards `memory`. Downloads pause while that is used up.
    #[must_use]
    pub fn with_memory(self, memory: FrameMemory) -> Self {
        Self { memory, ..self }
    }

    fn client(&self) -> Result<&Client, FetchError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(FilteringResolver { is_allowed: self.is_allowed }))
            .user_agent(concat!("parlor/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| FetchError::Failed(with_causes(&error)))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Downloads the file at `url`, if it has at most `max_bytes`.
    pub async fn get(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, FetchError> {
        let download = async {
            let response = self.follow(url).await?;
            read(response, max_bytes, self.memory.account()).await
        };
        timeout(self.wait, download).await.unwrap_or(Err(FetchError::Slow))
    }

    /// The response after all redirects. The fetcher checks the URL of each redirect like the first one.
    async fn follow(&self, url: &str) -> Result<Response, FetchError> {
        let mut url = Url::parse(url).map_err(|_| FetchError::InvalidUrl)?;
        for _ in 0..=MAX_REDIRECTS {
            check_url(&url, self.is_allowed)?;
            let response = self.client()?.get(url.clone()).send().await.map_err(fetch_error)?;
            if !response.status().is_redirection() {
                return match response.status().as_u16() {
                    200 => Ok(response),
                    status => Err(FetchError::Status(status)),
                };
            }
            let status = FetchError::Status(response.status().as_u16());
            let next = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            url = next.and_then(|next| url.join(next).ok()).ok_or(status)?;
        }
        Err(FetchError::Redirects)
    }
}

/// Checks the scheme and the host of a URL. The resolver checks the addresses of a name, but it never sees a literal
/// address.
pub(crate) fn check_url(url: &Url, is_allowed: fn(IpAddr) -> bool) -> Result<(), FetchError> {
    let host = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https"));
    let Some(host) = host else { return Err(FetchError::InvalidUrl) };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) if !is_allowed(ip) => Err(FetchError::Private(host.to_owned())),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[async_trait]
impl Fetch for Fetcher {
    async fn fetch(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, FileError> {
        self.get(url, max_bytes).await.map_err(|error| {
            tracing::info!(%error, "could not download a file");
            match error {
                FetchError::TooLarge(bytes) => FileError::TooLarge { bytes },
                FetchError::InvalidUrl
                | FetchError::Private(_)
                | FetchError::Redirects
                | FetchError::Status(_)
                | FetchError::Slow
                | FetchError::Failed(_) => FileError::Unreadable,
            }
        })
    }
}

async fn read(
    mut response: Response,
    max_bytes: u64,
    mut account: FrameAccount,
) -> Result<Vec<u8>, FetchError> {
    let too_large = FetchError::TooLarge(max_bytes);
    // A download that is announced as too large need not start. What the server really sends is checked below.
    if response.content_length().is_some_and(|announced| announced > max_bytes) {
        return Err(too_large);
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(fetch_error)? {
        if (bytes.len() + piece.len()) as u64 > max_bytes {
            return Err(too_large);
        }
        bytes.extend_from_slice(&piece);
        account.add_arriving(piece.len());
        poll_fn(|cx| account.poll_room(cx)).await;
    }
    Ok(bytes)
}

/// Resolves names to those of their addresses that the fetcher may connect to.
pub(crate) struct FilteringResolver {
    pub(crate) is_allowed: fn(IpAddr) -> bool,
}

/// The fetcher may connect to no address of this name.
#[derive(Debug, thiserror::Error)]
#[error("{0} is at no address that may be connected to")]
struct NoAddress(String);

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let is_allowed = self.is_allowed;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| is_allowed(address.ip())).collect();
            if allowed.is_empty() {
                return Err(NoAddress(name.as_str().to_owned()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

pub(crate) fn fetch_error(error: reqwest::Error) -> FetchError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(NoAddress(name)) = inner.downcast_ref() {
            return FetchError::Private(name.clone());
        }
        cause = inner.source();
    }
    // A URL may contain a secret, and this text is logged.
    FetchError::Failed(with_causes(&error.without_url()))
}

/// An error with its causes.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request with what `answer` makes of its first line. If that says so, the body has no end.
    async fn server(answer: fn(&str, SocketAddr) -> (String, bool)) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    let count = stream.read(&mut request).await.unwrap();
                    let line = String::from_utf8_lossy(&request[..count]).lines().next().unwrap().to_owned();
                    let (text, is_endless) = answer(&line, address);
                    stream.write_all(text.as_bytes()).await.unwrap();
                    let piece = format!("400\r\n{}\r\n", "x".repeat(0x400));
                    while is_endless && stream.write_all(piece.as_bytes()).await.is_ok() {}
                });
            }
        });
        address
    }

    fn ok(body: &str) -> (String, bool) {
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()), false)
    }

    fn redirect_to(target: &str) -> (String, bool) {
        (format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"), false)
    }

    fn only_loopback(ip: IpAddr) -> bool {
        ip == IpAddr::from([127, 0, 0, 1])
    }

    fn fetcher() -> Fetcher {
        Fetcher::with(only_loopback, FETCH_WAIT)
    }

    #[tokio::test]
    async fn a_file_of_the_maximum_size_is_downloaded() {
        let address = server(|_, _| ok("12345")).await;
        let url = format!("http://{address}/file");
        assert_eq!(fetcher().get(&url, 5).await.unwrap(), b"12345");
        assert!(matches!(fetcher().get(&url, 4).await, Err(FetchError::TooLarge(4))));
    }

    #[tokio::test]
    async fn an_endless_body_is_given_up() {
        let address =
            server(|_, _| ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(), true)).await;
        let got = fetcher().get(&format!("http://{address}/"), 10_000).await;
        assert!(matches!(got, Err(FetchError::TooLarge(10_000))), "{got:?}");
    }

    #[tokio::test]
    async fn only_status_200_is_accepted() {
        let address = server(|_, _| ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), false)).await;
        assert!(matches!(
            fetcher().get(&format!("http://{address}/"), 9).await,
            Err(FetchError::Status(204))
        ));
        let address =
            server(|_, _| ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_owned(), false)).await;
        assert!(matches!(
            fetcher().get(&format!("http://{address}/"), 9).await,
            Err(FetchError::Status(302))
        ));
    }

    #[tokio::test]
    async fn redirects_are_followed_up_to_the_limit() {
        let address = server(|line, address| match line.split(['/', ' ']).nth(2).unwrap().parse::<u32>() {
            Ok(0) => ok("here"),
            Ok(left) => redirect_to(&format!("http://{address}/{}", left - 1)),
            Err(_) => redirect_to("5"),
        })
        .await;
        assert_eq!(fetcher().get(&format!("http://{address}/{MAX_REDIRECTS}"), 9).await.unwrap(), b"here");
        let more = fetcher().get(&format!("http://{address}/{}", MAX_REDIRECTS + 1), 9).await;
        assert!(matches!(more, Err(FetchError::Redirects)), "{more:?}");
    }

    #[tokio::test]
    async fn no_redirect_leads_to_a_private_address() {
        let address =
            server(|line, _| redirect_to(&format!("http://{}/", line.split(['/', ' ']).nth(2).unwrap())))
                .await;
        for target in ["127.0.0.2", "169.254.169.254", "[::1]", "10.0.0.1:80", "0x7f.2"] {
            let got = fetcher().get(&format!("http://{address}/{target}"), 9).await;
            assert!(matches!(got, Err(FetchError::Private(_))), "{target}: {got:?}");
        }
        let address = server(|_, _| redirect_to("file:///etc/passwd")).await;
        let got = fetcher().get(&format!("http://{address}/"), 9).await;
        assert!(matches!(got, Err(FetchError::InvalidUrl)), "{got:?}");
    }

    #[tokio::test]
    async fn no_name_or_spelling_of_this_machine_is_fetched() {
        let fetcher = Fetcher::new(false);
        for url in [
            "http://localhost:1/",
            "http://127.0.0.1:1/",
            "http://2130706433:1/",
            "http://0x7f.1:1/",
            "http://[::ffff:127.0.0.1]:1/",
            "http://0.0.0.0:1/",
        ] {
            let got = fetcher.get(url, 9).await;
            assert!(matches!(got, Err(FetchError::Private(_))), "{url}: {got:?}");
        }
        for url in ["ftp://a/", "file:///etc/passwd", "data:,x", "nonsense", ""] {
            assert!(matches!(fetcher.get(url, 9).await, Err(FetchError::InvalidUrl)), "{url}");
        }
        let address = server(|_, _| ok("near")).await;
        let allowed = Fetcher::new(true);
        let url = format!("http://localhost:{}/", address.port());
        assert_eq!(allowed.get(&url, 9).await.unwrap(), b"near");
    }

    #[tokio::test]
    async fn a_silent_server_runs_into_the_time_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let impatient = Fetcher::with(only_loopback, Duration::from_millis(50));
        assert!(matches!(impatient.get(&format!("http://{address}/"), 9).await, Err(FetchError::Slow)));
    }

    #[test]
    fn only_public_addresses_are_public() {
        for ip in
            ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:4860:4860::8888"]
        {
            assert!(is_public_address(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.8",
            "198.18.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "3fff::1",
        ] {
            assert!(!is_public_address(ip.parse().unwrap()), "{ip}");
        }
    }
}
