//! A client of the exec door over a WebSocket, which speaks as the codex CLI does.

use std::net::SocketAddr;

use futures_util::{FutureExt, SinkExt, StreamExt};
use parlor_doors::lines::{Line, Lines};
use parlor_testkit::{Peer, STEP_TIMEOUT};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

pub(crate) struct Client {
    socket: WebSocketStream<TcpStream>,
    next_id: u64,
    /// Notifications that came before an awaited answer.
    pub(crate) events: Vec<Value>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, None).await.unwrap()
    }

    /// Connects with a bearer token. Returns the status of a refusal, and its text.
    pub(crate) async fn connect_with(
        address: SocketAddr,
        token: Option<&str>,
    ) -> Result<Self, (StatusCode, String)> {
        let mut request = format!("ws://{address}/?x=1").into_client_request().unwrap();
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        match timeout(STEP_TIMEOUT, client_async(request, stream)).await.unwrap() {
            Ok((socket, _)) => Ok(Self { socket, next_id: 1, events: Vec::new() }),
            Err(Error::Http(response)) => {
                let text = response.body().clone().unwrap_or_default();
                Err((response.status(), String::from_utf8(text).unwrap()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Sends a text in frames of a size.
    pub(crate) async fn send_fragments(&mut self, text: &str, size: usize) {
        let mut pieces = text.as_bytes().chunks(size).peekable();
        let mut kind = Data::Text;
        while let Some(piece) = pieces.next() {
            let frame = Frame::message(piece.to_vec(), OpCode::Data(kind), pieces.peek().is_none());
            self.socket.send(Message::Frame(frame)).await.unwrap();
            kind = Data::Continue;
        }
    }

    pub(crate) async fn send_binary(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.unwrap();
    }

    /// Sends a request, and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// The next message of the server.
    pub(crate) async fn frame(&mut self) -> Value {
        loop {
            match timeout(STEP_TIMEOUT, self.socket.next()).await.expect("a message") {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Ping(_))) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A message of the server that has arrived already.
    pub(crate) async fn frame_if_any(&mut self) -> Option<Value> {
        match self.socket.next().now_or_never()? {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).ok(),
            _ => None,
        }
    }

    /// The code of the close frame that comes next.
    pub(crate) async fn close_code(&mut self) -> Option<u16> {
        loop {
            match timeout(STEP_TIMEOUT, self.socket.next()).await.expect("a close frame") {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The result of a request, or the code of its error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, i64> {
        let id = self.request(method, params).await;
        loop {
            let mut frame = self.frame().await;
            if frame["id"] == id {
                return match frame["error"]["code"].as_i64() {
                    Some(code) => Err(code),
                    None => Ok(frame["result"].take()),
                };
            }
            assert_eq!(frame.get("id"), None, "an answer to nothing: {frame}");
            self.events.push(frame);
        }
    }

    /// The handshake. Returns the session, or the code of the refusal.
    pub(crate) async fn open(&mut self, resume: Option<&str>) -> Result<String, i64> {
        let params = json!({"clientName": "codex-environment", "resumeSessionId": resume});
        let opened = self.call("initialize", params).await?;
        assert!(opened["environmentInfo"]["shell"]["path"].is_string(), "{opened}");
        self.send_text(r#"{"method":"initialized","params":{}}"#).await;
        Ok(opened["sessionId"].as_str().unwrap().to_owned())
    }

    /// Starts a shell whose input is a pipe.
    pub(crate) async fn start(&mut self, process: &str, script: &str) {
        let params = json!({
            "processId": process, "argv": ["sh", "-c", script], "cwd": "file:///",
            "env": {"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": true,
        });
        self.call("process/start", params).await.unwrap();
    }

    /// The retained output of a process behind the event `after`, once it ends with `text`.
    pub(crate) async fn output(&mut self, process: &str, after: u64, text: &str) -> String {
        let mut after = after;
        let mut shown = String::new();
        while !shown.ends_with(text) {
            let params = json!({"processId": process, "afterSeq": after, "waitMs": 60_000});
            let page = self.call("process/read", params).await.unwrap();
            for chunk in page["chunks"].as_array().unwrap() {
                after = chunk["seq"].as_u64().unwrap();
                shown.push_str(&decode(chunk));
            }
        }
        shown
    }
}

/// The bytes of a chunk, which are text here.
pub(crate) fn decode(chunk: &Value) -> String {
    let bytes = base64_simd::STANDARD.decode_to_vec(chunk["chunk"].as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A connection as a transcript's peer: each line is one message.
pub(crate) struct TranscriptPeer {
    address: SocketAddr,
    client: Option<Client>,
    lines: Lines,
}

impl TranscriptPeer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, client: None, lines: Lines::new(usize::MAX) }
    }

    async fn client(&mut self) -> &mut Client {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.address).await);
        }
        self.client.as_mut().unwrap()
    }
}

impl Peer for TranscriptPeer {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.lines.push(bytes);
        let mut messages = Vec::new();
        while let Some(Line::Whole(line)) = self.lines.next_line() {
            messages.push(String::from_utf8(line.to_vec()).unwrap());
        }
        for message in messages {
            self.client().await.send_text(&message).await;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), String> {
        self.client = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        match &mut self.client {
            Some(client) => Some(client.frame().await.to_string().into_bytes()),
            None => None,
        }
    }

    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
