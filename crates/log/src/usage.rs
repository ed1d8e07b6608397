//! Token usage by day and model. The log counts it when events are appended, so that a query does not read events.

use parlor_vocab::{NewEntry, RunEnding, RunEvent, SessionEvent, Usage};

use crate::SessionRecord;

/// One day in milliseconds.
const DAY: i64 = 86_400_000;

/// Usage of one model on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageLine {
    /// Days since the start of 1970, UTC.
    pub day: i64,
    /// The provider's id of the model. The line with an empty name counts runs, and usage without a model.
    pub model: String,
    /// How many runs began, without those of subagents.
    pub runs: u64,
    /// How many runs failed on this day, without those of subagents.
    pub failed: u64,
    /// Tokens and their cost.
    pub usage: Usage,
}

impl UsageLine {
    /// What the event `next` adds to the usage. `record` is the record of its session before the event.
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

    /// Adds a line of the same day and model.
    pub(crate) fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        self.failed += more.failed;
        self.usage = self.usage.plus(more.usage);
    }
}
