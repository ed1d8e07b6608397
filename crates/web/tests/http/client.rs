//! A client that sends exactly what a test wants.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::server::{Server, TOKEN};
use crate::sessions::append;

pub(crate) type Client = WebSocketStream<TcpStream>;

/// The key of handshakes that are written by hand.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

impl Server {
    /// Sends a request with a body.
    pub(crate) async fn request_with_body(&self, request: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let headers =
            if headers.is_empty() { String::new() } else { format!("{}\r\n", headers.replace('\n', "\r\n")) };
        let (address, length) = (self.address, body.len());
        let text =
            format!("{line} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        stream.write_all(text.as_bytes()).await.unwrap();
        Answer::read(&mut stream).await
    }

    /// Sends a request: its first line without the version, then its headers. Adds `Host` if it has none.
    pub(crate) async fn request(&self, request: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.request_on(stream, request).await
    }

    /// Sends a request on this connection.
    pub(crate) async fn request_on(&self, mut stream: TcpStream, request: &str) -> Answer {
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let mut text = format!("{line} HTTP/1.1\r\n");
        if !headers.lines().any(|header| header.to_ascii_lowercase().starts_with("host:")) {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        for header in headers.lines() {
            text.push_str(&format!("{header}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Answer::read(&mut stream).await
    }

    /// A connection whose request is being answered: it watches the events of a session.
    pub(crate) async fn busy_connection(&self) -> TcpStream {
        append(&*self.log, &self.clock, "busy", []).await;
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head =
            "GET /api/sessions/busy/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; b"HTTP/1.1 200 OK".len()];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200 OK");
        stream
    }

    /// A connection that has sent the head of a request whose body is still to come: `{}`. The server reads the body.
    pub(crate) async fn half_sent_body(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = "POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut continues = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut continues).await.unwrap();
        stream
    }

    /// Tries a handshake with these additional headers.
    pub(crate) async fn handshake(&self, path: &str, headers: &str) -> Answer {
        self.request(&handshake(path, headers)).await
    }

    /// Opens a socket of the supr door, with the token in a header.
    pub(crate) async fn connect(&self, query: &str) -> Client {
        self.try_connect(query).await.unwrap()
    }

    pub(crate) async fn try_connect(&self, query: &str) -> Result<Client, Error> {
        self.connect_with(query, &[]).await
    }

    pub(crate) async fn connect_with(
        &self,
        query: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Client, Error> {
        let token = self.tokens.now().token.reveal().to_owned();
        let mut request = format!("ws://{}/supr/ws?{query}", self.address).into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        Ok(client_async(request, stream).await?.0)
    }
}

/// A request with a valid handshake and these additional headers.
pub(crate) fn handshake(path: &str, headers: &str) -> String {
    let upgrade = format!(
        "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: {KEY}"
    );
    format!("GET {path}\n{upgrade}\n{headers}").trim_end().to_owned()
}

/// The header with the token.
pub(crate) fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}")
}

/// The response of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Reads until the response is complete. Its status is 0 if the connection closes before.
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some(answer) = Self::parse(&text, false) {
                return answer;
            }
            match stream.read(&mut buffer).await {
                Ok(count @ 1..) => bytes.extend_from_slice(buffer.get(..count).unwrap()),
                Ok(_) | Err(_) => {
                    let nothing = Self { status: 0, headers: Vec::new(), body: String::new() };
                    return Self::parse(&text, true).unwrap_or(nothing);
                }
            }
        }
    }

    fn parse(text: &str, is_closed: bool) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let answer = Self { status, headers, body: body.to_owned() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        (is_closed || body.len() >= length).then_some(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        assert!(self.body.ends_with('\n'), "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// Asserts that the response is plain text.
    pub(crate) fn assert_text(&self, status: u16, text: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, format!("{text}\n").as_str()));
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

/// The next text message on a socket.
pub(crate) async fn text(client: &mut Client) -> String {
    client.next().await.unwrap().unwrap().into_text().unwrap().to_string()
}

/// Reads until the server closes the socket. `None` if there is no close frame.
pub(crate) async fn close(client: &mut Client) -> Option<(u16, String)> {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(frame))) => {
                return frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// The next frame on a socket.
pub(crate) async fn frame(client: &mut Client) -> Value {
    serde_json::from_str(&text(client).await).unwrap()
}

/// Reads frames until one has `member` with `value`.
pub(crate) async fn frame_with(client: &mut Client, member: &str, value: &str) -> Value {
    loop {
        let frame = frame(client).await;
        if frame[member] == value {
            return frame;
        }
    }
}

/// Reads the first frame of the supr door, after which the server is known to serve the socket.
pub(crate) async fn greeting(client: &mut Client) {
    assert_eq!(frame(client).await["type"], "agent.list");
}

/// Asserts that the server answers on this socket.
pub(crate) async fn ping(client: &mut Client) {
    client.send(Message::text(json!({"type": "ping", "id": "still here"}).to_string())).await.unwrap();
    assert_eq!(frame_with(client, "type", "pong").await["id"], "still here");
}

/// Sends a message to the session of a socket.
pub(crate) async fn send_message(client: &mut Client, content: &str) {
    let message = json!({"type": "message.send", "payload": {"content": content}});
    client.send(Message::text(message.to_string())).await.unwrap();
}
