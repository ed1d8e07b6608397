//! The synaps client against children that say exactly what a test wants them to say.
//!
//! `wire.rs` is about commands and the connection, `turn.rs` about turns and their limits, and
//! `child.rs` about children that are processes. What goes wrong here goes wrong as a hang, so every
//! test runs under [`watched`].
//!
//! Where all is in memory the clock stands still and jumps when no task can run. So a hang fails at
//! once, and [`stillness`] knows that nothing moves any more.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod child;
mod turn;
mod wire;

use std::time::Duration;

use parlor_client::synaps::{AssistantEvent, SynapsClient, SynapsError, SynapsTurn, TurnEvent};
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

/// A child in the hands of a test.
struct Fake {
    hears: BufReader<DuplexStream>,
    says: DuplexStream,
}

impl Fake {
    /// A child, and what a client needs to reach it.
    fn new() -> (Self, DuplexStream, DuplexStream) {
        let (says, reader) = tokio::io::duplex(PIPE_BYTES);
        let (writer, hears) = tokio::io::duplex(PIPE_BYTES);
        (Self { hears: BufReader::new(hears), says }, reader, writer)
    }

    /// A child that is ready, and its client.
    async fn connected() -> (Self, SynapsClient) {
        let (mut fake, reader, writer) = Self::new();
        let ready = json!({"type": "ready", "session_id": "s-1", "model": "m-1", "protocol_version": 1});
        let (client, ()) = tokio::join!(SynapsClient::connect(reader, writer), fake.say(&ready));
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

    async fn say(&mut self, frame: &Value) {
        self.says.write_all(format!("{frame}\n").as_bytes()).await.unwrap();
    }

    async fn text(&mut self, delta: &str) {
        self.say(&json!({"type": "message_update", "event": {"type": "text_delta", "delta": delta}})).await;
    }

    async fn usage(&mut self, output_tokens: u64) {
        self.say(&json!({"type": "agent_end", "usage": {"input_tokens": 1, "output_tokens": output_tokens}}))
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
        self.say(&frame).await;
    }

    async fn refuse(&mut self, command: &Value, message: &str) {
        self.say(&json!({"type": "error", "id": command["id"], "message": message})).await;
    }

    /// A turn that the client has begun, and the command that began it.
    async fn begun(&mut self, client: &SynapsClient) -> (SynapsTurn, Value) {
        let turn = client.prompt("go").await.unwrap();
        let prompt = self.hear().await;
        assert_eq!((&prompt["type"], &prompt["message"]), (&json!("prompt"), &json!("go")));
        (turn, prompt)
    }
}

/// What an event says, if it is text.
fn said(event: Option<TurnEvent>) -> String {
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
