//! What can be asked of a session, and what it says to that.

use crate::{AgentChoice, Message, QueuedInput, RunId, UserInput};

/// Something that a door wants of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Say something to it.
    Send {
        /// What is said.
        input: UserInput,
        /// What to do if a run is active.
        when_busy: WhenBusy,
    },
    /// Stop the active run.
    Stop {
        /// Only if it is this one.
        run: Option<RunId>,
        /// Why, in words for people.
        reason: Option<String>,
    },
    /// Forget the inputs that wait.
    ClearQueue,
    /// Forget all messages. Only while nothing runs.
    ClearHistory,
    /// Put a summary in the place of older messages. Only while nothing runs; answered when it is
    /// done, and given up by a stop.
    Compact {
        /// How many of the last messages stay as they are.
        keep: usize,
    },
    /// Give it another title.
    Rename {
        /// The new one.
        title: String,
    },
    /// Let something else answer from now on.
    Choose(AgentChoice),
}

/// How an input meets a run that is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// It is turned down.
    #[default]
    Refuse,
    /// It waits for its turn.
    Enqueue,
    /// Its text joins the running turn at the next step. Without a run it is turned down.
    Steer,
}

/// What an accepted [`SessionCommand`] gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionReply {
    /// The input became a run, now or before: the same key gives the same run.
    Started(RunId),
    /// The input waits, and will be this run.
    Queued {
        /// The run it will be.
        run: RunId,
        /// How many wait, with this one.
        waiting: usize,
    },
    /// The text has joined this run.
    Steered(RunId),
    /// This run is being stopped.
    Stopping(RunId),
    /// These inputs will not run.
    Unqueued(Vec<QueuedInput>),
    /// This stands in the place of older messages.
    Compacted(Message),
    /// Done.
    Done,
}
