//! The client of the supr dialect, before a server that does what a test says.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

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

/// A server that takes connections one after another.
struct Server(TcpListener);

/// One of them, from the server's side.
struct Connection {
    socket: WebSocketStream<TcpStream>,
    /// The path and query of its handshake.
    asked: String,
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
        let (mut asked, mut token) = (String::new(), String::new());
        #[expect(clippy::result_large_err, reason = "the library asks for this form")]
        let note = |request: &Request, response: Response| {
            asked = request.uri().to_string();
            token = request.headers()["authorization"].to_str().unwrap().to_owned();
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, note).await.unwrap();
        Connection { socket, asked, token }
    }
}

impl Connection {
    async fn say(&mut self, frame: Value) {
        self.socket.send(WsMessage::text(frame.to_string())).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let WsMessage::Text(text) = self.socket.next().await.unwrap().unwrap() else { panic!("no text") };
        serde_json::from_str(text.as_str()).unwrap()
    }
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
async fn a_session_is_named_and_the_token_is_no_part_of_the_address() {
    let (server, settings) = Server::start().await;
    assert!(!format!("{settings:?}").contains("secret"));
    let settings = SuprSettings { after: Some("evt_9".to_owned()), streams: true, ..settings };
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    assert_eq!(connection.asked, "/supr/ws?session_id=s%201&after=evt_9&stream=1");
    assert_eq!(connection.token, "Bearer secret");
    assert_eq!((client.session(), client.last_event()), ("s 1", Some("evt_9")));
    connection.say(json!({"type": "agent.list", "timestamp": 1, "payload": {"agents": []}})).await;
    connection.say(json!({"what": "is this"})).await;
    connection.say(event(10, "run.started", json!({}))).await;
    assert!(matches!(client.next().await.unwrap(), SuprEvent::Typed(typed) if typed.kind == "agent.list"));
    assert!(matches!(client.next().await.unwrap(), SuprEvent::Activity(event) if event.event_id == "evt_10"));
    assert_eq!(client.last_event(), Some("evt_10"));
}

#[tokio::test]
async fn messages_files_stops_and_pings_are_spelled_as_the_protocol_has_them() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    let reasoning = Some("high".to_owned());
    client.send(SuprMessage { content: "hi".to_owned(), reasoning, ..SuprMessage::default() }).await.unwrap();
    assert_eq!(
        connection.hear().await,
        json!({"type": "message.send", "payload": {"content": "hi", "reasoning": "high", "key": "s 1-1"}})
    );
    let file = SuprFile {
        name: "a.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        caption: None,
        base64: "aGk=".to_owned(),
    };
    client.send_files(vec![file], Some("one".to_owned())).await.unwrap();
    assert_eq!(
        connection.hear().await,
        json!({"type": "media.send", "payload": {"caption": "one", "key": "s 1-2",
               "attachments": [{"data": "aGk=", "filename": "a.txt", "content_type": "text/plain"}]}})
    );
    client.stop(Some("run_1"), None).await.unwrap();
    assert_eq!(connection.hear().await, json!({"type": "run.stop", "payload": {"run_id": "run_1"}}));
    client.ping("p").await.unwrap();
    assert_eq!(connection.hear().await, json!({"type": "ping", "id": "p"}));
}

#[tokio::test]
async fn a_lost_connection_goes_on_after_the_last_event_and_sends_again_what_may_be_lost() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    for text in ["one", "two", "three"] {
        client.send(text).await.unwrap();
        connection.hear().await;
    }
    // The second has arrived, hence the first too.
    connection.say(event(1, "run.started", json!({"input": {"key": "s 1-2"}}))).await;
    assert_eq!(activity(&mut client).await, "evt_1");
    drop(connection);
    let server_goes_on = async {
        let mut connection = server.accept().await;
        assert_eq!(connection.asked, "/supr/ws?session_id=s%201&after=evt_1");
        assert_eq!(connection.hear().await["payload"], json!({"content": "three", "key": "s 1-3"}));
        connection.say(event(2, "run.completed", json!({}))).await;
        connection
    };
    let client_goes_on = async {
        assert_eq!(client.next().await.unwrap(), SuprEvent::Reconnected);
        activity(&mut client).await
    };
    let (_connection, seen) = tokio::join!(server_goes_on, client_goes_on);
    assert_eq!(seen, "evt_2");
}

#[tokio::test]
async fn who_was_replaced_does_not_come_back() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let goodbye = CloseFrame { code: 4001.into(), reason: "replaced".into() };
    connection.socket.close(Some(goodbye)).await.unwrap();
    assert!(matches!(client.unwrap().next().await, Err(SuprError::Replaced)));
}

#[tokio::test]
async fn a_wrong_token_is_said_at_once_and_a_full_server_is_tried_again() {
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
    let server_goes_on = async {
        answer(full).await;
        server.accept().await
    };
    let mut client = client.unwrap();
    let (heard, _connection) = tokio::join!(client.next(), server_goes_on);
    assert_eq!(heard.unwrap(), SuprEvent::Reconnected);
}

#[tokio::test]
async fn a_server_that_is_gone_for_good_is_given_up() {
    let (server, settings) = Server::start().await;
    let settings = SuprSettings { retries: 1, ..settings };
    let (client, connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    drop((server, connection));
    assert!(matches!(client.unwrap().next().await, Err(SuprError::Unreachable(_))));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left() {
    let (server, settings) = Server::start().await;
    let settings = SuprSettings { silence: Duration::from_millis(50), ..settings };
    let (client, _silent) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    let (heard, _connection) = tokio::join!(client.next(), server.accept());
    assert_eq!(heard.unwrap(), SuprEvent::Reconnected);
}

#[tokio::test]
async fn what_is_on_its_way_is_bounded() {
    let (server, settings) = Server::start().await;
    let (client, _connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    for _ in 0..MAX_UNCONFIRMED {
        client.send("more").await.unwrap();
    }
    assert!(matches!(client.send("one more").await, Err(SuprError::Backlog { limit: MAX_UNCONFIRMED })));
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let (server, settings) = Server::start().await;
    let (client, mut connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    let mut client = client.unwrap();
    for text in ["", "to nobody", "lost"] {
        client.send(text).await.unwrap();
    }
    connection.say(json!({"type": "error", "payload": {"code": "empty_content", "key": "s 1-1"}})).await;
    connection.say(event(1, "error.raised", json!({"input": {"key": "s 1-2"}}))).await;
    assert_eq!(activity(&mut client).await, "evt_1");
    drop(connection);
    let (heard, mut connection) = tokio::join!(client.next(), server.accept());
    assert_eq!(heard.unwrap(), SuprEvent::Reconnected);
    assert_eq!(connection.hear().await["payload"], json!({"content": "lost", "key": "s 1-3"}));
}

#[tokio::test]
async fn what_is_on_its_way_is_bounded_in_bytes() {
    let (server, settings) = Server::start().await;
    let (client, connection) = tokio::join!(SuprClient::connect(settings), server.accept());
    // Nobody is there to read it.
    drop(connection);
    let mut client = client.unwrap();
    let huge = "x".repeat(MAX_UNCONFIRMED_BYTES);
    client.send(huge.as_str()).await.unwrap();
    assert!(matches!(client.send("one more").await, Err(SuprError::Backlog { limit: 1 })));
}
