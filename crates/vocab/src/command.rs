//! Commands to one session and the session's replies.

use crate::{
    AgentChoice, Message, PolicyMode, QuestionAnswer, QuestionId, QueuedInput, RunId, Sender, UserInput,
};

/// The longest key of an input, in bytes. A session keeps the last keys in memory.
pub const MAX_KEY_BYTES: usize = 128;

/// A command to one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Sends a user's input. It starts a run, unless a run is active: then `when_busy` decides.
    Send {
        /// The text, the files and the options of the new run.
        input: UserInput,
        /// What the session does with the input while a run is active.
        when_busy: WhenBusy,
    },
    /// Stops the active run, or the compaction that is under way.
    Stop {
        /// If set, the session refuses the command unless this run is the active one.
        run: Option<RunId>,
        /// A sentence for people; the session has a default.
        reason: Option<String>,
    },
    /// Drops all queued inputs.
    ClearQueue,
    /// Drops one queued input: the one that would start this run. The reply is empty if it is not in the queue.
    Unqueue(RunId),
    /// Removes all messages from the history. Refused while a run is active.
    ClearHistory,
    /// Replaces older messages by a summary. Refused while a run is active. The reply comes when the summary is
    /// written; [`Stop`](Self::Stop) cancels it.
    Compact {
        /// How many of the last messages to keep unchanged.
        keep: usize,
    },
    /// Changes the title.
    Rename {
        /// The new title.
        title: String,
    },
    /// Changes the agent, model or reasoning effort of later runs.
    ChooseAgent(AgentChoice),
    /// Changes the policy's mode of later runs.
    ChooseMode(PolicyMode),
    /// Answers a pending question. The first answer counts; a later one is refused.
    AnswerQuestion {
        /// The question.
        question: QuestionId,
        /// The answer.
        answer: QuestionAnswer,
        /// The client that answers.
        by: Option<Sender>,
    },
}

/// What a session does with an input that arrives while a run is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// Refuses it with [`Busy`](crate::SessionRefusal::Busy).
    #[default]
    Refuse,
    /// Queues it; it becomes a run of its own after the active run and the inputs queued before it.
    Enqueue,
    /// Adds its text to the active run, which reads it at its next step. Refused if no run is active.
    Steer,
}

/// The reply to an accepted [`SessionCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionReply {
    /// The input started this run. If an earlier input had the same key, this is the run that the earlier one started.
    Started(RunId),
    /// The input is queued.
    Queued {
        /// The run that the input will start.
        run: RunId,
        /// The length of the queue, including this input.
        waiting: usize,
    },
    /// The text was added to this run.
    Steered(RunId),
    /// The run was told to stop. Its [`Ended`](crate::RunEvent::Ended) event follows.
    Stopping(RunId),
    /// The inputs that were dropped from the queue.
    Unqueued(Vec<QueuedInput>),
    /// The summary that replaces the older messages.
    Compacted(Message),
    /// The command was carried out and has no result.
    Done,
}
