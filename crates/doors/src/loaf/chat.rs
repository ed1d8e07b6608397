//! One session of this protocol: its messages, its history for models, its queue of prompts, its current work, and the
//! events `session.status` and `session.message.appended`.

use std::collections::VecDeque;

use parlor_vocab::{AgentChoice, RunId, Seq, SessionId, Timestamp};
use serde_json::{Map, Value, json};

use super::estimate::{self, Estimate};
use super::image::{self, Image, ImageInput};
use super::machine::Outgoing;
use super::pending::ReplyTo;
use super::recent::{Recent, TextBytes};
use super::state::State;
use super::turn::Turn;

/// The status label of an idle session.
pub(super) const READY: &str = "ready";

/// The sender of a shown message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Assistant,
    System,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// A message as clients show it.
#[derive(Debug)]
struct ShownMessage {
    id: u64,
    kind: Kind,
    text: String,
    images: Vec<Image>,
}

/// A message as models read it.
#[derive(Clone, Debug)]
pub(super) struct ModelMessage {
    pub(super) is_user: bool,
    pub(super) text: String,
    pub(super) images: Vec<Image>,
}

impl TextBytes for ShownMessage {
    fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

impl TextBytes for ModelMessage {
    fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

/// The conversation that models continue. Only the newest messages are stored here; the token estimate counts all.
#[derive(Debug, Default)]
pub(super) struct ModelHistory {
    recent: Recent<ModelMessage>,
    tokens: usize,
}

impl ModelHistory {
    pub(super) fn add(&mut self, message: ModelMessage) {
        self.tokens += estimate::message_tokens(&message);
        let has_images = !message.images.is_empty();
        self.recent.push(message);
        if has_images {
            image::drop_oldest_images(self.recent.iter_mut().map(|message| &mut message.images));
        }
    }

    /// The stored messages, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ModelMessage> {
        self.recent.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.recent.count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A prompt that has not become a turn yet.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The id of the turn that the prompt becomes.
    pub(super) turn: String,
    pub(super) text: String,
    pub(super) images: Vec<ImageInput>,
    pub(super) at: Timestamp,
}

impl Prompt {
    /// The bytes of the prompt's text and images.
    pub(super) fn size(&self) -> usize {
        self.text.len() + self.images.iter().map(ImageInput::size).sum::<usize>()
    }

    fn to_json(&self) -> Value {
        let images: Value = self.images.iter().map(ImageInput::to_json).collect();
        json!({"id": self.turn, "text": self.text, "images": images, "enqueuedAt": self.at.rfc3339()})
    }
}

/// What a session is doing.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    Turn(Box<Turn>),
    /// The conversation is being summarized.
    Summary(Box<Summary>),
}

/// A running summary.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) id: String,
    pub(super) reply_to: ReplyTo,
    pub(super) trigger: SummaryTrigger,
    /// The estimated tokens of the conversation before.
    pub(super) before: usize,
}

/// The request that a summary is for.
#[derive(Debug)]
pub(super) enum SummaryTrigger {
    /// `/compress`.
    Command,
    /// `model.select`. Its answer gets the outcome of the summary.
    ModelSelection { answer: Map<String, Value>, is_switch: bool },
}

/// A session of this protocol.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) id: String,
    created: Timestamp,
    updated: Timestamp,
    /// The status label, [`READY`] if the session is idle.
    label: String,
    messages: Recent<ShownMessage>,
    pub(super) history: ModelHistory,
    pub(super) queue: VecDeque<Prompt>,
    /// The provider of the last turn that ended.
    pub(super) provider: Option<String>,
    /// The engine's session, once there is one.
    pub(super) saved_session: Option<SessionId>,
    /// The last entry of that session's log that the machine has handled.
    pub(super) last_seq: Seq,
    /// The last run of another client whose messages were shown.
    pub(super) other_run: Option<RunId>,
    /// The choice of agent and model that the engine has for that session.
    pub(super) agent_choice: Option<AgentChoice>,
    /// The title that `session.rename` set.
    pub(super) title: Option<String>,
    pub(super) work: Work,
}

impl Chat {
    pub(super) fn new(id: String, now: Timestamp) -> Self {
        Self {
            id,
            created: now,
            updated: now,
            label: READY.to_owned(),
            messages: Recent::default(),
            history: ModelHistory::default(),
            queue: VecDeque::new(),
            provider: None,
            saved_session: None,
            last_seq: Seq::START,
            other_run: None,
            agent_choice: None,
            title: None,
            work: Work::Idle,
        }
    }

    /// Whether a turn or a summary is running.
    pub(super) fn is_pending(&self) -> bool {
        !matches!(self.work, Work::Idle)
    }

    /// The running turn.
    pub(super) fn turn(&mut self) -> Option<&mut Turn> {
        match &mut self.work {
            Work::Turn(turn) => Some(turn),
            Work::Idle | Work::Summary(_) => None,
        }
    }

    /// The running turn, if it has this id.
    pub(super) fn turn_with_id(&mut self, id: &str) -> Option<&mut Turn> {
        self.turn().filter(|turn| turn.id == id)
    }

    pub(super) fn set_updated(&mut self, now: Timestamp) {
        self.updated = now;
    }

    /// The bytes of all prompts in the queue.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.iter().map(Prompt::size).sum()
    }

    pub(super) fn queue_to_json(&self) -> Value {
        self.queue.iter().map(Prompt::to_json).collect()
    }

    /// Sets and sends the status label. The event names a turn only while the turn is being prepared.
    pub(super) fn set_status(&mut self, out: &mut Outgoing, label: &str, turn: Option<&str>) {
        self.label.clear();
        self.label.push_str(label);
        self.send_status(out, label, label != READY, turn);
    }

    /// Sends a status without changing the session's label.
    pub(super) fn send_status(&self, out: &mut Outgoing, label: &str, is_pending: bool, turn: Option<&str>) {
        let mut payload = json!({"session_id": self.id, "pending": is_pending, "status_label": label});
        if let Some(turn) = turn {
            payload["turn_id"] = Value::from(turn);
        }
        out.send_event("session.status", &payload);
    }

    /// Adds a message and sends it to the client.
    pub(super) fn append(&mut self, out: &mut Outgoing, kind: Kind, text: &str, images: &[Image]) {
        out.messages += 1;
        self.updated = out.now();
        let shown = ShownMessage { id: out.messages, kind, text: text.to_owned(), images: images.to_vec() };
        let mut message = shown.to_json();
        if out.extensions {
            message["role"] = Value::from(kind.name());
            message["content"] = Value::from(text);
        }
        self.messages.push(shown);
        if !images.is_empty() {
            image::drop_oldest_images(self.messages.iter_mut().map(|shown| &mut shown.images));
        }
        out.send_event("session.message.appended", &json!({"session_id": self.id, "message": message}));
    }

    /// Moves the messages of a turn into the history.
    pub(super) fn remember(&mut self, messages: &mut Vec<ModelMessage>) {
        messages.drain(..).for_each(|message| self.history.add(message));
    }

    /// Replaces the messages with those of a saved chat, under new ids.
    pub(super) fn resume(&mut self, out: &mut Outgoing, history: Vec<ModelMessage>) {
        self.messages = Recent::default();
        self.history = ModelHistory::default();
        for message in history {
            out.messages += 1;
            let kind = if message.is_user { Kind::User } else { Kind::Assistant };
            let (text, images) = (message.text.clone(), message.images.clone());
            self.messages.push(ShownMessage { id: out.messages, kind, text, images });
            self.history.add(message);
        }
    }

    /// Forgets the messages and the saved chat. The queue stays.
    pub(super) fn clear(&mut self, now: Timestamp) {
        self.messages = Recent::default();
        self.history = ModelHistory::default();
        (self.saved_session, self.agent_choice, self.provider, self.title) = (None, None, None, None);
        self.last_seq = Seq::START;
        self.label = READY.to_owned();
        self.updated = now;
    }

    /// The estimated tokens of the conversation, with the messages of the running turn.
    pub(super) fn estimate(&self, state: &State, new_messages: &[ModelMessage]) -> Estimate {
        let tokens = self.history.tokens + new_messages.iter().map(estimate::message_tokens).sum::<usize>();
        Estimate::new(tokens, state.tool_tokens, state.provider())
    }

    /// Sends the estimate.
    pub(super) fn send_estimate(&self, out: &mut Outgoing, state: &State, new_messages: &[ModelMessage]) {
        let estimate = self.estimate(state, new_messages);
        let payload = json!({
            "session_id": self.id,
            "provider": state.provider(),
            "source": "history",
            "total_tokens_estimate": estimate.total(),
            "breakdown": estimate.breakdown(),
        });
        out.send_event("session.context.estimate", &payload);
    }

    /// The result of `session.get`.
    pub(super) fn to_json(&self, state: &State) -> Value {
        let (steers, new_messages) = match &self.work {
            Work::Turn(turn) => (turn.waiting_steers(), turn.new_messages.as_slice()),
            Work::Idle | Work::Summary(_) => (0, [].as_slice()),
        };
        let estimate = self.estimate(state, new_messages);
        json!({
            "id": self.id,
            "createdAt": self.created.rfc3339(),
            "updatedAt": self.updated.rfc3339(),
            "pending": self.is_pending(),
            "statusLabel": self.label,
            "messages": self.messages.iter().map(ShownMessage::to_json).collect::<Value>(),
            "history": self.history.iter().map(ModelMessage::to_json).collect::<Value>(),
            "queue": self.queue_to_json(),
            "pendingSteerCount": steers,
            "conversationProvider": self.provider,
            "activeSessionId": self.saved_session.as_ref().map(|session| session.as_str()),
            "contextTokenEstimate": estimate.total(),
            "contextTokenSource": "history",
            "contextTokenProvider": self.provider,
            "contextTokenBreakdown": estimate.breakdown(),
        })
    }

    /// The session in the result of `session.list`.
    pub(super) fn summary_json(&self) -> Value {
        json!({
            "session_id": self.id,
            "created_at": self.created.rfc3339(),
            "updated_at": self.updated.rfc3339(),
            "pending": self.is_pending(),
            "status_label": self.label,
            "message_count": self.messages.count(),
            "queue_length": self.queue.len(),
            "active_session_id": self.saved_session.as_ref().map(|session| session.as_str()),
        })
    }
}

impl ShownMessage {
    fn to_json(&self) -> Value {
        with_images(json!({"id": self.id, "kind": self.kind.name(), "text": self.text}), &self.images)
    }
}

impl ModelMessage {
    pub(super) fn user(text: impl Into<String>, images: Vec<Image>) -> Self {
        Self { is_user: true, text: text.into(), images }
    }

    pub(super) fn assistant(text: impl Into<String>) -> Self {
        Self { is_user: false, text: text.into(), images: Vec::new() }
    }

    pub(super) fn to_json(&self) -> Value {
        let role = if self.is_user { "user" } else { "assistant" };
        with_images(json!({"role": role, "text": self.text}), &self.images)
    }
}

fn with_images(mut message: Value, images: &[Image]) -> Value {
    if !images.is_empty() {
        message["images"] = images.iter().map(Image::to_json).collect();
    }
    message
}
