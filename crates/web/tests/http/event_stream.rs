//! The events of a session as server-sent events.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::time::Duration;

use parlor_transport::AllowLocal;
use parlor_vocab::{SessionEvent, UserInput};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::bearer;
use crate::connections::wait_for_connections;
use crate::server::Server;
use crate::sessions::{append, run, send};

/// A client of one event stream.
struct EventClient {
    stream: TcpStream,
    /// What the server has sent so far and the client has not looked at: chunks with their sizes.
    raw: Vec<u8>,
    /// The content of these chunks.
    text: String,
}

/// A message of a stream. Comments have no data.
#[derive(Debug, Default)]
struct Message {
    id: Option<u64>,
    event: Option<String>,
    data: Value,
    comment: Option<String>,
}

impl EventClient {
    /// Asks for the events of `path` with these additional headers. The server must accept.
    async fn open(server: &Server, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        for header in ["content-type: text/event-stream\r\n", "cache-control: no-store\r\n"] {
            assert!(head.contains(header), "{head}");
        }
        Self { stream, raw: Vec::new(), text: String::new() }
    }

    /// The next message or comment; `None` if the server has ended the stream properly.
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some((lines, rest)) = self.text.split_once("\n\n") {
                let message = parse(lines);
                self.text = rest.to_owned();
                return Some(message);
            }
            if !self.read_chunk().await {
                assert_eq!(self.text, "", "the stream ends inside a message");
                return None;
            }
        }
    }

    /// Reads one more chunk; false if it is the last one, which is empty.
    async fn read_chunk(&mut self) -> bool {
        loop {
            if let Some(end) = self.raw.windows(2).position(|bytes| bytes == b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..end]).unwrap(), 16).unwrap();
                let (start, end) = (end + 2, end + 2 + size);
                if self.raw.len() >= end + 2 {
                    self.text.push_str(std::str::from_utf8(&self.raw[start..end]).unwrap());
                    self.raw.drain(..end + 2);
                    return size > 0;
                }
            }
            assert_ne!(self.stream.read_buf(&mut self.raw).await.unwrap(), 0, "the connection broke off");
        }
    }

    /// The next event of the log.
    async fn event(&mut self) -> (u64, Value) {
        loop {
            let message = self.next().await.unwrap();
            if let Some(id) = message.id {
                assert_eq!(message.event, None);
                return (id, message.data);
            }
        }
    }
}

fn parse(lines: &str) -> Message {
    let mut message = Message::default();
    for line in lines.lines() {
        match line.split_once(": ").unwrap() {
            ("id", id) => message.id = Some(id.parse().unwrap()),
            ("event", event) => message.event = Some(event.to_owned()),
            ("data", data) => message.data = serde_json::from_str(data).unwrap(),
            ("", comment) => message.comment = Some(comment.to_owned()),
            other => panic!("{other:?}"),
        }
    }
    message
}

fn input(text: &str) -> UserInput {
    UserInput { text: text.to_owned(), ..UserInput::default() }
}

#[tokio::test]
async fn a_stream_has_the_events_of_the_page_and_continues_after_any_of_them() {
    let server = Server::start().await;
    run(&server.sessions, "s", input("go")).await;
    let page = server.request("GET /api/sessions/s/events").await.json();
    let page = page["events"].as_array().unwrap();
    let mut client = EventClient::open(&server, "/api/sessions/s/events", "").await;
    let mut events = Vec::new();
    for frame in page {
        let message = client.next().await.unwrap();
        assert_eq!(&message.data, frame, "no delta repeats a text of the past");
        events.push((message.id.unwrap(), message.data));
    }
    assert!(events.is_sorted_by(|(one, _), (next, _)| one < next), "{events:?}");
    for (index, (id, _)) in events.iter().enumerate().take(events.len() - 1) {
        let following = &events[index + 1];
        let header = format!("Last-Event-ID: {id}\r\n");
        let mut by_header = EventClient::open(&server, "/api/sessions/s/events", &header).await;
        assert_eq!(&by_header.event().await, following);
        let mut by_query =
            EventClient::open(&server, &format!("/api/sessions/s/events?after={id}"), "").await;
        assert_eq!(&by_query.event().await, following);
        // A browser repeats its query when it reconnects.
        let mut by_both = EventClient::open(&server, "/api/sessions/s/events?after=0", &header).await;
        assert_eq!(&by_both.event().await, following);
    }
    // A number that the session never had: it is another session with the same id.
    let mut unknown = EventClient::open(&server, "/api/sessions/s/events", "Last-Event-ID: 999\r\n").await;
    assert_eq!(unknown.event().await, events[0]);
}

#[tokio::test]
async fn live_text_comes_as_deltas_without_an_id() {
    let server = Server::start().await;
    let mut client = EventClient::open(&server, "/api/sessions/c/events", "").await;
    send(&server.sessions, "c", input("go")).await;
    let (mut text, mut last) = (String::new(), 0);
    let completed = loop {
        let message = client.next().await.unwrap();
        match message.event.as_deref() {
            Some("delta") => {
                assert_eq!((message.id, &message.data["type"]), (None, &"message.delta".into()));
                text.push_str(message.data["payload"]["text"].as_str().unwrap());
            }
            _ => {
                assert!(message.id.unwrap() > last, "{message:?}");
                last = message.id.unwrap();
            }
        }
        if message.data["event_type"] == "message.completed" {
            break message.data;
        }
    };
    assert_eq!((text.as_str(), &completed["data"]["text"]), ("Hello.", &"Hello.".into()));
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_the_reason() {
    let server = Server::with(|options| options.settings.allow_local = AllowLocal::Token).await;
    let stream = |headers: &str| format!("GET /api/sessions/c/events\nAccept: text/event-stream\n{headers}");
    for wrong in ["x", "-1", "evt_1", "1.5"] {
        let answer = server.request(&stream(&format!("{}\nLast-Event-ID: {wrong}", bearer()))).await;
        answer
            .assert_text(400, "Last-Event-ID is the number of an event: the id of a message of this stream");
    }
    let path = stream(&bearer()).replace("/c/events", "/c/events?after=x");
    server.request(&path).await.assert_text(400, "before, limit and after are whole numbers");
    let path = stream(&bearer()).replace("/c/", "/nobody/");
    server.request(&path).await.assert_text(404, "session not found");
    assert_eq!(server.request(&stream("Last-Event-ID: 1")).await.status, 401, "a stream needs the token too");
    let wrong_host = format!("Host: elsewhere.example\n{}", bearer());
    assert_eq!(server.request(&stream(&wrong_host)).await.status, 403);
}

#[tokio::test]
async fn a_page_of_another_site_gets_no_stream() {
    let server = Server::start().await;
    let request = "GET /api/sessions/c/events\nAccept: text/event-stream\nOrigin: http://elsewhere.example";
    assert_eq!(server.request(request).await.status, 401);
}

#[tokio::test]
async fn streams_count_as_connections_until_their_clients_leave() {
    let server = Server::with(|options| options.settings.max_connections = 1).await;
    let client = EventClient::open(&server, "/api/sessions/c/events", "").await;
    let request = "GET /api/sessions/c/events\nAccept: text/event-stream";
    server.request(request).await.assert_text(503, "too many connections");
    assert!(server.try_connect("session_id=c").await.is_err());
    assert_eq!(server.request("GET /api/sessions/c/events").await.status, 200, "a page is no stream");
    drop(client);
    wait_for_connections(&server, 0).await;
    EventClient::open(&server, "/api/sessions/c/events", "").await;
}

#[tokio::test]
async fn a_silent_stream_sends_comments_and_outlives_other_connections() {
    let server = Server::with(|options| {
        options.settings.limits.stream_keep_alive = Duration::from_millis(5);
        options.settings.limits.connection_life = Duration::from_millis(1);
    })
    .await;
    let mut client = EventClient::open(&server, "/api/sessions/b/events", "").await;
    for _ in 0..10 {
        assert_eq!(client.next().await.unwrap().comment.as_deref(), Some("keep-alive"));
    }
}

#[tokio::test]
async fn a_stopping_server_ends_its_streams() {
    let server = Server::start().await;
    run(&server.sessions, "s", input("go")).await;
    let mut client = EventClient::open(&server, "/api/sessions/s/events", "").await;
    client.event().await;
    server.stop.cancel();
    let mut last = Value::Null;
    while let Some(message) = client.next().await {
        last = message.data;
    }
    assert_eq!(last["event_type"], "run.completed", "the stream sends what is in the log before it ends");
}

#[tokio::test]
async fn an_eviction_ends_streams() {
    let server = Server::with(|options| options.configured.token = None).await;
    let token = server.tokens.now().token.reveal().to_owned();
    let header = format!("Authorization: Bearer {token}\r\n");
    let mut client = EventClient::open(&server, "/api/sessions/c/events", &header).await;
    let evicted =
        server.request_with_body(&format!("POST /api/supr/token?evict=1\n{}", header.trim_end()), "").await;
    assert_eq!(evicted.status, 200, "{evicted:?}");
    assert!(client.next().await.is_none());
}

#[tokio::test]
async fn the_events_of_a_client_that_reads_nothing_are_counted_until_it_is_disconnected() {
    const TITLE_BYTES: usize = 4 << 20;
    let server =
        Server::with(|options| options.settings.limits.write_wait = Duration::from_millis(200)).await;
    let events = (0..4).map(|_| SessionEvent::Renamed { title: "x".repeat(TITLE_BYTES) });
    append(&*server.log, &server.clock, "large", events).await;
    let mut client = EventClient::open(&server, "/api/sessions/large/events", "").await;
    while client.raw.is_empty() {
        client.stream.read_buf(&mut client.raw).await.unwrap();
    }
    let used = server.memory.used();
    assert!(used > 0 && used < 2 * TITLE_BYTES, "only one large event is in memory: {used}");
    wait_for_connections(&server, 0).await;
    assert_eq!(server.memory.used(), 0);
    // The connection may be reset.
    let _ = client.stream.read_to_end(&mut client.raw).await;
    assert!(client.raw.len() < 4 * TITLE_BYTES, "all events arrived");
}

#[tokio::test]
async fn events_that_a_stream_has_read_ahead_are_counted() {
    const TITLE_BYTES: usize = 512 << 10;
    let server = Server::start().await;
    let events = (0..32).map(|_| SessionEvent::Renamed { title: "x".repeat(TITLE_BYTES) });
    append(&*server.log, &server.clock, "large", events).await;
    let mut client = EventClient::open(&server, "/api/sessions/large/events", "").await;
    while client.raw.is_empty() {
        client.stream.read_buf(&mut client.raw).await.unwrap();
    }
    let used = server.memory.used();
    assert!(used > 4 * TITLE_BYTES, "the events that were read with the first one count too: {used}");
}

#[tokio::test]
async fn a_client_that_reads_gets_large_events_one_by_one() {
    const TITLE_BYTES: usize = 1 << 20;
    let server = Server::start().await;
    let events = (0..4).map(|_| SessionEvent::Renamed { title: "x".repeat(TITLE_BYTES) });
    append(&*server.log, &server.clock, "large", events).await;
    let mut client = EventClient::open(&server, "/api/sessions/large/events", "").await;
    for seq in 2..6 {
        let (id, event) = client.event().await;
        assert_eq!((id, event["payload"]["title"].as_str().unwrap().len()), (seq, TITLE_BYTES));
    }
}
