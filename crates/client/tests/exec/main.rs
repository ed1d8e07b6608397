//! Tests of the exec client with fake servers that send exactly what a test needs.
//!
//! `wire.rs` tests calls and the connection, `output.rs` output and its limits, and `child.rs` servers that are processes. A
//! bug here often shows as a hang, so every test runs under [`with_timeout`].
//!
//! Most tests run in memory with a paused clock, which jumps ahead when no task can run. So a hang fails at once, and
//! [`until_idle`] returns when no other task can make progress.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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

/// Fails a test that hangs. The time limit measures nothing.
async fn with_timeout<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
}

/// Waits until no other task can make progress.
async fn until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// The buffer size of each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// A server that the test controls.
struct FakeServer {
    input: BufReader<DuplexStream>,
    output_stream: DuplexStream,
}

impl FakeServer {
    /// A server, and the reader and the writer for its client.
    fn new() -> (Self, DuplexStream, DuplexStream) {
        let (output_stream, reader) = tokio::io::duplex(PIPE_BYTES);
        let (writer, input) = tokio::io::duplex(PIPE_BYTES);
        (Self { input: BufReader::new(input), output_stream }, reader, writer)
    }

    /// A server and a client after the handshake.
    async fn connected() -> (Self, ExecServerClient) {
        let (mut server, reader, writer) = Self::new();
        let (client, ()) = tokio::join!(ExecServerClient::connect(reader, writer, "test"), async {
            let initialize = server.receive().await;
            assert_eq!(initialize["method"], method::INITIALIZE);
            server
                .send(&json!({"id": initialize["id"], "result": {"protocolVersion": "exec-server.v0"}}))
                .await;
        });
        assert_eq!(server.receive().await, json!({"method": method::INITIALIZED, "params": {}}));
        (server, client.unwrap())
    }

    /// The next line from the client.
    async fn receive(&mut self) -> Value {
        self.receive_or_end().await.expect("the client closed the connection")
    }

    async fn receive_or_end(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.input.read_line(&mut line).await.unwrap();
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn send(&mut self, message: &Value) {
        self.send_bytes(format!("{message}\n").as_bytes()).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.output_stream.write_all(bytes).await.unwrap();
    }

    async fn output(&mut self, id: &str, bytes: &[u8]) {
        self.send_bytes(&delta(id, ExecOutputStream::Stdout, bytes)).await;
    }

    async fn exit(&mut self, id: &str, code: i32) {
        self.send(&exited(id, code)).await;
    }

    /// Receives a start request and answers that the process is started.
    async fn accept_start(&mut self) {
        let start = self.receive().await;
        assert_eq!(start["method"], method::EXEC);
        self.send(&started(&start)).await;
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

/// The answer to a start request: the process is started.
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

/// The remaining standard output of `process`, and its exit code.
async fn rest(process: ExecServerProcess) -> (Vec<u8>, i32) {
    let finished = process.output().await.unwrap();
    assert_eq!(finished.stderr, b"");
    (finished.stdout, finished.exit_code)
}

/// The next output of `process`, which has not exited.
async fn next(process: &mut ExecServerProcess) -> Vec<u8> {
    let ExecOutput { bytes, .. } = process.next_output().await.unwrap().expect("the process has exited");
    bytes
}

fn is_closed<T>(result: &Result<T, ExecServerError>) -> bool {
    matches!(result, Err(ExecServerError::Closed { .. }))
}
