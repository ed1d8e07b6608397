//! What was used, day by day. Follows from the events, and is counted when they are appended: whoever asks need
//! not read them.

use parlor_vocab::{NewEntry, RunEnding, RunEvent, SessionEvent, Usage};

use crate::SessionRecord;

/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// What was used on one day with one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageLine {
    /// The day, UTC, since 1970.
    pub day: i64,
    /// The model; empty for what is none's, which has the runs.
    pub model: String,
    /// How many runs began. Those of subagents are not among them.
    pub runs: u64,
    /// How many of them failed on this day.
    pub failed: u64,
    /// The tokens and their cost.
    pub usage: Usage,
}

impl UsageLine {
    /// Adds what was used by the next event of the session of `record`, which does not know of it yet.
    pub(crate) fn of(record: &SessionRecord, next: &NewEntry) -> Option<Self> {
        let SessionEvent::Run { run, event, .. } = &next.event else { return None };
        let line = Self { day: next.at.0.div_euclid(DAY), ..Self::default() };
        if let RunEvent::Started { parent: None, .. } = event {
            return Some(Self { runs: 1, ..line });
        }
        if let RunEvent::UsageAdded { usage, model } = event {
            return Some(Self { model: model.clone().unwrap_or_default(), usage: *usage, ..line });
        }
        let is_failed = matches!(event, RunEvent::Ended { ending: RunEnding::Failed(_), .. });
        (is_failed && record.running.as_ref() == Some(run)).then_some(Self { failed: 1, ..line })
    }

    /// Counts `more` of the same day and model.
    pub(crate) fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        self.failed += more.failed;
        self.usage = self.usage.plus(more.usage);
    }
}
