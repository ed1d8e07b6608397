//! Snapshots: the state of a session at one of its events, kept so that a long session need not be read from its start.
//!
//! A snapshot holds nothing that the events do not hold. A store may lose it at any time; the state is then computed from
//! the events again.

use parlor_vocab::{
    AgentChoice, AgentId, EventId, HistoryItem, MessageCounter, NewSession, PolicyMode, QuestionId,
    QuestionOutcome, QueuedInput, RunId, Seq, Usage,
};

use crate::row::{Row, SNAPSHOT_VERSION, decode_snapshot, encode_snapshot};

/// The largest snapshot in bytes. A larger one is not kept, and the session is read from an earlier one or from its start.
pub const MAX_SNAPSHOT_BYTES: usize = 4 << 20;

/// The state of a session in which no run is active, after the event `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// The number of the last event that the state includes.
    pub seq: Seq,
    /// The id of that event. A snapshot whose event is not in the log belongs to another session.
    pub event: EventId,
    /// What the session was created with.
    pub new_session: NewSession,
    /// The title, if the session has one.
    pub title: Option<String>,
    /// The chosen agent, model and reasoning effort.
    pub choice: AgentChoice,
    /// The chosen mode.
    pub mode: Option<PolicyMode>,
    /// The conversation.
    pub history: HistorySnapshot,
    /// The queued inputs, in the order in which they will start.
    pub queue: Vec<QueuedInput>,
    /// The idempotency keys with the runs that they started, the oldest first.
    pub keys: Vec<(String, RunId)>,
    /// Tokens and cost of all runs.
    pub usage: Usage,
    /// The missing agent that the last runs reported.
    pub reported_missing: Option<AgentId>,
    /// The questions that were settled last, the oldest first.
    pub settled: Vec<(QuestionId, QuestionOutcome)>,
    /// What a person last answered to the question whether the project is trusted, if that holds for this session alone.
    pub trust_answer: Option<bool>,
}

/// What a snapshot has of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySnapshot {
    /// The position after which the events of all items can be read.
    pub from: Seq,
    /// The items, each with the position after which its events can be read. `None` if they are too large for a snapshot.
    pub items: Option<Vec<(HistoryItem, Seq)>>,
    /// The number of messages. `None` if it must be counted from the log.
    pub messages: Option<MessageCounter>,
}

/// A snapshot in its stored form.
#[derive(Clone, Debug)]
pub(crate) struct StoredSnapshot {
    pub(crate) seq: Seq,
    pub(crate) event: EventId,
    pub(crate) row: Row,
}

impl StoredSnapshot {
    /// Encodes a snapshot. `None` if it is larger than [`MAX_SNAPSHOT_BYTES`].
    pub(crate) fn encode(snapshot: &SessionSnapshot) -> Option<Self> {
        let row = encode_snapshot(snapshot);
        let stored = Self { seq: snapshot.seq, event: snapshot.event.clone(), row };
        (stored.row.body.len() <= MAX_SNAPSHOT_BYTES).then_some(stored)
    }

    /// Decodes a snapshot. `None` if another version of parlor wrote it, or if it is damaged.
    pub(crate) fn decode(self) -> Option<SessionSnapshot> {
        let Self { seq, event, row } = self;
        match row.version {
            SNAPSHOT_VERSION => decode_snapshot(seq, event, &row.body).ok(),
            _ => None,
        }
    }
}
