//! A server that answers one request with given bytes and records the request.
#![expect(clippy::unwrap_used, reason = "a failure in a test helper panics, as in the test itself")]

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

/// An answer, and the request for it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) text: String,
    /// The streamed pieces of inputs: call id, tool and text.
    pub(crate) inputs: Vec<(String, String, String)>,
    pub(crate) end: Result<Completion, ProviderError>,
    /// The head of the request, in lower case.
    pub(crate) head: String,
    /// The body of the request.
    pub(crate) body: Value,
}

impl Received {
    /// The calls: their ids, tools and inputs.
    pub(crate) fn calls(&self) -> Vec<(&str, &str, &str)> {
        let done = self.end.as_ref().unwrap();
        done.calls.iter().map(|call| (call.id.as_str(), call.tool.as_str(), call.input.as_str())).collect()
    }

    /// The streamed input of a call, concatenated.
    pub(crate) fn streamed_input(&self, id: &str) -> String {
        self.inputs.iter().filter(|(of, _, _)| of == id).map(|(_, _, text)| text.as_str()).collect()
    }
}

/// A server-sent event without a name.
pub(crate) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A server-sent event with a name.
pub(crate) fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

/// An event of the chat format.
pub(crate) fn delta(delta: &Value) -> String {
    data(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

/// The event of the chat format with the finish reason.
pub(crate) fn finish(reason: &str) -> String {
    data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

/// Sends a request to a server that answers with `stream`.
pub(crate) async fn request(kind: ProviderKind, stream: &str) -> Received {
    request_with_key(kind, stream, Some(Key::new("sk-test"))).await
}

/// The same with another key, or without a key.
pub(crate) async fn request_with_key(kind: ProviderKind, stream: &str, key: Option<Key>) -> Received {
    let user = ModelMessage::user("go");
    request_with(kind, response(stream), key, vec![user]).await
}

/// Sends a request to a server that answers with these bytes, including the head.
pub(crate) async fn request_raw(kind: ProviderKind, answer: &str) -> Received {
    let user = ModelMessage::user("go");
    request_with(kind, answer.to_owned(), None, vec![user]).await
}

/// Sends a request, then another one with the results of the calls. Returns the model's messages in the second
/// request.
pub(crate) async fn sent_back(kind: ProviderKind, stream: &str) -> Vec<Value> {
    let received = request(kind, stream).await;
    let Completion { calls, provider_state, .. } = received.end.unwrap();
    let result = |call: &ModelCall| CallResult {
        id: call.id.clone(),
        tool: call.tool.clone(),
        text: "done".to_owned(),
        failed: false,
        pictures: Vec::new(),
    };
    let results = ModelMessage::Results(calls.iter().map(result).collect());
    let user = ModelMessage::user("go");
    let messages = vec![user, ModelMessage::Model { text: received.text, calls, provider_state }, results];
    let body = request_with(kind, response(stream), None, messages).await.body;
    let messages = body["messages"].as_array().unwrap();
    messages.iter().filter(|message| message["role"] == "assistant").cloned().collect()
}

/// A complete HTTP response with this stream as body.
fn response(stream: &str) -> String {
    let length = stream.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{stream}")
}

async fn request_with(
    kind: ProviderKind,
    answer: String,
    key: Option<Key>,
    messages: Vec<ModelMessage>,
) -> Received {
    let (url, served) = serve(answer);
    let connection = Connection::new(kind, Some(&url), Arc::new(FixedKey(Ok(key))), Routing::default());
    let (model, reasoning) = ("m".to_owned(), Some(Reasoning::Low));
    let request = Request { model, messages, reasoning, ..Request::default() };
    let mut pieces = connection.stream(&request).await.unwrap();
    let (mut text, mut inputs, mut end) = (String::new(), Vec::new(), None);
    while let Some(piece) = pieces.next().await {
        assert!(end.is_none(), "a piece after the end: {piece:?}");
        match piece {
            Ok(Piece::Text(more)) => text.push_str(&more),
            Ok(Piece::Reasoning(_)) => {}
            Ok(Piece::CallInput { id, tool, text }) => inputs.push((id, tool, text)),
            Ok(Piece::Done(done)) => end = Some(Ok(done)),
            Err(error) => end = Some(Err(error)),
        }
    }
    let (head, body) = served.join().unwrap();
    Received { text, inputs, end: end.expect("an end"), head, body }
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
        // The client may close the connection early.
        let _ = out.write_all(answer.as_bytes());
        (head, serde_json::from_slice(&body).unwrap())
    });
    (url, served)
}
