//! One session of this dialect: what it shows, what it remembers, what waits in it and what is at work.

use std::collections::VecDeque;

use parlor_vocab::{AgentChoice, Seq, SessionId, Timestamp};
use serde_json::{Map, Value, json};

use super::estimate::{self, Estimate};
use super::image::{self, Image, Wanted};
use super::machine::Out;
use super::pending::To;
use super::recent::{Recent, TextBytes};
use super::state::State;
use super::turn::Turn;

/// The label of a session that has nothing to do.
pub(super) const READY: &str = "ready";

/// Who speaks.
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

/// A message as it is shown.
#[derive(Debug)]
struct ShownMessage {
    id: u64,
    kind: Kind,
    text: String,
    images: Vec<Image>,
}

/// A message as a model gets to read it.
#[derive(Clone, Debug)]
pub(super) struct SaidText {
    pub(super) is_user: bool,
    pub(super) text: String,
    pub(super) images: Vec<Image>,
}

impl TextBytes for ShownMessage {
    fn weight(&self) -> usize {
        self.text.len()
    }
}

impl TextBytes for SaidText {
    fn weight(&self) -> usize {
        self.text.len()
    }
}

/// What is gone on with: all of it counts, the newest is told.
#[derive(Debug, Default)]
pub(super) struct ModelHistory {
    told: Recent<SaidText>,
    tokens: usize,
}

impl ModelHistory {
    pub(super) fn add(&mut self, said: SaidText) {
        self.tokens += estimate::of_message(&said);
        let has_images = !said.images.is_empty();
        self.told.push(said);
        if has_images {
            image::keep_newest(self.told.iter_mut().map(|said| &mut said.images));
        }
    }

    /// What of it is told, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SaidText> {
        self.told.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.told.count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A prompt that is not sent yet.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The turn that it will be.
    pub(super) turn: String,
    pub(super) text: String,
    pub(super) images: Vec<Wanted>,
    pub(super) at: Timestamp,
}

impl Prompt {
    /// How many bytes it holds.
    pub(super) fn weight(&self) -> usize {
        self.text.len() + self.images.iter().map(Wanted::weight).sum::<usize>()
    }

    fn to_json(&self) -> Value {
        let images: Value = self.images.iter().map(Wanted::to_json).collect();
        json!({"id": self.turn, "text": self.text, "images": images, "enqueuedAt": self.at.rfc3339()})
    }
}

/// What a session is at.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    Turn(Box<Turn>),
    /// A summary is being written, for whoever asked.
    Summary(Box<Summary>),
}

/// A summary that is being written.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) id: String,
    pub(super) to: To,
    pub(super) why: SummaryFor,
    /// What the conversation took before.
    pub(super) before: usize,
}

/// Who wants a summary.
#[derive(Debug)]
pub(super) enum SummaryFor {
    /// `/compress`.
    Command,
    /// `model.select`, whose answer it becomes a part of.
    Choice { answer: Map<String, Value>, is_switch: bool },
}

/// A session.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) id: String,
    created: Timestamp,
    updated: Timestamp,
    label: String,
    messages: Recent<ShownMessage>,
    pub(super) history: ModelHistory,
    pub(super) queue: VecDeque<Prompt>,
    /// The provider of the last turn that ended.
    pub(super) provider: Option<String>,
    /// The session of the engine, once there is one.
    pub(super) saved: Option<SessionId>,
    /// Up to where its log was seen.
    pub(super) seen: Seq,
    /// What answers in it, as far as the engine knows.
    pub(super) chosen: Option<AgentChoice>,
    /// What it is to be called.
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
            saved: None,
            seen: Seq::START,
            chosen: None,
            title: None,
            work: Work::Idle,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        !matches!(self.work, Work::Idle)
    }

    /// The turn that is at work.
    pub(super) fn turn(&mut self) -> Option<&mut Turn> {
        match &mut self.work {
            Work::Turn(turn) => Some(turn),
            Work::Idle | Work::Summary(_) => None,
        }
    }

    /// The turn of this id, if it is at work.
    pub(super) fn turn_of(&mut self, id: &str) -> Option<&mut Turn> {
        self.turn().filter(|turn| turn.id == id)
    }

    pub(super) fn touch(&mut self, now: Timestamp) {
        self.updated = now;
    }

    /// How many bytes wait.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.iter().map(Prompt::weight).sum()
    }

    pub(super) fn queue_to_json(&self) -> Value {
        self.queue.iter().map(Prompt::to_json).collect()
    }

    /// Says what it is doing. Only the set-up of a turn names the turn.
    pub(super) fn status(&mut self, out: &mut Out, label: &str, turn: Option<&str>) {
        self.label.clear();
        self.label.push_str(label);
        self.tell_status(out, label, label != READY, turn);
    }

    /// Says so without taking it as its own label.
    pub(super) fn tell_status(&self, out: &mut Out, label: &str, is_pending: bool, turn: Option<&str>) {
        let mut payload = json!({"session_id": self.id, "pending": is_pending, "status_label": label});
        if let Some(turn) = turn {
            payload["turn_id"] = Value::from(turn);
        }
        out.event("session.status", &payload);
    }

    /// Shows a message.
    pub(super) fn append(&mut self, out: &mut Out, kind: Kind, text: &str, images: &[Image]) {
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
            image::keep_newest(self.messages.iter_mut().map(|shown| &mut shown.images));
        }
        out.event("session.message.appended", &json!({"session_id": self.id, "message": message}));
    }

    /// Takes over what was said in a turn.
    pub(super) fn remember(&mut self, said: &mut Vec<SaidText>) {
        said.drain(..).for_each(|said| self.history.add(said));
    }

    /// Takes over what was said before, under new numbers.
    pub(super) fn resume(&mut self, out: &mut Out, history: Vec<SaidText>) {
        self.messages = Recent::default();
        self.history = ModelHistory::default();
        for said in history {
            out.messages += 1;
            let kind = if said.is_user { Kind::User } else { Kind::Assistant };
            let (text, images) = (said.text.clone(), said.images.clone());
            self.messages.push(ShownMessage { id: out.messages, kind, text, images });
            self.history.add(said);
        }
    }

    /// Forgets what was said, and which chat that was. What waits stays.
    pub(super) fn clear(&mut self, now: Timestamp) {
        self.messages = Recent::default();
        self.history = ModelHistory::default();
        (self.saved, self.chosen, self.provider, self.title) = (None, None, None, None);
        self.seen = Seq::START;
        self.label = READY.to_owned();
        self.updated = now;
    }

    /// How much the conversation may take, with what was said in the turn that is at work.
    pub(super) fn estimate(&self, state: &State, now: &[SaidText]) -> Estimate {
        let tokens = self.history.tokens + now.iter().map(estimate::of_message).sum::<usize>();
        Estimate::of(tokens, state.tool_tokens, state.provider())
    }

    /// Tells it.
    pub(super) fn tell_estimate(&self, out: &mut Out, state: &State, now: &[SaidText]) {
        let estimate = self.estimate(state, now);
        let payload = json!({
            "session_id": self.id,
            "provider": state.provider(),
            "source": "history",
            "total_tokens_estimate": estimate.total(),
            "breakdown": estimate.breakdown(),
        });
        out.event("session.context.estimate", &payload);
    }

    /// The session as `session.get` tells it.
    pub(super) fn to_json(&self, state: &State) -> Value {
        let (steers, now) = match &self.work {
            Work::Turn(turn) => (turn.steers(), turn.said.as_slice()),
            Work::Idle | Work::Summary(_) => (0, [].as_slice()),
        };
        let estimate = self.estimate(state, now);
        json!({
            "id": self.id,
            "createdAt": self.created.rfc3339(),
            "updatedAt": self.updated.rfc3339(),
            "pending": self.is_pending(),
            "statusLabel": self.label,
            "messages": self.messages.iter().map(ShownMessage::to_json).collect::<Value>(),
            "history": self.history.iter().map(SaidText::to_json).collect::<Value>(),
            "queue": self.queue_to_json(),
            "pendingSteerCount": steers,
            "conversationProvider": self.provider,
            "activeSessionId": self.saved.as_ref().map(|saved| saved.as_str()),
            "contextTokenEstimate": estimate.total(),
            "contextTokenSource": "history",
            "contextTokenProvider": self.provider,
            "contextTokenBreakdown": estimate.breakdown(),
        })
    }

    /// A line about it, for lists.
    pub(super) fn line(&self) -> Value {
        json!({
            "session_id": self.id,
            "created_at": self.created.rfc3339(),
            "updated_at": self.updated.rfc3339(),
            "pending": self.is_pending(),
            "status_label": self.label,
            "message_count": self.messages.count(),
            "queue_length": self.queue.len(),
            "active_session_id": self.saved.as_ref().map(|saved| saved.as_str()),
        })
    }
}

impl ShownMessage {
    fn to_json(&self) -> Value {
        with_images(json!({"id": self.id, "kind": self.kind.name(), "text": self.text}), &self.images)
    }
}

impl SaidText {
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
