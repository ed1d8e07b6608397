//! A client of the supr door, and the server that it is connected to.

use std::net::SocketAddr;

use async_trait::async_trait;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::client::Client;
use crate::frames::{Frames, Shown, text};
use crate::home::Home;
use crate::server::{Server, TOKEN};
use crate::terminal::TIMEOUT;

/// What a frame shows.
pub(crate) fn read(frame: &Value) -> Option<Shown> {
    let kind = frame.get("event_type").or(frame.get("type"))?.as_str()?;
    match kind {
        "run.started" => Some(Shown::Message(text(&frame["data"]["input"]["text"]))),
        "message.received" => Some(Shown::Message(text(&frame["data"]["text"]))),
        "message.delta" => Some(Shown::Text(text(&frame["payload"]["text"]))),
        "run.completed" | "run.failed" => Some(Shown::End),
        _ => None,
    }
}

/// Starts `parlor serve` on a state folder.
pub(crate) fn serve(home: &Home) -> Server {
    std::fs::create_dir_all(home.state()).unwrap();
    let mut command = crate::server::command(&home.state());
    command.current_dir(home.folder());
    for (name, value) in home.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Server::spawn(command, &home.state()).unwrap()
}

/// A WebSocket connection.
pub(crate) struct Socket {
    sink: SplitSink<WebSocketStream<TcpStream>, Message>,
    pub(crate) frames: Frames,
}

impl Socket {
    /// Connects to a session, and waits until the server has accepted the connection.
    pub(crate) async fn connect(address: SocketAddr, query: &str) -> Self {
        let mut request = format!("ws://{address}/supr/ws?{query}").into_client_request().unwrap();
        request.headers_mut().insert("Authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let connected = async {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio_tungstenite::client_async(request, stream).await.unwrap().0
        };
        let (sink, mut stream) = timeout(TIMEOUT, connected).await.expect("a connection").split();
        let (sender, mut frames) = Frames::new(read);
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                if let Message::Text(text) = message {
                    sender.push(serde_json::from_str(text.as_str()).expect("a frame is JSON"));
                }
            }
        });
        frames.until("agent.list", |frame| frame["type"] == "agent.list").await;
        Self { sink, frames }
    }

    /// Sends a frame. Returns false if the connection has ended.
    pub(crate) async fn send(&mut self, kind: &str, payload: Value) -> bool {
        let frame = json!({"type": kind, "payload": payload});
        let sent = timeout(TIMEOUT, self.sink.send(Message::text(frame.to_string()))).await;
        sent.expect("the server reads").is_ok()
    }
}

/// A client with a server of its own.
pub(crate) struct Supr {
    pub(crate) socket: Socket,
    _server: Server,
}

impl Supr {
    pub(crate) async fn start(home: &Home, session: &str) -> Self {
        let server = serve(home);
        // `after=`: otherwise the client could miss what happens until the server watches the session.
        let socket = Socket::connect(server.http, &format!("session_id={session}&stream=1&after=")).await;
        Self { socket, _server: server }
    }

    /// Joins a session in which a message was answered.
    pub(crate) async fn join(home: &Home, session: &str) -> Self {
        let mut client = Self::start(home, session).await;
        client.socket.frames.sees_end().await;
        client
    }
}

#[async_trait]
impl Client for Supr {
    async fn send(&mut self, text: &str) {
        assert!(self.socket.send("message.send", json!({"content": text})).await);
    }

    async fn stop(&mut self) {
        assert!(self.socket.send("run.stop", json!({})).await);
    }

    async fn steer(&mut self, text: &str) {
        assert!(self.socket.send("message.send", json!({"content": text, "when_busy": "steer"})).await);
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.socket.frames
    }
}
