//! The supex driver against servers that say exactly what a test wants them to say.
//!
//! `calls.rs` is about calls that go well or are refused, `answers.rs` about answers that are odd,
//! `lost.rs` about connections that break and what is sent again, `time.rs` about patience,
//! `pieces.rs` about how bytes are cut, `tcp.rs` about real sockets, `repl.rs` about consoles.
//!
//! All but the real sockets is in memory, where the clock stands still and jumps when no task can run.
//! So waits cost nothing, and a hang fails at once under [`watched`].

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod answers;
mod calls;
mod lost;
mod pieces;
mod repl;
mod tcp;
mod time;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parlor_client::supex::{Dial, DialFuture, DialStream, Driver, Identity, SupexSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

/// Turns a hang into a failure. Nothing is measured with it.
async fn watched<T>(test: impl Future<Output = T>) -> T {
    // Longer than any wait of the client.
    tokio::time::timeout(Duration::from_secs(24 * 60 * 60), test).await.expect("the test hangs")
}

/// Waits until no task can run without it.
async fn stillness() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What each direction holds before the sender has to wait.
const PIPE_BYTES: usize = 64 * 1024;

/// A server in the hands of a test. Connections arrive at it one after another.
struct Fake {
    arriving: mpsc::Receiver<DuplexStream>,
    refusals: Arc<AtomicUsize>,
}

/// The way to it.
struct Way {
    arriving: mpsc::Sender<DuplexStream>,
    /// How many connections are to be refused.
    refusals: Arc<AtomicUsize>,
    pipe_bytes: usize,
}

impl Dial for Way {
    fn dial(&self) -> DialFuture<'_> {
        Box::pin(async {
            let refused =
                self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if refused.is_ok() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(self.pipe_bytes);
            self.arriving.send(theirs).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(ours) as Box<dyn DialStream>)
        })
    }
}

impl Fake {
    /// A server, and the way to it.
    fn new(pipe_bytes: usize) -> (Self, Box<dyn Dial>) {
        let (sender, arriving) = mpsc::channel(4);
        let refusals = Arc::new(AtomicUsize::new(0));
        let way = Way { arriving: sender, refusals: Arc::clone(&refusals), pipe_bytes };
        (Self { arriving, refusals }, Box::new(way))
    }

    /// A server and a driver that has not called yet.
    fn driven() -> (Self, Driver) {
        Self::driven_with(settings())
    }

    fn driven_with(settings: SupexSettings) -> (Self, Driver) {
        let (fake, way) = Self::new(PIPE_BYTES);
        (fake, Driver::over("fake:1", way, settings))
    }

    /// The next so many connections are refused.
    fn refuse(&self, count: usize) {
        self.refusals.store(count, Ordering::SeqCst);
    }

    /// The next connection, on which nothing was said yet.
    async fn arrival(&mut self) -> Peer<DuplexStream> {
        Peer::new(self.arriving.recv().await.expect("the driver is there"))
    }

    /// The next connection, on which a server of `kind` was greeted.
    async fn welcome(&mut self, kind: &Value) -> Peer<DuplexStream> {
        let mut peer = self.arrival().await;
        peer.welcome(kind).await;
        peer
    }

    /// Whether a connection has arrived that nobody has taken.
    async fn is_bothered(&mut self) -> bool {
        stillness().await;
        self.arriving.try_recv().is_ok()
    }
}

/// A server's end of one connection.
struct Peer<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// The next line from the client.
    async fn hear(&mut self) -> Value {
        self.hear_or_end().await.expect("the client closed the connection")
    }

    async fn hear_or_end(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).await.unwrap();
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn say(&mut self, message: &Value) {
        self.say_bytes(format!("{message}\n").as_bytes()).await;
    }

    async fn say_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
        self.0.get_mut().flush().await.unwrap();
    }

    async fn welcome(&mut self, kind: &Value) {
        let hello = self.hear().await;
        assert_eq!((&hello["method"], &hello["id"]), (&json!("hello"), &json!("hello")));
        let result = json!({"success": true, "message": "Client identified", "server": kind});
        self.say(&json!({"jsonrpc": "2.0", "result": result, "id": "hello"})).await;
    }

    /// Hears a call and answers it with `result`. The call is returned.
    async fn serve(&mut self, result: Value) -> Value {
        let call = self.hear().await;
        self.say(&reply(&call, result)).await;
        call
    }
}

fn reply(call: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "result": result, "id": call["id"]})
}

fn value(text: &str) -> Value {
    json!({"success": true, "result": text})
}

/// A server that runs repeated calls again.
fn plain() -> Value {
    json!({"name": "supex-runtime", "version": "0.2.0"})
}

/// A server that attaches them.
fn attaching() -> Value {
    json!({"name": "supex-runtime", "version": "0.2.0", "attach": true})
}

fn settings() -> SupexSettings {
    let identity = Identity { name: "test".into(), version: "1".into(), agent: "tester".into(), pid: 42 };
    SupexSettings { identity, ..SupexSettings::bridge() }
}
