//! Turns the state of a session into a snapshot for the log, and back.

use std::sync::Arc;

use parlor_log::SessionSnapshot;
use parlor_vocab::EventId;

use super::{History, Session};

impl Session {
    /// The state as a snapshot. `event` is the id of the last event. `None` while a run is open, and before the first
    /// event.
    pub(crate) fn snapshot(&self, event: EventId) -> Option<SessionSnapshot> {
        let Self {
            head,
            new_session,
            title,
            choice,
            history,
            queue,
            active,
            open,
            keys,
            keys_in_order,
            usage,
            reported_missing,
            mode,
            settled,
            trust_answer,
        } = self;
        if active.is_some() || !open.is_empty() {
            return None;
        }
        let key = |key: &Arc<str>| Some((key.as_ref().to_owned(), keys.get(key)?.clone()));
        Some(SessionSnapshot {
            seq: *head,
            event,
            new_session: new_session.clone()?,
            title: title.clone(),
            choice: choice.clone(),
            mode: *mode,
            history: history.snapshot(),
            queue: queue.iter().cloned().collect(),
            keys: keys_in_order.iter().filter_map(key).collect(),
            usage: *usage,
            reported_missing: reported_missing.clone(),
            settled: settled.iter().cloned().collect(),
            trust_answer: *trust_answer,
        })
    }
}

impl From<SessionSnapshot> for Session {
    fn from(snapshot: SessionSnapshot) -> Self {
        let SessionSnapshot {
            seq,
            event: _,
            new_session,
            title,
            choice,
            mode,
            history,
            queue,
            keys,
            usage,
            reported_missing,
            settled,
            trust_answer,
        } = snapshot;
        let keys: Vec<_> = keys.into_iter().map(|(key, run)| (Arc::<str>::from(key), run)).collect();
        Self {
            head: seq,
            new_session: Some(new_session),
            title,
            choice,
            history: History::from_snapshot(history),
            queue: queue.into(),
            keys_in_order: keys.iter().map(|(key, _)| Arc::clone(key)).collect(),
            keys: keys.into_iter().collect(),
            usage,
            reported_missing,
            mode,
            settled: settled.into(),
            trust_answer,
            ..Self::default()
        }
    }
}
