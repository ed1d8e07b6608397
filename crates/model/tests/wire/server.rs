//! A server that answers one question with the bytes that a test gives it, and keeps what it was asked.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_util::StreamExt;
use parlor_model::provider::{
    CallResult, Completion, Connection, FixedKey, Key, ModelCall, ModelMessage, Piece, Provider,
    ProviderError, ProviderKind, Request, Routing,
};
use parlor_vocab::Reasoning;
use serde_json::{Value, json};

/// What was heard of an answer.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) text: String,
    /// The inputs of calls as they were told: the call, its tool, a piece.
    pub(crate) inputs: Vec<(String, String, String)>,
    pub(crate) end: Result<Completion, ProviderError>,
    /// The head of the request, in small letters.
    pub(crate) head: String,
    /// Its body.
    pub(crate) body: Value,
}

impl Heard {
    /// The calls: their ids, tools and inputs.
    pub(crate) fn calls(&self) -> Vec<(&str, &str, &str)> {
        let done = self.end.as_ref().unwrap();
        done.calls.iter().map(|call| (call.id.as_str(), call.tool.as_str(), call.input.as_str())).collect()
    }

    /// What was told of the input of a call, put together.
    pub(crate) fn told(&self, id: &str) -> String {
        self.inputs.iter().filter(|(of, _, _)| of == id).map(|(_, _, text)| text.as_str()).collect()
    }
}

/// A frame of a stream.
pub(crate) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A frame with a name.
pub(crate) fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

/// A frame of the chat form.
pub(crate) fn delta(delta: &Value) -> String {
    data(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

/// The frame of the chat form that says why an answer ends.
pub(crate) fn finish(reason: &str) -> String {
    data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

/// Asks a server of this kind, which answers with `stream`, and hears it to its end.
pub(crate) async fn ask(kind: ProviderKind, stream: &str) -> Heard {
    ask_with(kind, stream, Some(Key::new("sk-test"))).await
}

/// The same with another key, or none.
pub(crate) async fn ask_with(kind: ProviderKind, stream: &str, key: Option<Key>) -> Heard {
    let user = ModelMessage::User { text: "go".to_owned(), pictures: Vec::new() };
    ask_on(kind, whole(stream), key, vec![user]).await
}

/// Asks a server that answers with these bytes, head and all.
pub(crate) async fn answered(kind: ProviderKind, answer: &str) -> Heard {
    let user = ModelMessage::User { text: "go".to_owned(), pictures: Vec::new() };
    ask_on(kind, answer.to_owned(), None, vec![user]).await
}

/// Asks, and goes on with the results of the calls: what the model has said, as it stands in the next request.
pub(crate) async fn given_back(kind: ProviderKind, stream: &str) -> Vec<Value> {
    let heard = ask(kind, stream).await;
    let Completion { calls, thread, .. } = heard.end.unwrap();
    let result = |call: &ModelCall| CallResult {
        id: call.id.clone(),
        tool: call.tool.clone(),
        text: "done".to_owned(),
        failed: false,
        pictures: Vec::new(),
    };
    let results = ModelMessage::Results(calls.iter().map(result).collect());
    let user = ModelMessage::User { text: "go".to_owned(), pictures: Vec::new() };
    let messages = vec![user, ModelMessage::Model { text: heard.text, calls, thread }, results];
    let body = ask_on(kind, whole(stream), None, messages).await.body;
    let said = body["messages"].as_array().unwrap();
    said.iter().filter(|said| said["role"] == "assistant").cloned().collect()
}

/// A stream as an answer.
fn whole(stream: &str) -> String {
    let length = stream.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{stream}")
}

async fn ask_on(kind: ProviderKind, answer: String, key: Option<Key>, messages: Vec<ModelMessage>) -> Heard {
    let (url, served) = serve(answer);
    let connection = Connection::new(kind, Some(&url), Arc::new(FixedKey(Ok(key))), Routing::default());
    let (model, reasoning) = ("m".to_owned(), Some(Reasoning::Low));
    let request = Request { model, messages, reasoning, ..Request::default() };
    let mut pieces = connection.stream(&request).await.unwrap();
    let (mut text, mut inputs, mut end) = (String::new(), Vec::new(), None);
    while let Some(piece) = pieces.next().await {
        assert!(end.is_none(), "{piece:?} after the end");
        match piece {
            Ok(Piece::Text(more)) => text.push_str(&more),
            Ok(Piece::Reasoning(_)) => {}
            Ok(Piece::CallInput { id, tool, text }) => inputs.push((id, tool, text)),
            Ok(Piece::Done(done)) => end = Some(Ok(done)),
            Err(error) => end = Some(Err(error)),
        }
    }
    let (head, body) = served.join().unwrap();
    Heard { text, inputs, end: end.expect("an end"), head, body }
}

fn serve(answer: String) -> (String, JoinHandle<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut out, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(out.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0);
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        // Whoever has heard enough leaves.
        let _ = out.write_all(answer.as_bytes());
        (head, serde_json::from_slice(&body).unwrap())
    });
    (url, served)
}
