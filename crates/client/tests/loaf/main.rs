//! The loaf client against a server that says what a test wants. `tests/loaf/client.rs` has the real one.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use parlor_client::loaf::{EVENT_BACKLOG, LoafClient, LoafError, LoafEvents, LoafLaunch};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};

/// The server's side of a connection.
struct Server {
    hears: BufReader<ReadHalf<DuplexStream>>,
    says: WriteHalf<DuplexStream>,
}

impl Server {
    fn start() -> (Self, LoafClient, LoafEvents) {
        let (ours, theirs) = duplex(64 << 10);
        let (reader, writer) = split(theirs);
        let (client, events) = LoafClient::connect(reader, writer);
        let (hears, says) = split(ours);
        (Self { hears: BufReader::new(hears), says }, client, events)
    }

    async fn request(&mut self) -> Value {
        let mut line = String::new();
        self.hears.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn say(&mut self, line: Value) {
        self.says.write_all(format!("{line}\n").as_bytes()).await.unwrap();
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
            server.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
        }
    };
    let ((one, two), ()) = tokio::join!(calls, serve);
    assert_eq!((one.unwrap(), two.unwrap()), (json!("a"), json!("b")));
}

#[tokio::test]
async fn an_error_is_told_with_its_reason() {
    let (mut server, client, _events) = Server::start();
    let serve = async {
        let request = server.request().await;
        let error = json!({"code": -32603, "message": "busy", "data": {"reason": "session_busy"}});
        server.say(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    };
    let (sent, ()) = tokio::join!(client.send("s", "x"), serve);
    let error = sent.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.reason()), ("busy", Some("session_busy")));
}

#[tokio::test]
async fn events_of_one_session_are_taken_up_to_its_end() {
    let (mut server, _client, mut events) = Server::start();
    let piece = |session: &str, text: &str| {
        event(
            "session.stream.chunk",
            json!({"session_id": session, "turn_id": "t", "chunk": {"answerText": text}}),
        )
    };
    server.say(piece("one", "a")).await;
    server.say(piece("two", "x")).await;
    server.say(event("some.day", json!({"session_id": "one"}))).await;
    server.say(piece("one", "b")).await;
    server.say(event("session.status", json!({"session_id": "one", "pending": false}))).await;
    let heard = events.until_ready("one").await.unwrap();
    assert_eq!(heard.len(), 4);
    assert_eq!(heard.iter().filter_map(|event| event.answer()).collect::<String>(), "ab");
    assert_eq!(heard[0].turn_id(), Some("t"));
}

#[tokio::test]
async fn a_server_that_leaves_fails_every_call_and_then_the_events() {
    let (mut server, client, mut events) = Server::start();
    server.say(event("state.changed", json!({}))).await;
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
async fn what_is_no_protocol_ends_the_connection() {
    let (mut server, client, mut events) = Server::start();
    server.says.write_all(b"\n> loaf@0.2.0 rpc\n").await.unwrap();
    assert!(matches!(events.next().await, Err(LoafError::Protocol(_))));
    assert!(matches!(client.call("x", json!({})).await, Err(LoafError::Protocol(_))));
}

#[tokio::test]
async fn events_that_nobody_reads_hold_up_the_server_until_they_are_dropped() {
    let (mut server, client, events) = Server::start();
    for _ in 0..EVENT_BACKLOG + 1 {
        server.say(event("state.changed", json!({}))).await;
    }
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call("x", json!({})).await }
    });
    let request = server.request().await;
    server.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": 1})).await;
    assert!(!call.is_finished());
    drop(events);
    assert_eq!(call.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_behind() {
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
async fn a_program_that_is_not_there_is_named() {
    let error = LoafClient::spawn(&LoafLaunch::new("/no/such/loaf")).unwrap_err();
    assert!(error.to_string().contains("/no/such/loaf"));
}
