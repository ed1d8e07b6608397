//! Tests of the supex client with fake servers that send exactly what a test needs.
//!
//! `calls.rs` tests calls that succeed or are refused, `answers.rs` unusual and invalid answers, `lost.rs` lost connections
//! and retries, `time.rs` time limits, `pieces.rs` split reads and writes, `tcp.rs` real sockets, and `repl.rs` consoles.
//!
//! All tests except `tcp.rs` run in memory with a paused clock, which jumps ahead when no task can run. So waits cost no
//! time, and a hang fails at once under [`with_timeout`].

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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

/// Fails a test that hangs. The time limit measures nothing.
async fn with_timeout<T>(test: impl Future<Output = T>) -> T {
    // Longer than any time limit of the client.
    tokio::time::timeout(Duration::from_secs(24 * 60 * 60), test).await.expect("the test hangs")
}

/// Waits until no other task can make progress.
async fn until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// The buffer size of each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// A server that the test controls. It accepts one connection after another.
struct FakeServer {
    connections: mpsc::Receiver<DuplexStream>,
    refusals: Arc<AtomicUsize>,
}

/// Opens connections to a [`FakeServer`].
struct FakeDial {
    connections: mpsc::Sender<DuplexStream>,
    /// How many more connections to refuse.
    refusals: Arc<AtomicUsize>,
    pipe_bytes: usize,
}

impl Dial for FakeDial {
    fn dial(&self) -> DialFuture<'_> {
        Box::pin(async {
            let refused =
                self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if refused.is_ok() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(self.pipe_bytes);
            self.connections.send(theirs).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(ours) as Box<dyn DialStream>)
        })
    }
}

impl FakeServer {
    /// A server, and the dial to reach it.
    fn new(pipe_bytes: usize) -> (Self, Box<dyn Dial>) {
        let (sender, connections) = mpsc::channel(4);
        let refusals = Arc::new(AtomicUsize::new(0));
        let dial = FakeDial { connections: sender, refusals: Arc::clone(&refusals), pipe_bytes };
        (Self { connections, refusals }, Box::new(dial))
    }

    /// A server, and a driver that has not connected yet.
    fn with_driver() -> (Self, Driver) {
        Self::with_settings(settings())
    }

    fn with_settings(settings: SupexSettings) -> (Self, Driver) {
        let (fake_server, dial) = Self::new(PIPE_BYTES);
        (fake_server, Driver::over("fake:1", dial, settings))
    }

    /// Refuses the next `count` connections.
    fn refuse(&self, count: usize) {
        self.refusals.store(count, Ordering::SeqCst);
    }

    /// The next connection, before its `hello`.
    async fn accept(&mut self) -> ServerConnection<DuplexStream> {
        ServerConnection::new(self.connections.recv().await.expect("the client was dropped"))
    }

    /// The next connection, after its `hello` was answered with the server info `info`.
    async fn accept_hello(&mut self, info: &Value) -> ServerConnection<DuplexStream> {
        let mut connection = self.accept().await;
        connection.accept_hello(info).await;
        connection
    }

    /// Whether the client has opened a connection that was not accepted yet.
    async fn has_new_connection(&mut self) -> bool {
        until_idle().await;
        self.connections.try_recv().is_ok()
    }
}

/// A server's end of one connection.
struct ServerConnection<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> ServerConnection<S> {
    fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// The next line from the client.
    async fn receive(&mut self) -> Value {
        self.receive_or_end().await.expect("the client closed the connection")
    }

    async fn receive_or_end(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).await.unwrap();
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn send(&mut self, message: &Value) {
        self.send_bytes(format!("{message}\n").as_bytes()).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
        self.0.get_mut().flush().await.unwrap();
    }

    async fn accept_hello(&mut self, info: &Value) {
        let hello = self.receive().await;
        assert_eq!((&hello["method"], &hello["id"]), (&json!("hello"), &json!("hello")));
        let result = json!({"success": true, "message": "Client identified", "server": info});
        self.send(&json!({"jsonrpc": "2.0", "result": result, "id": "hello"})).await;
    }

    /// Receives a call and answers it with `result`. Returns the call.
    async fn serve(&mut self, result: Value) -> Value {
        let call = self.receive().await;
        self.send(&reply(&call, result)).await;
        call
    }
}

fn reply(call: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "result": result, "id": call["id"]})
}

fn value(text: &str) -> Value {
    json!({"success": true, "result": text})
}

/// The info of a server that runs repeated calls again.
fn not_attaching() -> Value {
    json!({"name": "supex-runtime", "version": "0.2.0"})
}

/// The info of a server that attaches repeated calls.
fn attaching() -> Value {
    json!({"name": "supex-runtime", "version": "0.2.0", "attach": true})
}

fn settings() -> SupexSettings {
    let identity = Identity { name: "test".into(), version: "1".into(), agent: "tester".into(), pid: 42 };
    SupexSettings { identity, ..SupexSettings::bridge() }
}
