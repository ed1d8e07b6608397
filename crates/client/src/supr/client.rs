//! The supr client: it sends messages to one session and receives the session's events, across any number of connections.

use std::collections::VecDeque;

use futures_util::{SinkExt, StreamExt};
use parlor_doors::supr::wire::ServerFrame;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use super::dial::{Socket, dial, pause};
use super::unconfirmed::UnconfirmedMessages;
use super::{Activity, SuprError, SuprSettings, Typed};

/// The close code for a connection whose session has a newer connection.
const REPLACED_CLOSE_CODE: u16 = 4001;

/// A message to an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuprMessage {
    /// The text.
    pub content: String,
    /// The id of the agent that is to answer; the server's default if None.
    pub agent: Option<String>,
    /// The model that the agent is to use; the agent's own if None.
    pub model: Option<String>,
    /// How much the model is to reason: `off`, `low`, `medium`, `high`, `xhigh` or `adaptive`.
    pub reasoning: Option<String>,
}

impl From<&str> for SuprMessage {
    fn from(content: &str) -> Self {
        Self { content: content.to_owned(), ..Self::default() }
    }
}

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuprFile {
    /// The file name, without a path.
    pub name: String,
    /// The media type, such as `image/png`.
    pub content_type: String,
    /// A text that goes with this file.
    pub caption: Option<String>,
    /// The content, encoded as base64.
    pub base64: String,
}

/// What [`SuprClient::next`] returns.
#[derive(Clone, Debug, PartialEq)]
pub enum SuprEvent {
    /// An event of the session. Each is returned once and in order, even if the connection is lost in between.
    Activity(Box<Activity>),
    /// A typed frame: `agent.list` on each connection, `pong`, `error`, `media.create`.
    Typed(Typed),
    /// The connection was lost, and a new one is open.
    Reconnected,
}

/// A client of one session.
pub struct SuprClient {
    settings: SuprSettings,
    session: String,
    socket: Option<Socket>,
    /// The id of the last event that `next` has returned.
    last_event: Option<String>,
    unconfirmed: UnconfirmedMessages,
    /// What was received and not returned yet.
    received: VecDeque<SuprEvent>,
}

impl SuprClient {
    /// Opens the first connection. Unlike a lost connection, a first one that fails is not tried again.
    pub async fn connect(settings: SuprSettings) -> Result<Self, SuprError> {
        let session = settings.session.clone().unwrap_or_else(new_session);
        let socket = dial(&settings, &session, settings.after.as_deref()).await?;
        let last_event = settings.after.clone();
        let (unconfirmed, received) = (UnconfirmedMessages::new(random_name()), VecDeque::new());
        Ok(Self { settings, session, socket: Some(socket), last_event, unconfirmed, received })
    }

    /// The session's name, which is random if the settings have none.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The id of the last event that [`next`](Self::next) has returned. With it as [`SuprSettings::after`], a later client
    /// continues from there.
    pub fn last_event(&self) -> Option<&str> {
        self.last_event.as_deref()
    }

    /// Sends a message. It starts one run, even if the connection is lost meanwhile.
    pub async fn send(&mut self, message: impl Into<SuprMessage>) -> Result<(), SuprError> {
        let SuprMessage { content, agent, model, reasoning } = message.into();
        let mut payload = object([("content", Some(content)), ("agent_id", agent), ("model", model)]);
        payload.extend(object([("reasoning", reasoning)]));
        self.send_once("message.send", payload).await
    }

    /// Sends files. `caption` is a text that goes with all of them.
    pub async fn send_files(
        &mut self,
        files: Vec<SuprFile>,
        caption: Option<String>,
    ) -> Result<(), SuprError> {
        let attachments: Vec<Value> = files
            .into_iter()
            .map(|SuprFile { name, content_type, caption, base64 }| {
                Value::Object(object([
                    ("data", Some(base64)),
                    ("filename", Some(name)),
                    ("content_type", Some(content_type)),
                    ("caption", caption),
                ]))
            })
            .collect();
        let mut payload = object([("caption", caption)]);
        payload.insert("attachments".to_owned(), Value::Array(attachments));
        self.send_once("media.send", payload).await
    }

    /// Stops the active run; with `run`, only if that is the active one. The result arrives as events, or as a typed
    /// `error` if there is no such run.
    pub async fn stop(&mut self, run: Option<&str>, reason: Option<&str>) -> Result<(), SuprError> {
        let payload = object([("run_id", run.map(str::to_owned)), ("reason", reason.map(str::to_owned))]);
        let frame = json!({"type": "run.stop", "payload": payload}).to_string();
        self.send_frame(frame).await;
        Ok(())
    }

    /// Sends a ping; a typed `pong` with this id follows.
    pub async fn ping(&mut self, id: &str) -> Result<(), SuprError> {
        self.send_frame(json!({"type": "ping", "id": id}).to_string()).await;
        Ok(())
    }

    /// Waits for the server's next event or frame. Opens a new connection if the last one was lost. Cancel safe.
    pub async fn next(&mut self) -> Result<SuprEvent, SuprError> {
        loop {
            if let Some(received) = self.received.pop_front() {
                match &received {
                    SuprEvent::Activity(event) => {
                        self.last_event = Some(event.event_id.clone());
                        self.unconfirmed.on_activity(event);
                    }
                    SuprEvent::Typed(frame) => self.unconfirmed.on_typed(frame),
                    SuprEvent::Reconnected => {}
                }
                return Ok(received);
            }
            self.receive().await?;
        }
    }

    /// Closes the connection. A run that is active goes on.
    pub async fn close(mut self) {
        if let Some(mut socket) = self.socket.take() {
            // An error means that the connection is already gone.
            let _ = timeout(super::CONNECT_LIMIT, socket.close(None)).await;
        }
    }

    async fn send_once(&mut self, kind: &str, mut payload: Map<String, Value>) -> Result<(), SuprError> {
        let key = self.unconfirmed.new_key()?;
        payload.insert("key".to_owned(), Value::String(key.clone()));
        let frame = json!({"type": kind, "payload": payload}).to_string();
        self.unconfirmed.push(key, frame.clone())?;
        self.send_frame(frame).await;
        Ok(())
    }

    /// Sends a frame if there is a connection. If the send fails, [`next`](SuprClient::next) opens a new connection.
    async fn send_frame(&mut self, frame: String) {
        if let Some(socket) = &mut self.socket {
            let sent = timeout(self.settings.silence, socket.send(WsMessage::text(frame))).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.socket = None;
            }
        }
    }

    /// Receives one WebSocket message, or opens a new connection.
    async fn receive(&mut self) -> Result<(), SuprError> {
        let Some(socket) = &mut self.socket else { return self.reconnect().await };
        match timeout(self.settings.silence, socket.next()).await {
            Ok(Some(Ok(WsMessage::Text(text)))) => self.on_frame(text.as_str()),
            Ok(Some(Ok(WsMessage::Close(Some(close))))) if u16::from(close.code) == REPLACED_CLOSE_CODE => {
                return Err(SuprError::Replaced);
            }
            Ok(Some(Ok(WsMessage::Ping(_) | WsMessage::Pong(_)))) => {}
            Ok(Some(Ok(WsMessage::Close(_) | WsMessage::Binary(_) | WsMessage::Frame(_))))
            | Ok(Some(Err(_)) | None)
            | Err(_) => self.socket = None,
        }
        Ok(())
    }

    fn on_frame(&mut self, text: &str) {
        // A frame that is neither an event nor typed comes from a newer server and is ignored.
        let Ok(frame) = serde_json::from_str::<ServerFrame>(text) else { return };
        self.received.push_back(match frame {
            ServerFrame::Activity(event) => SuprEvent::Activity(event),
            ServerFrame::Typed(typed) => SuprEvent::Typed(typed),
        });
    }

    async fn reconnect(&mut self) -> Result<(), SuprError> {
        let mut failures = 0;
        let socket = loop {
            sleep(pause(failures)).await;
            match dial(&self.settings, &self.session, self.last_event.as_deref()).await {
                Ok(socket) => break socket,
                Err(SuprError::Unreachable(_)) if failures < self.settings.retries => failures += 1,
                Err(error) => return Err(error),
            }
        };
        self.socket = Some(socket);
        self.received.push_back(SuprEvent::Reconnected);
        for frame in self.unconfirmed.frames() {
            self.send_frame(frame).await;
        }
        Ok(())
    }
}

/// A JSON object of those members that have a value.
fn object<const N: usize>(members: [(&str, Option<String>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))).collect()
}

/// A random session name of 128 bits.
fn new_session() -> String {
    format!("session-{}", random_name())
}

/// A name that nobody else has.
fn random_name() -> String {
    let mut bytes = [0_u8; 16];
    // This never fails on the systems that parlor runs on.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    debug_assert_eq!(filled, Ok(bytes.len()));
    format!("{:032x}", u128::from_be_bytes(bytes))
}
