//! Counts the messages of a history as model APIs do, where the roles alternate: the texts and tool calls of the agent are
//! one message, and the results of the calls are the message after it.

use crate::{FailureCode, HistoryItem, Role, RunEnding};

/// What an item of a history adds to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedItem {
    /// A message of its own: one of the user, or the mark of an interrupted run.
    Message,
    /// A text of the agent.
    Text,
    /// A tool call of the agent.
    Call {
        /// Whether the call has ended.
        has_result: bool,
    },
    /// Nothing: a note for people, or a run that failed by itself.
    Nothing,
}

impl CountedItem {
    /// What `item` adds.
    pub fn of(item: &HistoryItem) -> Self {
        match item {
            HistoryItem::Message(message) => match message.role {
                Role::User => Self::Message,
                Role::Assistant => Self::Text,
                Role::System => Self::Nothing,
            },
            HistoryItem::ToolUse(tool_use) => Self::Call { has_result: tool_use.result.is_some() },
            HistoryItem::UnfinishedRun { ending: RunEnding::Stopped { .. }, .. } => Self::Message,
            HistoryItem::UnfinishedRun { ending: RunEnding::Failed(failure), .. }
                if failure.code == FailureCode::RunInterrupted =>
            {
                Self::Message
            }
            HistoryItem::UnfinishedRun {
                ending: RunEnding::Failed(_) | RunEnding::Completed { .. }, ..
            } => Self::Nothing,
        }
    }
}

/// Counts messages item by item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounter {
    /// The messages that are complete.
    pub closed: u64,
    /// Whether the agent's message is open.
    pub has_texts: bool,
    /// Whether it has results.
    pub has_results: bool,
}

impl MessageCounter {
    /// Counts the next item.
    pub fn add(&mut self, item: CountedItem) {
        match item {
            CountedItem::Message => {
                self.close();
                self.closed += 1;
            }
            CountedItem::Text => self.open(),
            CountedItem::Call { has_result } => {
                self.open();
                self.has_results |= has_result;
            }
            CountedItem::Nothing => {}
        }
    }

    /// The number of messages so far.
    pub fn count(&self) -> u64 {
        self.closed + u64::from(self.has_texts) + u64::from(self.has_results)
    }

    fn open(&mut self) {
        // Results end the agent's message.
        if self.has_results {
            self.close();
        }
        self.has_texts = true;
    }

    fn close(&mut self) {
        *self = Self { closed: self.count(), ..Self::default() };
    }
}
