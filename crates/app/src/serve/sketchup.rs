//! A client of the Supex extension in a real SketchUp: one connection for each call, and one for each console.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parlor_doors::lines::{Line, Lines};
use parlor_doors::supex::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES, upstream};
use parlor_ruby::Upstream;
use parlor_transport::{PeerUser, accepting_user};
use parlor_vocab::{Caller, RubyJob, UpstreamError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long SketchUp may take to accept a connection and to answer the `hello`. It polls its socket four times a second,
/// and not at all while it is busy.
pub(super) const UPSTREAM_HELLO_WAIT: Duration = Duration::from_secs(15);

/// How long SketchUp may take for one call.
pub(super) const UPSTREAM_CALL_WAIT: Duration = Duration::from_secs(600);

/// How long SketchUp may take to answer a ping, from the connection to the answer. Clients wait 15 s for it.
pub(super) const UPSTREAM_PING_WAIT: Duration = Duration::from_secs(5);

/// The SketchUp at an address.
pub(super) struct UpstreamClient {
    address: String,
    console: Option<String>,
    token: Option<String>,
    /// Locked by each connection: SketchUp serves one at a time, and one that waits stalls its window.
    turn: Mutex<()>,
    /// Whether SketchUp runs a call now. Until it is done, SketchUp answers nothing else.
    is_calling: AtomicBool,
}

impl UpstreamClient {
    /// The SketchUp at `address`, a host and a port, which requires `token`. Does not forward consoles.
    pub(super) fn new(address: String, token: Option<String>) -> Self {
        Self { address, console: None, token, turn: Mutex::default(), is_calling: AtomicBool::new(false) }
    }

    /// Forwards consoles to the one at `address`.
    #[must_use]
    pub(super) fn with_console(self, address: String) -> Self {
        Self { console: Some(address), ..self }
    }

    async fn call_once(&self, caller: &Caller, call: &[u8]) -> Result<String, UpstreamError> {
        let _turn = self.turn.lock().await;
        let mut connection = self.connect(caller).await?;
        let _calling = Calling::begin(&self.is_calling);
        connection.call(call).await
    }

    async fn connect(&self, caller: &Caller) -> Result<Connection, UpstreamError> {
        let hello = upstream::hello(caller, self.token.as_deref(), u64::from(std::process::id()));
        Connection::open(&self.address, &hello).await
    }

    /// Asks SketchUp whether it is running. Does not wait for a call that runs there.
    async fn ping(&self, caller: &Caller, call: &[u8]) -> Result<String, UpstreamError> {
        let is_busy = || self.is_calling.load(Ordering::Relaxed);
        if is_busy() {
            return Err(UpstreamError::Busy);
        }
        let ping = async {
            let _turn = self.turn.lock().await;
            self.connect(caller).await?.call(call).await
        };
        match timeout(UPSTREAM_PING_WAIT, ping).await {
            Ok(Err(UpstreamError::Unanswered { reason })) => Err(UpstreamError::Unreachable { reason }),
            Ok(answered) => answered,
            // A call began before the ping had its turn.
            Err(_) if is_busy() => Err(UpstreamError::Busy),
            Err(_) => {
                let (address, limit) = (&self.address, UPSTREAM_PING_WAIT.as_secs());
                let reason = format!("no answer from {address} within {limit} s");
                Err(UpstreamError::Unreachable { reason })
            }
        }
    }
}

/// Marks that SketchUp runs a call, until it is dropped.
struct Calling<'a>(&'a AtomicBool);

impl<'a> Calling<'a> {
    fn begin(is_calling: &'a AtomicBool) -> Self {
        is_calling.store(true, Ordering::Relaxed);
        Self(is_calling)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[async_trait]
impl Upstream for UpstreamClient {
    async fn run_job(&self, caller: &Caller, job: &RubyJob) -> Result<String, UpstreamError> {
        let call = encode(job)?;
        if *job == RubyJob::PingUpstream {
            return self.ping(caller, &call).await;
        }
        match self.call_once(caller, &call).await {
            // SketchUp read half of the line and did nothing, so the call can be repeated.
            Err(failure) if upstream::was_misread(&failure) => self.call_once(caller, &call).await,
            result => result,
        }
    }

    fn console(&self) -> Option<Arc<dyn Upstream>> {
        let (address, token) = (self.console.clone()?, self.token.clone());
        Some(Arc::new(Console { address, token, connection: Mutex::default() }))
    }
}

/// The console of SketchUp, for one of our consoles. Connects when the first line comes.
struct Console {
    address: String,
    token: Option<String>,
    connection: Mutex<Option<Connection>>,
}

#[async_trait]
impl Upstream for Console {
    async fn run_job(&self, _caller: &Caller, job: &RubyJob) -> Result<String, UpstreamError> {
        let line = encode(job)?;
        let mut open = self.connection.lock().await;
        let mut connection = match open.take().filter(Connection::is_idle) {
            Some(connection) => connection,
            None => {
                let hello = upstream::console_hello(self.token.as_deref(), u64::from(std::process::id()));
                Connection::open(&self.address, &hello).await?
            }
        };
        let result = connection.call(&line).await;
        // After a timeout the connection is closed: a late reply would pass for the reply to the next line.
        if !matches!(result, Err(UpstreamError::Unanswered { .. })) {
            *open = Some(connection);
        }
        result
    }

    fn console(&self) -> Option<Arc<dyn Upstream>> {
        None
    }
}

fn encode(job: &RubyJob) -> Result<Vec<u8>, UpstreamError> {
    upstream::call(job).ok_or_else(|| {
        let reason = format!("the call is longer than the {MAX_REQUEST_BYTES} bytes that it takes");
        UpstreamError::Unreachable { reason }
    })
}

/// A connection to SketchUp.
struct Connection {
    stream: TcpStream,
    lines: Lines,
}

/// Fails if another user of this machine has accepted the connection: code and the token are not for them.
async fn refuse_other_users(stream: &TcpStream) -> io::Result<()> {
    if stream.peer_addr()?.ip().to_canonical().is_loopback()
        && let PeerUser::Other(user) = accepting_user(stream).await?
    {
        let text = format!("a process of user {user}, not yours, listens there, so nothing was sent");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

impl Connection {
    /// Connects and sends the `hello`.
    async fn open(address: &str, hello: &[u8]) -> Result<Self, UpstreamError> {
        let unreachable = |reason: String| UpstreamError::Unreachable { reason };
        let handshake = async {
            let stream = TcpStream::connect(address).await?;
            refuse_other_users(&stream).await?;
            let mut connection = Self { stream, lines: Lines::new(MAX_REPLY_BYTES) };
            connection.stream.write_all(hello).await?;
            let line = connection.read_line().await?;
            Ok::<_, io::Error>((connection, line))
        };
        let (connection, line) = timeout(UPSTREAM_HELLO_WAIT, handshake)
            .await
            .map_err(|_| unreachable(format!("no answer from {address} in time")))?
            .map_err(|error| unreachable(format!("{address}: {error}")))?;
        match upstream::reply(&line) {
            Ok(_) => Ok(connection),
            Err(UpstreamError::Refused { message, .. }) => {
                Err(unreachable(format!("it refused the hello: {message}")))
            }
            Err(UpstreamError::Unreachable { reason } | UpstreamError::Unanswered { reason }) => {
                Err(unreachable(reason))
            }
            Err(UpstreamError::Busy) => Err(UpstreamError::Busy),
        }
    }

    /// Sends a line and waits for the reply.
    async fn call(&mut self, line: &[u8]) -> Result<String, UpstreamError> {
        let unanswered = |reason: String| UpstreamError::Unanswered { reason };
        let exchange = async {
            // In one write: SketchUp takes what it reads at once for a whole line.
            self.stream.write_all(line).await?;
            self.read_line().await
        };
        let line = timeout(UPSTREAM_CALL_WAIT, exchange)
            .await
            .map_err(|_| unanswered(format!("it took longer than {UPSTREAM_CALL_WAIT:?}")))?;
        upstream::reply(&line.map_err(|error| unanswered(error.to_string()))?)
    }

    /// Whether the connection is open and has no unread input.
    fn is_idle(&self) -> bool {
        // Asks the kernel, since tokio may not have polled the socket yet.
        let received = recv(&self.stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(received, Err(Errno::AGAIN))
    }

    async fn read_line(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; 16 * 1024];
        loop {
            match self.lines.next_line() {
                Some(Line::Whole(line)) => return Ok(line.to_vec()),
                Some(Line::Oversize) => {
                    return Err(io::Error::other(format!(
                        "its reply is longer than {MAX_REPLY_BYTES} bytes"
                    )));
                }
                None => {}
            }
            match self.stream.read(&mut piece).await? {
                0 => return Err(io::Error::other("it closed the connection")),
                count => self.lines.push(piece.get(..count).unwrap_or_default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    const REPLY: &[u8] = b"{\"result\":{\"success\":true},\"id\":1}\n";

    /// A listener in place of SketchUp, and a client of it.
    async fn sketchup() -> (TcpListener, UpstreamClient) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, UpstreamClient::new(address.clone(), None).with_console(address))
    }

    fn line(code: &str) -> RubyJob {
        RubyJob::ConsoleLine { session: "s1".to_owned(), number: 1, code: code.to_owned() }
    }

    /// Reads so many lines, and answers all but the last one.
    async fn read_lines(stream: &mut BufReader<TcpStream>, count: usize) -> String {
        let mut last = String::new();
        for left in (0..count).rev() {
            last.clear();
            stream.read_line(&mut last).await.unwrap();
            if left > 0 {
                stream.write_all(REPLY).await.unwrap();
            }
        }
        last
    }

    #[tokio::test]
    async fn a_sketchup_that_does_not_answer_the_hello_runs_into_the_time_limit() {
        let (listener, client) = sketchup().await;
        let call =
            tokio::spawn(async move { client.run_job(&Caller::default(), &RubyJob::ListResources).await });
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        assert!(read_lines(&mut stream, 1).await.contains("hello"));
        // From here on, the clock of tokio jumps ahead when all tasks wait.
        tokio::time::pause();
        let begun = Instant::now();
        let failure = call.await.unwrap().unwrap_err();
        assert!(matches!(failure, UpstreamError::Unreachable { reason } if reason.contains("in time")));
        assert_eq!(begun.elapsed().as_secs(), UPSTREAM_HELLO_WAIT.as_secs());
    }

    #[tokio::test]
    async fn a_call_has_a_time_limit_and_is_not_repeated() {
        let (listener, client) = sketchup().await;
        let call =
            tokio::spawn(async move { client.run_job(&Caller::default(), &RubyJob::ListResources).await });
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        assert!(read_lines(&mut stream, 2).await.contains("resources/list"));
        tokio::time::pause();
        let begun = Instant::now();
        let failure = call.await.unwrap().unwrap_err();
        assert!(matches!(failure, UpstreamError::Unanswered { reason } if reason.contains("600s")));
        assert_eq!(begun.elapsed().as_secs(), UPSTREAM_CALL_WAIT.as_secs());
    }

    #[tokio::test]
    async fn a_console_keeps_its_connection_and_opens_another_if_it_is_lost() {
        let (listener, client) = sketchup().await;
        let console = client.console().unwrap();
        let evaluate = async |code: &str| console.run_job(&Caller::default(), &line(code)).await;
        let serve = async {
            let mut first = BufReader::new(listener.accept().await.unwrap().0);
            assert!(read_lines(&mut first, 3).await.contains("\"two\""));
            first.write_all(REPLY).await.unwrap();
            first
        };
        let (first, _) = tokio::join!(serve, async {
            evaluate("one").await.unwrap();
            evaluate("two").await.unwrap();
        });
        drop(first);
        let serve = async {
            let mut second = BufReader::new(listener.accept().await.unwrap().0);
            assert!(read_lines(&mut second, 2).await.contains("\"three\""));
        };
        // The connection closes before the reply: SketchUp may have evaluated the line.
        let ((), lost) = tokio::join!(serve, evaluate("three"));
        assert!(matches!(lost, Err(UpstreamError::Unanswered { .. })), "{lost:?}");
        let serve = async {
            let mut third = BufReader::new(listener.accept().await.unwrap().0);
            assert!(read_lines(&mut third, 2).await.contains("\"four\""));
            third.write_all(REPLY).await.unwrap();
        };
        let ((), answered) = tokio::join!(serve, evaluate("four"));
        assert_eq!(answered.unwrap(), r#"{"success":true}"#);
    }
}
