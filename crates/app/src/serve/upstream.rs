//! The way to a SketchUp runtime: one call a connection, as it wants it, and a connection for each console.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_doors::lines::{Line, Lines};
use parlor_doors::supex::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES, upstream};
use parlor_ruby::Upstream;
use parlor_vocab::{Caller, RubyJob, UpstreamError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a runtime may take to accept a connection and to answer the `hello`. It looks around four
/// times a second, and not at all while it is busy.
pub(super) const UPSTREAM_HELLO_WAIT: Duration = Duration::from_secs(15);

/// How long a runtime may take for one call.
pub(super) const UPSTREAM_CALL_WAIT: Duration = Duration::from_secs(600);

/// A SketchUp runtime at an address.
pub(super) struct UpstreamClient {
    address: String,
    console: Option<String>,
    token: Option<String>,
}

impl UpstreamClient {
    /// The runtime at `address`, a host and a port, that asks for `token`. Consoles are not forwarded.
    pub(super) fn new(address: String, token: Option<String>) -> Self {
        Self { address, console: None, token }
    }

    /// Forwards consoles to the one at `address`.
    #[must_use]
    pub(super) fn with_console(self, address: String) -> Self {
        Self { console: Some(address), ..self }
    }

    async fn call_once(&self, caller: &Caller, call: &[u8]) -> Result<String, UpstreamError> {
        let hello = upstream::hello(caller, self.token.as_deref(), u64::from(std::process::id()));
        Wire::open(&self.address, &hello).await?.call(call).await
    }
}

#[async_trait]
impl Upstream for UpstreamClient {
    async fn run_job(&self, caller: &Caller, job: &RubyJob) -> Result<String, UpstreamError> {
        let call = spell(job)?;
        match self.call_once(caller, &call).await {
            // It has read half of the line and done nothing, so there is no harm in another try.
            Err(failure) if upstream::was_misread(&failure) => self.call_once(caller, &call).await,
            done => done,
        }
    }

    fn console(&self) -> Option<Arc<dyn Upstream>> {
        let (address, token) = (self.console.clone()?, self.token.clone());
        Some(Arc::new(Console { address, token, wire: Mutex::default() }))
    }
}

/// The runtime's console, for one of ours. It is reached when the first line comes.
struct Console {
    address: String,
    token: Option<String>,
    wire: Mutex<Option<Wire>>,
}

#[async_trait]
impl Upstream for Console {
    async fn run_job(&self, _caller: &Caller, job: &RubyJob) -> Result<String, UpstreamError> {
        let line = spell(job)?;
        let mut kept = self.wire.lock().await;
        let mut wire = match kept.take().filter(Wire::is_quiet) {
            Some(wire) => wire,
            None => {
                let hello = upstream::console_hello(self.token.as_deref(), u64::from(std::process::id()));
                Wire::open(&self.address, &hello).await?
            }
        };
        let done = wire.call(&line).await;
        // A late answer would be taken for that to the next line.
        if !matches!(done, Err(UpstreamError::Unanswered { .. })) {
            *kept = Some(wire);
        }
        done
    }

    fn console(&self) -> Option<Arc<dyn Upstream>> {
        None
    }
}

fn spell(job: &RubyJob) -> Result<Vec<u8>, UpstreamError> {
    upstream::call(job).ok_or_else(|| {
        let reason = format!("the call is longer than the {MAX_REQUEST_BYTES} bytes that it takes");
        UpstreamError::Unreachable { reason }
    })
}

/// A connection to the runtime.
struct Wire {
    stream: TcpStream,
    lines: Lines,
}

impl Wire {
    /// Connects, and says `hello`.
    async fn open(address: &str, hello: &[u8]) -> Result<Self, UpstreamError> {
        let unreachable = |reason: String| UpstreamError::Unreachable { reason };
        let greeting = async {
            let stream = TcpStream::connect(address).await?;
            let mut wire = Self { stream, lines: Lines::new(MAX_REPLY_BYTES) };
            wire.stream.write_all(hello).await?;
            let line = wire.line().await?;
            Ok::<_, io::Error>((wire, line))
        };
        let (wire, line) = timeout(UPSTREAM_HELLO_WAIT, greeting)
            .await
            .map_err(|_| unreachable(format!("no answer from {address} in time")))?
            .map_err(|error| unreachable(format!("{address}: {error}")))?;
        match upstream::reply(&line) {
            Ok(_) => Ok(wire),
            Err(UpstreamError::Refused { message, .. }) => {
                Err(unreachable(format!("it refused the hello: {message}")))
            }
            Err(UpstreamError::Unreachable { reason } | UpstreamError::Unanswered { reason }) => {
                Err(unreachable(reason))
            }
        }
    }

    /// Sends a line, and waits for what comes of it.
    async fn call(&mut self, line: &[u8]) -> Result<String, UpstreamError> {
        let unanswered = |reason: String| UpstreamError::Unanswered { reason };
        let exchange = async {
            // One write: it would take half a line for a whole one.
            self.stream.write_all(line).await?;
            self.line().await
        };
        let line = timeout(UPSTREAM_CALL_WAIT, exchange)
            .await
            .map_err(|_| unanswered(format!("it took longer than {UPSTREAM_CALL_WAIT:?}")))?;
        upstream::reply(&line.map_err(|error| unanswered(error.to_string()))?)
    }

    /// Whether it is there, and has said nothing that nobody asked for.
    fn is_quiet(&self) -> bool {
        // Past the runtime, which may not have looked yet.
        let said = recv(&self.stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(said, Err(Errno::AGAIN))
    }

    async fn line(&mut self) -> io::Result<Vec<u8>> {
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

    /// A runtime that can be reached, and the way to it.
    async fn runtime() -> (TcpListener, UpstreamClient) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, UpstreamClient::new(address.clone(), None).with_console(address))
    }

    fn line(code: &str) -> RubyJob {
        RubyJob::ConsoleLine { session: "s1".to_owned(), number: 1, code: code.to_owned() }
    }

    /// Reads so many lines, and answers each but the last one.
    async fn hear(stream: &mut BufReader<TcpStream>, count: usize) -> String {
        let mut heard = String::new();
        for left in (0..count).rev() {
            heard.clear();
            stream.read_line(&mut heard).await.unwrap();
            if left > 0 {
                stream.write_all(REPLY).await.unwrap();
            }
        }
        heard
    }

    #[tokio::test]
    async fn a_runtime_that_does_not_greet_is_not_waited_for() {
        let (listener, there) = runtime().await;
        let call =
            tokio::spawn(async move { there.run_job(&Caller::default(), &RubyJob::ListResources).await });
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        assert!(hear(&mut stream, 1).await.contains("hello"));
        // From here on whoever waits for nothing but time does not wait.
        tokio::time::pause();
        let begun = Instant::now();
        let failure = call.await.unwrap().unwrap_err();
        assert!(matches!(failure, UpstreamError::Unreachable { reason } if reason.contains("in time")));
        assert_eq!(begun.elapsed().as_secs(), UPSTREAM_HELLO_WAIT.as_secs());
    }

    #[tokio::test]
    async fn a_call_has_its_time_and_is_not_made_again() {
        let (listener, there) = runtime().await;
        let call =
            tokio::spawn(async move { there.run_job(&Caller::default(), &RubyJob::ListResources).await });
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        assert!(hear(&mut stream, 2).await.contains("resources/list"));
        tokio::time::pause();
        let begun = Instant::now();
        let failure = call.await.unwrap().unwrap_err();
        assert!(matches!(failure, UpstreamError::Unanswered { reason } if reason.contains("600s")));
        assert_eq!(begun.elapsed().as_secs(), UPSTREAM_CALL_WAIT.as_secs());
    }

    #[tokio::test]
    async fn a_console_keeps_its_connection_and_makes_another_when_that_is_lost() {
        let (listener, there) = runtime().await;
        let console = there.console().unwrap();
        let ask = async |code: &str| console.run_job(&Caller::default(), &line(code)).await;
        let serve = async {
            let mut first = BufReader::new(listener.accept().await.unwrap().0);
            assert!(hear(&mut first, 3).await.contains("\"two\""));
            first.write_all(REPLY).await.unwrap();
            first
        };
        let (first, _) = tokio::join!(serve, async {
            ask("one").await.unwrap();
            ask("two").await.unwrap();
        });
        drop(first);
        let serve = async {
            let mut second = BufReader::new(listener.accept().await.unwrap().0);
            assert!(hear(&mut second, 2).await.contains("\"three\""));
        };
        // This one closes in the middle: the line may have been evaluated.
        let ((), lost) = tokio::join!(serve, ask("three"));
        assert!(matches!(lost, Err(UpstreamError::Unanswered { .. })), "{lost:?}");
        let serve = async {
            let mut third = BufReader::new(listener.accept().await.unwrap().0);
            assert!(hear(&mut third, 2).await.contains("\"four\""));
            third.write_all(REPLY).await.unwrap();
        };
        let ((), answered) = tokio::join!(serve, ask("four"));
        assert_eq!(answered.unwrap(), r#"{"success":true}"#);
    }
}
