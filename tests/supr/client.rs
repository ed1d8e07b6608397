//! A WebSocket client that checks what holds for every frame.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use parlor_testkit::{Door, PATIENCE, Supr};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::server::TOKEN;

/// What comes of `future`, which takes long only if something is wrong.
pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    timeout(3 * PATIENCE, future).await.expect("it happens in time")
}

/// A connection, seen from the client's side.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    /// What was told of each run, to see gaps.
    sequences: HashMap<String, u64>,
    event_ids: HashSet<String>,
    /// The last event that came.
    pub(crate) last_event: Option<String>,
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this code and this reason.
    Closed(u16, String),
    /// Without a word.
    Dropped,
}

impl Client {
    /// Connects as a client that knows the token.
    pub(crate) async fn connect(address: SocketAddr, query: &str) -> Self {
        Self::try_connect(address, query).await.expect("a connection")
    }

    /// Connects, or gives the status of the answer.
    pub(crate) async fn try_connect(address: SocketAddr, query: &str) -> Result<Self, StatusCode> {
        match Self::if_served(address, query).await {
            Ok(client) => Ok(client),
            Err(Error::Http(response)) => Err(response.status()),
            Err(error) => panic!("no handshake: {error}"),
        }
    }

    /// Connects, if there is somebody.
    pub(crate) async fn if_served(address: SocketAddr, query: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        Self::on(stream, address, query).await
    }

    /// Connects with little room for what is not read.
    pub(crate) async fn narrow(address: SocketAddr, query: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(address).await.unwrap();
        Self::on(stream, address, query).await.expect("a connection")
    }

    async fn on(stream: TcpStream, address: SocketAddr, query: &str) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{address}/supr/ws?{query}").into_client_request().unwrap();
        request.headers_mut().insert("Authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let shaken = timeout(PATIENCE, tokio_tungstenite::client_async(request, stream));
        let (socket, _) = shaken.await.expect("an answer to the handshake")?;
        Ok(Self { socket, sequences: HashMap::new(), event_ids: HashSet::new(), last_event: None })
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.send_message(Message::text(frame.to_string())).await;
    }

    /// Sends, if there is still somebody.
    pub(crate) async fn try_send(&mut self, frame: &Value) -> Result<(), Error> {
        self.socket.send(Message::text(frame.to_string())).await
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.expect("room to send").unwrap();
    }

    pub(crate) async fn say(&mut self, content: &str) {
        self.send(&json!({"type": "message.send", "payload": {"content": content}})).await;
    }

    /// As the script agent.
    pub(crate) async fn say_to_script(&mut self, content: &str) {
        self.send(&json!({"type": "message.send", "payload": {"content": content, "agent_id": "script"}}))
            .await;
    }

    /// The next frame, or how the connection ended.
    pub(crate) async fn next(&mut self) -> Result<Value, Ended> {
        timeout(2 * PATIENCE, self.next_ever()).await.expect("a frame")
    }

    /// The same, for as long as it takes.
    pub(crate) async fn next_ever(&mut self) -> Result<Value, Ended> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let frame = serde_json::from_str(text.as_str()).expect("a frame is JSON");
                    self.look_at(&frame);
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

    fn look_at(&mut self, frame: &Value) {
        Supr.check(frame).unwrap();
        if frame.get("event_type").is_none() {
            return;
        }
        let text = |member: &str| frame[member].as_str().unwrap().to_owned();
        assert!(self.event_ids.insert(text("event_id")), "told twice: {frame}");
        let sequence = frame["sequence"].as_u64().unwrap();
        if let Some(last) = self.sequences.insert(text("run_id"), sequence) {
            assert_eq!(sequence, last + 1, "a gap before {frame}");
        }
        self.last_event = Some(text("event_id"));
    }

    /// The next frame that is of this type or event type; those before it are let go.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await.unwrap_or_else(|ended| panic!("{kind} never came: {ended:?}"));
            if frame["type"] == kind || frame["event_type"] == kind {
                return frame;
            }
        }
    }

    /// Waits until the server has ended the connection; what it sends before that is let go.
    pub(crate) async fn ended(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.next().await {
                return ended;
            }
        }
    }

    /// Whether the server answers.
    pub(crate) async fn ping(&mut self) {
        self.send(&json!({"type": "ping", "id": "p"})).await;
        assert_eq!(self.until("pong").await["id"], "p");
    }
}
