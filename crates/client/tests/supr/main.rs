//! Tests of the supr client with a server that the test controls.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parlor_client::supr::{
    MAX_UNCONFIRMED, MAX_UNCONFIRMED_BYTES, SuprClient, SuprError, SuprEvent, SuprFile, SuprMessage,
    SuprSettings,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as WsMessage;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// A server that accepts one connection after another.
struct Server(TcpListener);

/// The server's end of a connection.
struct Connection {
    socket: WebSocketStream<TcpStream>,
    /// From the request line of the handshake.
    path_and_query: String,
    token: String,
}

impl Server {
    async fn start() -> (Self, SuprSettings) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/supr/ws", listener.local_addr().unwrap());
        (Self(listener), SuprSettings::new(url, "secret").with_session("s 1"))
    }

    async fn accept(&self) -> Connection {
        let (stream, _) = self.0.accept().await.unwrap();
        let (mut path_and_query, mut token) = (String::new(), String::new());
        #[expect(clippy::result_large_err, reason = "the library requires this signature")]
        let record = |request: &Request, response: Response| {
            path_and_query = request.uri().to_string();
            token = request.headers()["authorization"].to_str().unwrap().to_owned();
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, record).await.unwrap();
        Connection { socket, path_and_query, token }
    }
}

impl Connection {
    async fn send(&mut self, frame: Value) {
        self.socket.send(WsMessage::text(frame.to_string())).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let WsMessage::Text(text) = self.socket.next().await.unwrap().unwrap() else { panic!("no text") };
        serde_json::from_str(text.as_str()).unwrap()
    }
}

/// Removes the random name of the client from the key of a message, and returns it.
fn take_client_name(payload: &mut Value) -> String {
    let key = payload["key"].as_str().unwrap().to_owned();
    let (client, number) = key.rsplit_once('-').unwrap();
    payload["key"] = json!(number);
    client.to_owned()
}

fn event(number: u64, kind: &str, data: Value) -> Value {
    json!({"v": "1.0", "event_id": format!("evt_{number}"), "event_type": kind,
           "timestamp": "2026-03-04T12:00:00.000Z", "sequence": number, "session_id": "s 1", "run_id": "run_1",
           "parent_run_id": null, "idempotency_key": format!("run_1_{number}"), "replay": false, "data": data})
}

async fn activity(client: &mut SuprClient) -> String {
    loop {
        if let SuprEvent::Activity(event) = client.next().await.unwrap() {
            return event.event_id;
        }
    }
}

#[tokio::test]
async fn the_session_is_in_the_address_and_the_token_is_not() {
    let (server, settings) = Server::start().await;
    assert!(!format!("{settings:?}").contains("secret"));
    let settings = SuprSettings { after: Some("evt_9".to_owned()), streams: true, ..settings };
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    assert_eq!(connection.path_and_query, "/supr/ws?session_id=s%201&after=evt_9&stream=1");
    assert_eq!(connection.token, "Bearer secret");
    assert_eq!((client.session(), client.last_event()), ("s 1", Some("evt_9")));
    connection.send(json!({"type": "agent.list", "timestamp": 1, "payload": {"agents": []}})).await;
    connection.send(json!({"what": "is this"})).await;
    connection.send(event(10, "run.started", json!({}))).await;
    assert!(matches!(client.next().await.unwrap(), SuprEvent::Typed(typed) if typed.kind == "agent.list"));
    assert!(matches!(client.next().await.unwrap(), SuprEvent::Activity(event) if event.event_id == "evt_10"));
    assert_eq!(client.last_event(), Some("evt_10"));
}

#[tokio::test]
async fn messages_files_stops_and_pings_are_encoded_as_the_protocol_says() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    let reasoning = Some("high".to_owned());
    client.send(SuprMessage { content: "hi".to_owned(), reasoning, ..SuprMessage::default() }).await.unwrap();
    let mut sent = connection.receive().await;
    let first_client = take_client_name(&mut sent["payload"]);
    assert_eq!(
        sent,
        json!({"type": "message.send", "payload": {"content": "hi", "reasoning": "high", "key": "1"}})
    );
    let file = SuprFile {
        name: "a.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        caption: None,
        base64: "aGk=".to_owned(),
    };
    client.send_files(vec![file], Some("one".to_owned())).await.unwrap();
    let mut sent = connection.receive().await;
    let second_client = take_client_name(&mut sent["payload"]);
    assert_eq!(first_client, second_client, "the name is that of the client");
    assert_eq!(
        sent,
        json!({"type": "media.send", "payload": {"caption": "one", "key": "2",
               "attachments": [{"data": "aGk=", "filename": "a.txt", "content_type": "text/plain"}]}})
    );
    client.stop(Some("run_1"), None).await.unwrap();
    assert_eq!(connection.receive().await, json!({"type": "run.stop", "payload": {"run_id": "run_1"}}));
    client.ping("p").await.unwrap();
    assert_eq!(connection.receive().await, json!({"type": "ping", "id": "p"}));
}

#[tokio::test]
async fn a_new_connection_continues_after_the_last_event_and_repeats_unconfirmed_messages() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    let mut keys = Vec::new();
    for text in ["one", "two", "three"] {
        client.send(text).await.unwrap();
        keys.push(connection.receive().await["payload"]["key"].clone());
    }
    // This confirms the second message, and so also the first.
    connection.send(event(1, "run.started", json!({"input": {"key": keys[1]}}))).await;
    assert_eq!(activity(&mut client).await, "evt_1");
    drop(connection);
    let server_side = async {
        let mut connection = server.accept().await;
        assert_eq!(connection.path_and_query, "/supr/ws?session_id=s%201&after=evt_1");
        assert_eq!(connection.receive().await["payload"], json!({"content": "three", "key": keys[2]}));
        connection.send(event(2, "run.completed", json!({}))).await;
        connection
    };
    let client_side = async {
        assert_eq!(client.next().await.unwrap(), SuprEvent::Reconnected);
        activity(&mut client).await
    };
    let (_connection, seen) = tokio::join!(server_side, client_side);
    assert_eq!(seen, "evt_2");
}

#[tokio::test]
async fn a_replaced_client_does_not_reconnect() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let close = CloseFrame { code: 4001.into(), reason: "replaced".into() };
    connection.socket.close(Some(close)).await.unwrap();
    assert!(matches!(client.unwrap().next().await, Err(SuprError::Replaced)));
}

#[tokio::test]
async fn a_wrong_token_is_an_error_and_a_full_server_is_retried() {
    let (server, settings) = Server::start().await;
    let answer = async |response: &str| {
        let (mut stream, _) = server.0.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        stream.write_all(response.as_bytes()).await.unwrap();
    };
    let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 13\r\n\r\nunauthorized\n";
    let (client, ()) = tokio::join!(SuprClient::connect(settings.clone()), answer(refused));
    assert!(matches!(client, Err(SuprError::Refused { status: 401, .. })));
    let (client, connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    drop(connection);
    let full = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let server_side = async {
        answer(full).await;
        server.accept().await
    };
    let mut client = client.unwrap();
    let (event, _connection) = tokio::join!(client.next(), server_side);
    assert_eq!(event.unwrap(), SuprEvent::Reconnected);
}

#[tokio::test]
async fn the_client_fails_after_its_retries() {
    let (server, settings) = Server::start().await;
    let settings = SuprSettings { retries: 1, ..settings };
    let (client, connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    drop((server, connection));
    assert!(matches!(client.unwrap().next().await, Err(SuprError::Unreachable(_))));
}

#[tokio::test]
async fn the_client_reconnects_when_the_server_is_silent() {
    let (server, settings) = Server::start().await;
    let settings = SuprSettings { silence: Duration::from_millis(50), ..settings };
    let (client, _silent) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    let (event, _connection) = tokio::join!(client.next(), server.accept());
    assert_eq!(event.unwrap(), SuprEvent::Reconnected);
}

#[tokio::test]
async fn the_number_of_unconfirmed_messages_is_limited() {
    let (server, settings) = Server::start().await;
    let (client, _connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    for _ in 0..MAX_UNCONFIRMED {
        client.send("more").await.unwrap();
    }
    assert!(matches!(client.send("one more").await, Err(SuprError::Backlog { limit: MAX_UNCONFIRMED })));
}

#[tokio::test]
async fn refused_messages_are_not_repeated() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    let mut keys = Vec::new();
    for text in ["", "to an unknown agent", "lost"] {
        client.send(text).await.unwrap();
        keys.push(connection.receive().await["payload"]["key"].clone());
    }
    connection.send(json!({"type": "error", "payload": {"code": "empty_content", "key": keys[0]}})).await;
    connection.send(event(1, "error.raised", json!({"input": {"key": keys[1]}}))).await;
    assert_eq!(activity(&mut client).await, "evt_1");
    drop(connection);
    let (event, mut connection) = tokio::join!(client.next(), server.accept());
    assert_eq!(event.unwrap(), SuprEvent::Reconnected);
    assert_eq!(connection.receive().await["payload"], json!({"content": "lost", "key": keys[2]}));
}

#[tokio::test]
async fn the_size_of_unconfirmed_messages_is_limited() {
    let (server, settings) = Server::start().await;
    let (client, connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    drop(connection);
    let mut client = client.unwrap();
    let huge = "x".repeat(MAX_UNCONFIRMED_BYTES);
    client.send(huge.as_str()).await.unwrap();
    assert!(matches!(client.send("one more").await, Err(SuprError::Backlog { limit: 1 })));
}
