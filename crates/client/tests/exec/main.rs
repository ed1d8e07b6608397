//! The exec client against servers that say exactly what a test wants them to say.
//!
//! `wire.rs` is about calls and the connection, `output.rs` about output and its limits, and
//! `child.rs` about servers that are processes. What goes wrong here goes wrong as a hang, so every
//! test runs under [`watched`].
//!
//! Where all is in memory the clock stands still and jumps when no task can run. So a hang fails at
//! once, and [`stillness`] knows that nothing moves any more.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod child;
mod output;
mod wire;

use std::time::Duration;

use parlor_client::exec::{
    ExecOutput, ExecOutputStream, ExecParams, ExecServerClient, ExecServerError, ExecServerProcess,
};
use parlor_doors::exec::{ExecOutputDeltaNotification, method};
use parlor_doors::jsonrpc;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

/// Turns a hang into a failure. Nothing is measured with it.
async fn watched<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
}

/// Waits until no task can run without it.
async fn stillness() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What each direction holds before the sender has to wait.
const PIPE_BYTES: usize = 64 * 1024;

/// A server in the hands of a test.
struct Fake {
    hears: BufReader<DuplexStream>,
    says: DuplexStream,
}

impl Fake {
    /// A server, and what a client needs to reach it.
    fn new() -> (Self, DuplexStream, DuplexStream) {
        let (says, reader) = tokio::io::duplex(PIPE_BYTES);
        let (writer, hears) = tokio::io::duplex(PIPE_BYTES);
        (Self { hears: BufReader::new(hears), says }, reader, writer)
    }

    /// A server and a client that have shaken hands.
    async fn connected() -> (Self, ExecServerClient) {
        let (mut fake, reader, writer) = Self::new();
        let (client, ()) = tokio::join!(ExecServerClient::connect(reader, writer, "test"), async {
            let greeting = fake.hear().await;
            assert_eq!(greeting["method"], method::INITIALIZE);
            fake.say(&json!({"id": greeting["id"], "result": {"protocolVersion": "exec-server.v0"}})).await;
        });
        assert_eq!(fake.hear().await, json!({"method": method::INITIALIZED, "params": {}}));
        (fake, client.unwrap())
    }

    /// The next line from the client.
    async fn hear(&mut self) -> Value {
        self.hear_or_end().await.expect("the client closed the connection")
    }

    async fn hear_or_end(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.hears.read_line(&mut line).await.unwrap();
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn say(&mut self, message: &Value) {
        self.say_bytes(format!("{message}\n").as_bytes()).await;
    }

    async fn say_bytes(&mut self, bytes: &[u8]) {
        self.says.write_all(bytes).await.unwrap();
    }

    async fn output(&mut self, id: &str, bytes: &[u8]) {
        self.say_bytes(&delta(id, ExecOutputStream::Stdout, bytes)).await;
    }

    async fn exit(&mut self, id: &str, code: i32) {
        self.say(&exited(id, code)).await;
    }

    /// Hears a start request and says that it was done.
    async fn accept_start(&mut self) {
        let start = self.hear().await;
        assert_eq!(start["method"], method::EXEC);
        self.say(&started(&start)).await;
    }

    /// A process that this server has started.
    async fn start(&mut self, client: &ExecServerClient, id: &str) -> ExecServerProcess {
        let (process, ()) = tokio::join!(client.start_process(params(id)), self.accept_start());
        process.unwrap()
    }
}

fn params(id: &str) -> ExecParams {
    ExecParams::new(id, ["program"], "/")
}

/// The answer that grants `start`.
fn started(start: &Value) -> Value {
    let id = &start["params"]["processId"];
    json!({"id": start["id"], "result":
        {"processId": id, "running": true, "exitCode": null, "stdout": null, "stderr": null}})
}

fn exited(id: &str, code: i32) -> Value {
    json!({"method": method::EXITED, "params": {"processId": id, "exitCode": code}})
}

/// A line of output.
fn delta(id: &str, stream: ExecOutputStream, bytes: &[u8]) -> Vec<u8> {
    let params =
        ExecOutputDeltaNotification { process_id: id.to_owned(), stream, chunk: bytes.to_vec().into() };
    let mut line = jsonrpc::notification(method::OUTPUT_DELTA, &params);
    line.push(b'\n');
    line
}

/// All that `process` still has to say on standard output, and how it exits.
async fn rest(process: ExecServerProcess) -> (Vec<u8>, i32) {
    let finished = process.output().await.unwrap();
    assert_eq!(finished.stderr, b"");
    (finished.stdout, finished.exit_code)
}

/// The next output of `process`, which is not over.
async fn next(process: &mut ExecServerProcess) -> Vec<u8> {
    let ExecOutput { bytes, .. } = process.next_output().await.unwrap().expect("the process has exited");
    bytes
}

fn is_closed<T>(result: &Result<T, ExecServerError>) -> bool {
    matches!(result, Err(ExecServerError::Closed { .. }))
}
