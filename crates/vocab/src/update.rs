//! What a watch of a session reports: log entries, and text while it is being written.

use std::sync::Arc;

use crate::{Entry, MessageId, RunId, StepId, ToolCallId};

/// One report to a watcher. Reports come in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionUpdate {
    /// A new log entry. All watchers share one allocation.
    Entry(Arc<Entry>),
    /// A piece of a text that is not in the log yet. The concatenated deltas of a stream are the text of the event that
    /// completes it, except for [`ToolOutput`](StreamKind::ToolOutput): a tool's result may differ from its output.
    Delta {
        /// The run that the text belongs to.
        run: RunId,
        /// The text that this piece continues.
        stream: StreamKind,
        /// The new piece.
        text: String,
    },
}

/// Identifies a text that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// An agent's message.
    Message(MessageId),
    /// The model's reasoning in a step.
    Reasoning(StepId),
    /// The output of a running tool.
    ToolOutput(ToolCallId),
    /// The input of a tool call while the model writes it, before the call itself. Until the run ends or its next step
    /// that is not a tool call begins, the call may follow; after that it never does.
    ToolInput {
        /// The id that the call will have.
        call: ToolCallId,
        /// The name under which the agent knows the tool.
        tool: String,
    },
}
