//! Tests of the loaf client with a server that the test controls. `tests/loaf/client.rs` has the real server.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use parlor_client::loaf::{EVENT_BACKLOG, LoafClient, LoafError, LoafEvents, LoafLaunch};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};

/// The server's end of a connection.
struct Server {
    input: BufReader<ReadHalf<DuplexStream>>,
    output: WriteHalf<DuplexStream>,
}

impl Server {
    fn start() -> (Self, LoafClient, LoafEvents) {
        let (ours, theirs) = duplex(64 << 10);
        let (reader, writer) = split(theirs);
        let (client, events) = LoafClient::connect(reader, writer);
        let (input, output) = split(ours);
        (Self { input: BufReader::new(input), output }, client, events)
    }

    async fn request(&mut self) -> Value {
        let mut line = String::new();
        self.input.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn send(&mut self, line: Value) {
        self.output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
}

fn event(kind: &str, payload: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "event", "params": {"type": kind, "timestamp": "t", "payload": payload}})
}

#[tokio::test]
async fn answers_find_their_callers_in_any_order() {
    let (mut server, client, _events) = Server::start();
    let calls = async { tokio::join!(client.call("a", json!({})), client.call("b", json!([1]))) };
    let serve = async {
        let (one, two) = (server.request().await, server.request().await);
        assert_eq!((&one["jsonrpc"], &two["params"]), (&json!("2.0"), &json!([1])));
        for request in [two, one] {
            let result = request["method"].clone();
            server.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
        }
    };
    let ((one, two), ()) = tokio::join!(calls, serve);
    assert_eq!((one.unwrap(), two.unwrap()), (json!("a"), json!("b")));
}

#[tokio::test]
async fn an_error_has_its_reason() {
    let (mut server, client, _events) = Server::start();
    let serve = async {
        let request = server.request().await;
        let error = json!({"code": -32603, "message": "busy", "data": {"reason": "session_busy"}});
        server.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    };
    let (sent, ()) = tokio::join!(client.send("s", "x"), serve);
    let error = sent.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.reason()), ("busy", Some("session_busy")));
}

#[tokio::test]
async fn until_ready_returns_the_events_of_one_session() {
    let (mut server, _client, mut events) = Server::start();
    let piece = |session: &str, text: &str| {
        event(
            "session.stream.chunk",
            json!({"session_id": session, "turn_id": "t", "chunk": {"answerText": text}}),
        )
    };
    server.send(piece("one", "a")).await;
    server.send(piece("two", "x")).await;
    server.send(event("some.day", json!({"session_id": "one"}))).await;
    server.send(piece("one", "b")).await;
    server.send(event("session.status", json!({"session_id": "one", "pending": false}))).await;
    let received = events.until_ready("one").await.unwrap();
    assert_eq!(received.len(), 4);
    assert_eq!(received.iter().filter_map(|event| event.answer()).collect::<String>(), "ab");
    assert_eq!(received[0].turn_id(), Some("t"));
}

#[tokio::test]
async fn the_end_of_a_server_fails_every_call_and_then_the_events() {
    let (mut server, client, mut events) = Server::start();
    server.send(event("state.changed", json!({}))).await;
    let pending = tokio::spawn({
        let client = client.clone();
        async move { client.call("x", json!({})).await }
    });
    server.request().await;
    drop(server);
    assert!(matches!(pending.await.unwrap(), Err(LoafError::Closed)));
    assert!(matches!(client.call("y", json!({})).await, Err(LoafError::Closed)));
    assert_eq!(events.next().await.unwrap().kind, "state.changed");
    assert!(matches!(events.next().await, Err(LoafError::Closed)));
}

#[tokio::test]
async fn an_invalid_line_ends_the_connection() {
    let (mut server, client, mut events) = Server::start();
    server.output.write_all(b"\n> loaf@0.2.0 rpc\n").await.unwrap();
    assert!(matches!(events.next().await, Err(LoafError::Protocol(_))));
    assert!(matches!(client.call("x", json!({})).await, Err(LoafError::Protocol(_))));
}

#[tokio::test]
async fn unread_events_stop_the_server_until_the_reader_is_dropped() {
    let (mut server, client, events) = Server::start();
    for _ in 0..EVENT_BACKLOG + 1 {
        server.send(event("state.changed", json!({}))).await;
    }
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call("x", json!({})).await }
    });
    let request = server.request().await;
    server.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": 1})).await;
    assert!(!call.is_finished());
    drop(events);
    assert_eq!(call.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn dropped_calls_do_not_use_up_the_slots() {
    let (mut server, client, _events) = Server::start();
    for _ in 0..2 * parlor_client::loaf::MAX_PENDING_CALLS {
        let call = client.call("x", json!({}));
        tokio::select! {
            biased;
            answer = call => panic!("{answer:?}"),
            _ = server.request() => {}
        }
    }
}

#[tokio::test]
async fn the_error_names_a_program_that_does_not_exist() {
    let error = LoafClient::spawn(&LoafLaunch::new("/no/such/loaf")).unwrap_err();
    assert!(error.to_string().contains("/no/such/loaf"));
}
