//! What somebody who watches a session gets to see.

use std::sync::Arc;

use crate::{Entry, MessageId, RunId, StepId, ToolCallId};

/// What is seen of a session, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionUpdate {
    /// An event. Shared by all who see it.
    Entry(Arc<Entry>),
    /// A piece of text that is being written. The pieces of one subject, put together, are the text
    /// that its completing event holds; only a tool's result is told in other words.
    Delta {
        /// The run it belongs to.
        run: RunId,
        /// What it is a piece of.
        subject: StreamKind,
        /// The piece.
        text: String,
    },
}

/// What a text is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// What the agent says.
    Message(MessageId),
    /// What it thinks in a step.
    Thought(StepId),
    /// What a tool puts out.
    Tool(ToolCallId),
    /// The input of a call that the agent is going to make, in a step of its own. It comes before the call. A call
    /// that was not made when the run's next step that is no tool's begins, or the run ends, is never made.
    Input {
        /// The call.
        call: ToolCallId,
        /// The tool.
        tool: String,
    },
}
