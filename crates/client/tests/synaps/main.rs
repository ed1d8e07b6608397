//! Tests of the synaps client with fake children that send exactly what a test needs.
//!
//! `wire.rs` tests commands and the connection, `turn.rs` turns and their limits, and `child.rs` children that are processes.
//! A bug here often shows as a hang, so every test runs under [`with_timeout`].
//!
//! Most tests run in memory with a paused clock, which jumps ahead when no task can run. So a hang fails at once, and
//! [`until_idle`] returns when no other task can make progress.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod child;
mod turn;
mod wire;

use std::time::Duration;

use parlor_client::synaps::{AssistantEvent, SynapsClient, SynapsError, SynapsTurn, TurnEvent};
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

/// A child that the test controls.
struct FakeChild {
    input: BufReader<DuplexStream>,
    output_stream: DuplexStream,
}

impl FakeChild {
    /// A child, and the reader and the writer for its client.
    fn new() -> (Self, DuplexStream, DuplexStream) {
        let (output_stream, reader) = tokio::io::duplex(PIPE_BYTES);
        let (writer, input) = tokio::io::duplex(PIPE_BYTES);
        (Self { input: BufReader::new(input), output_stream }, reader, writer)
    }

    /// A child that is ready, and its client.
    async fn connected() -> (Self, SynapsClient) {
        let (mut child, reader, writer) = Self::new();
        let ready = json!({"type": "ready", "session_id": "s-1", "model": "m-1", "protocol_version": 1});
        let (client, ()) = tokio::join!(SynapsClient::connect(reader, writer), child.send(&ready));
        (child, client.unwrap())
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

    async fn send(&mut self, frame: &Value) {
        self.output_stream.write_all(format!("{frame}\n").as_bytes()).await.unwrap();
    }

    async fn text(&mut self, delta: &str) {
        self.send(&json!({"type": "message_update", "event": {"type": "text_delta", "delta": delta}})).await;
    }

    async fn usage(&mut self, output_tokens: u64) {
        self.send(
            &json!({"type": "agent_end", "usage": {"input_tokens": 1, "output_tokens": output_tokens}}),
        )
        .await;
    }

    /// Answers `command`, which may begin a turn.
    async fn answer(&mut self, command: &Value, body: Value) {
        let name = match command["type"].as_str().unwrap() {
            "follow_up" => "prompt",
            name => name,
        };
        let mut frame = json!({"type": "response", "id": command["id"], "command": name});
        frame.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        self.send(&frame).await;
    }

    async fn refuse(&mut self, command: &Value, message: &str) {
        self.send(&json!({"type": "error", "id": command["id"], "message": message})).await;
    }

    /// Begins a turn, and returns it with the command that the child received.
    async fn begin_turn(&mut self, client: &SynapsClient) -> (SynapsTurn, Value) {
        let turn = client.prompt("go").await.unwrap();
        let prompt = self.receive().await;
        assert_eq!((&prompt["type"], &prompt["message"]), (&json!("prompt"), &json!("go")));
        (turn, prompt)
    }
}

/// The text of a text event.
fn text_of(event: Option<TurnEvent>) -> String {
    match event {
        Some(TurnEvent::Assistant(AssistantEvent::TextDelta { delta })) => delta,
        other => panic!("{other:?}"),
    }
}

fn is_closed<T>(result: &Result<T, SynapsError>) -> bool {
    matches!(result, Err(SynapsError::Closed { .. }))
}

fn is_refused<T>(result: &Result<T, SynapsError>, message: &str) -> bool {
    matches!(result, Err(SynapsError::Refused(text)) if text == message)
}
