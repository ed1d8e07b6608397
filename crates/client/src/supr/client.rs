//! One session, as its client sees it.

use std::collections::VecDeque;

use futures_util::{SinkExt, StreamExt};
use parlor_doors::supr::wire::ServerFrame;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use super::backlog::Backlog;
use super::dial::{Socket, dial, pause};
use super::{Activity, SuprError, SuprSettings, Typed};

/// The close code of a connection whose session has a newer one.
const REPLACED: u16 = 4001;

/// Something to say, and to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuprMessage {
    /// What is said.
    pub content: String,
    /// The agent that is to answer, if not the default.
    pub agent: Option<String>,
    /// The model that is to be used.
    pub model: Option<String>,
    /// `off`, `low`, `medium`, `high`, `xhigh` or `adaptive`.
    pub reasoning: Option<String>,
}

impl From<&str> for SuprMessage {
    fn from(content: &str) -> Self {
        Self { content: content.to_owned(), ..Self::default() }
    }
}

/// A file that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuprFile {
    /// What it is called.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// What is said about it.
    pub caption: Option<String>,
    /// Its content, as base64.
    pub base64: String,
}

/// Something that the server said.
#[derive(Clone, Debug, PartialEq)]
pub enum SuprEvent {
    /// Something happened. Each is told once and in order, whatever became of the connection.
    Activity(Box<Activity>),
    /// A typed frame: `agent.list` on each connection, `pong`, `error`, `media.create`.
    Typed(Typed),
    /// The connection was lost and is there again.
    Reconnected,
}

/// A session.
pub struct SuprClient {
    settings: SuprSettings,
    session: String,
    socket: Option<Socket>,
    /// The last event that was told.
    last: Option<String>,
    backlog: Backlog,
    /// What was heard and not told yet.
    heard: VecDeque<SuprEvent>,
}

impl SuprClient {
    /// Opens the first connection, once.
    pub async fn connect(settings: SuprSettings) -> Result<Self, SuprError> {
        let session = settings.session.clone().unwrap_or_else(new_session);
        let socket = dial(&settings, &session, settings.after.as_deref()).await?;
        let last = settings.after.clone();
        let (backlog, heard) = (Backlog::default(), VecDeque::new());
        Ok(Self { settings, session, socket: Some(socket), last, backlog, heard })
    }

    /// The session's name.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The last event that was told; [`SuprSettings::after`] takes it to go on later.
    pub fn last_event(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Says something. It will become a run, once, even if the connection is lost meanwhile.
    pub async fn send(&mut self, message: impl Into<SuprMessage>) -> Result<(), SuprError> {
        let SuprMessage { content, agent, model, reasoning } = message.into();
        let mut payload = object([("content", Some(content)), ("agent_id", agent), ("model", model)]);
        payload.extend(object([("reasoning", reasoning)]));
        self.send_once("message.send", payload).await
    }

    /// Sends files; `caption` is said about all of them if there are several.
    pub async fn send_files(&mut self, files: Vec<SuprFile>, caption: Option<String>) -> Result<(), SuprError> {
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

    /// Stops the active run, or only if it is `run`. What becomes of it is told as events; that there was
    /// none, as a typed `error`.
    pub async fn stop(&mut self, run: Option<&str>, reason: Option<&str>) -> Result<(), SuprError> {
        let payload = object([("run_id", run.map(str::to_owned)), ("reason", reason.map(str::to_owned))]);
        let frame = json!({"type": "run.stop", "payload": payload}).to_string();
        self.put(frame).await;
        Ok(())
    }

    /// Asks for a sign of life; a typed `pong` with this id follows.
    pub async fn ping(&mut self, id: &str) -> Result<(), SuprError> {
        self.put(json!({"type": "ping", "id": id}).to_string()).await;
        Ok(())
    }

    /// Waits for what the server says next. Connects again if need be. Cancel safe.
    pub async fn next(&mut self) -> Result<SuprEvent, SuprError> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                match &heard {
                    SuprEvent::Activity(event) => {
                        self.last = Some(event.event_id.clone());
                        self.backlog.on_activity(event);
                    }
                    SuprEvent::Typed(frame) => self.backlog.on_typed(frame),
                    SuprEvent::Reconnected => {}
                }
                return Ok(heard);
            }
            self.listen().await?;
        }
    }

    /// Says goodbye. What runs goes on.
    pub async fn close(mut self) {
        if let Some(mut socket) = self.socket.take() {
            // One that is gone needs no goodbye.
            let _ = timeout(super::CONNECT_LIMIT, socket.close(None)).await;
        }
    }

    async fn send_once(&mut self, kind: &str, mut payload: Map<String, Value>) -> Result<(), SuprError> {
        let key = self.backlog.key(&self.session)?;
        payload.insert("key".to_owned(), Value::String(key.clone()));
        let frame = json!({"type": kind, "payload": payload}).to_string();
        self.backlog.push(key, frame.clone())?;
        self.put(frame).await;
        Ok(())
    }

    /// Sends a frame, if there is a connection. That it is lost is found out by [`next`](SuprClient::next).
    async fn put(&mut self, frame: String) {
        if let Some(socket) = &mut self.socket {
            let sent = timeout(self.settings.silence, socket.send(WsMessage::text(frame))).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.socket = None;
            }
        }
    }

    /// Takes in one thing that the server says, on a new connection if need be.
    async fn listen(&mut self) -> Result<(), SuprError> {
        let Some(socket) = &mut self.socket else { return self.reconnect().await };
        match timeout(self.settings.silence, socket.next()).await {
            Ok(Some(Ok(WsMessage::Text(text)))) => self.on_frame(text.as_str()),
            Ok(Some(Ok(WsMessage::Close(Some(goodbye))))) if u16::from(goodbye.code) == REPLACED => {
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
        // What is neither is from a later time, and not for us.
        let Ok(frame) = serde_json::from_str::<ServerFrame>(text) else { return };
        self.heard.push_back(match frame {
            ServerFrame::Activity(event) => SuprEvent::Activity(event),
            ServerFrame::Typed(typed) => SuprEvent::Typed(typed),
        });
    }

    async fn reconnect(&mut self) -> Result<(), SuprError> {
        let mut failures = 0;
        let socket = loop {
            sleep(pause(failures)).await;
            match dial(&self.settings, &self.session, self.last.as_deref()).await {
                Ok(socket) => break socket,
                Err(SuprError::Unreachable(_)) if failures < self.settings.retries => failures += 1,
                Err(error) => return Err(error),
            }
        };
        self.socket = Some(socket);
        self.heard.push_back(SuprEvent::Reconnected);
        for frame in self.backlog.frames() {
            self.put(frame).await;
        }
        Ok(())
    }
}

/// The members that are there.
fn object<const N: usize>(members: [(&str, Option<String>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))).collect()
}

/// A name that nobody else has.
fn new_session() -> String {
    let mut bytes = [0_u8; 16];
    // There is always chance on the systems that parlor runs on.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    debug_assert_eq!(filled, Ok(bytes.len()));
    format!("session-{:032x}", u128::from_be_bytes(bytes))
}
