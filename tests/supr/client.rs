//! A WebSocket client that checks every frame it receives: its shape, unique event ids, and gapless sequences.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use parlor_testkit::{Door, STEP_TIMEOUT, Supr};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::server::TOKEN;

/// The output of `future`. Panics if it takes longer than three step timeouts.
pub(crate) async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    timeout(3 * STEP_TIMEOUT, future).await.expect("the future ends before the timeout")
}

/// A connection, seen from the client's side.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    /// The last sequence number of each run, to detect gaps.
    sequences: HashMap<String, u64>,
    event_ids: HashSet<String>,
    /// The id of the last event that was received.
    pub(crate) last_event: Option<String>,
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With a close frame that has this code and reason.
    Closed(u16, String),
    /// Without a close frame.
    Dropped,
}

impl Client {
    /// Connects with the token.
    pub(crate) async fn connect(address: SocketAddr, query: &str) -> Self {
        Self::connect_or_status(address, query).await.expect("a connection")
    }

    /// Connects, or returns the HTTP status with which the server refused.
    pub(crate) async fn connect_or_status(address: SocketAddr, query: &str) -> Result<Self, StatusCode> {
        match Self::try_connect(address, query).await {
            Ok(client) => Ok(client),
            Err(Error::Http(response)) => Err(response.status()),
            Err(error) => panic!("no handshake: {error}"),
        }
    }

    /// Connects, or returns the error, also if no server listens.
    pub(crate) async fn try_connect(address: SocketAddr, query: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        Self::handshake(stream, address, query).await
    }

    /// Connects with a small receive buffer, so that the server soon notices a client that does not read.
    pub(crate) async fn connect_with_small_buffer(address: SocketAddr, query: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(address).await.unwrap();
        Self::handshake(stream, address, query).await.expect("a connection")
    }

    async fn handshake(stream: TcpStream, address: SocketAddr, query: &str) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{address}/supr/ws?{query}").into_client_request().unwrap();
        request.headers_mut().insert("Authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let upgraded = timeout(STEP_TIMEOUT, tokio_tungstenite::client_async(request, stream));
        let (socket, _) = upgraded.await.expect("a response to the handshake")?;
        Ok(Self { socket, sequences: HashMap::new(), event_ids: HashSet::new(), last_event: None })
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.send_message(Message::text(frame.to_string())).await;
    }

    /// Sends a frame, or returns the error if the connection is closed.
    pub(crate) async fn try_send(&mut self, frame: &Value) -> Result<(), Error> {
        self.socket.send(Message::text(frame.to_string())).await
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        timeout(STEP_TIMEOUT, self.socket.send(message)).await.expect("room to send").unwrap();
    }

    pub(crate) async fn send_text(&mut self, content: &str) {
        self.send(&json!({"type": "message.send", "payload": {"content": content}})).await;
    }

    /// Sends a message to the script agent.
    pub(crate) async fn send_to_script(&mut self, content: &str) {
        self.send(&json!({"type": "message.send", "payload": {"content": content, "agent_id": "script"}}))
            .await;
    }

    /// The next frame, or how the connection ended.
    pub(crate) async fn next(&mut self) -> Result<Value, Ended> {
        timeout(2 * STEP_TIMEOUT, self.next_without_timeout()).await.expect("a frame")
    }

    /// The same, without a timeout.
    pub(crate) async fn next_without_timeout(&mut self) -> Result<Value, Ended> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let frame = serde_json::from_str(text.as_str()).expect("a frame is JSON");
                    self.check_frame(&frame);
                    return Ok(frame);
                }
                Some(Ok(Message::Close(Some(close)))) => {
                    return Err(Ended::Closed(close.code.into(), close.reason.to_string()));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(_))) => panic!("the server sends texts"),
                Some(Ok(Message::Close(None)) | Err(_)) | None => return Err(Ended::Dropped),
            }
        }
    }

    fn check_frame(&mut self, frame: &Value) {
        Supr.check(frame).unwrap();
        if frame.get("event_type").is_none() {
            return;
        }
        let text = |key: &str| frame[key].as_str().unwrap().to_owned();
        assert!(self.event_ids.insert(text("event_id")), "received twice: {frame}");
        let sequence = frame["sequence"].as_u64().unwrap();
        if let Some(last) = self.sequences.insert(text("run_id"), sequence) {
            assert_eq!(sequence, last + 1, "a gap before {frame}");
        }
        self.last_event = Some(text("event_id"));
    }

    /// The next frame with this type or event type. Skips the frames before it.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await.unwrap_or_else(|ended| panic!("{kind} never came: {ended:?}"));
            if frame["type"] == kind || frame["event_type"] == kind {
                return frame;
            }
        }
    }

    /// Waits until the server has closed the connection. Skips the frames before that.
    pub(crate) async fn ended(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.next().await {
                return ended;
            }
        }
    }

    /// Sends a ping and waits for its pong.
    pub(crate) async fn ping(&mut self) {
        self.send(&json!({"type": "ping", "id": "p"})).await;
        assert_eq!(self.until("pong").await["id"], "p");
    }
}
