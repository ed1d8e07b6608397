//! Why a backend refuses a request. Each backend has its own enum, so that a door needs codes only for the backend it uses.
//!
//! No enum is `#[non_exhaustive]`: a new case must break the build of every door that has no code for it.

use std::fmt;

use crate::{AgentId, MessageId, ProcessId, QuestionId, RunId, SessionId};

/// Why a request about processes was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessRefusal {
    /// No living process has this id.
    #[error("unknown process id {0}")]
    UnknownProcess(ProcessId),
    /// A living process has this id.
    #[error("process {0} already exists")]
    ProcessExists(ProcessId),
    /// The process was started without an open standard input.
    #[error("stdin is closed for process {0}")]
    StdinClosed(ProcessId),
    /// The process ended before it read the bytes.
    #[error("failed to write to process stdin: process {0} has ended")]
    StdinGone(ProcessId),
    /// The process reads its standard input too slowly.
    #[error("failed to write to process stdin: process {process} has {limit} unread {what} waiting already")]
    StdinFull {
        /// The process that reads too slowly.
        process: ProcessId,
        /// How many `what` may wait.
        limit: usize,
        /// The unit of `limit`: bytes, or writes.
        what: &'static str,
    },
    /// The working folder is not an absolute path.
    #[error("cwd must be an absolute path, not {0:?}")]
    RelativeFolder(String),
    /// The connection has reached its limit of processes.
    #[error("{limit} processes are running, which is the limit; end one first")]
    TooManyProcesses {
        /// How many processes one connection may have.
        limit: usize,
    },
    /// The operating system did not start the process.
    #[error("cannot {attempt}: {reason}")]
    CannotStart {
        /// The step that failed, such as `run "/bin/nope"`.
        attempt: String,
        /// The error of the operating system.
        reason: String,
    },
}

/// Why a request about Ruby or tools was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RubyRefusal {
    /// Too many calls of this connection wait for an answer.
    #[error("{limit} requests are waiting for an answer, which is the limit; wait for one")]
    TooManyRequests {
        /// How many requests may wait.
        limit: usize,
    },
    /// The code that carried out the call panicked, possibly halfway.
    #[error("an internal error; the log of the server has the details")]
    Internal,
}

/// Why a request about sessions was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    /// No session has this id.
    #[error("no session {0}")]
    UnknownSession(SessionId),
    /// A session has this id already.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// Another process has the session open.
    #[error("session {session} is in use by {holder}; end that first, or open another session")]
    SessionHeld {
        /// The session that the client asked for.
        session: SessionId,
        /// The other process, in words for people.
        holder: String,
    },
    /// The session belongs to nodes with other files, and none of them can be reached.
    #[error(
        "session {session} belongs to workspace {workspace:?}, and no node of that workspace can be reached; start one, or \
         open another session"
    )]
    NoNode {
        /// The session that the client asked for.
        session: SessionId,
        /// The label of the workspace.
        workspace: String,
    },
    /// The limit of open sessions is reached.
    #[error("{limit} sessions are open, which is the limit; close one first")]
    TooManySessions {
        /// How many sessions may be open.
        limit: usize,
    },
    /// A run is active, and the command did not ask to queue the input.
    #[error("run {active} is active; wait for its end, enqueue the input, or stop the run")]
    Busy {
        /// The active run.
        active: RunId,
    },
    /// The session's queue is full.
    #[error("{limit} inputs are waiting, which is the limit; clear the queue or wait")]
    QueueFull {
        /// How many inputs may wait.
        limit: usize,
    },
    /// The command needs an active run, and there is none.
    #[error("no run is active")]
    NoActiveRun,
    /// The command named a run that is not the active one.
    #[error("run {asked} is not the active run {active}")]
    WrongRun {
        /// The run that the command named.
        asked: RunId,
        /// The active run.
        active: RunId,
    },
    /// The limit of active runs in all sessions is reached.
    #[error("{limit} runs are active, which is the limit; wait for one to end, or stop one")]
    TooManyRuns {
        /// How many runs may be active.
        limit: usize,
    },
    /// The session is being compacted.
    #[error("the session is being compacted; wait for it, or stop it")]
    Compacting,
    /// Background processes of the session are running.
    #[error("the session has processes in the background; end them first")]
    BackgroundProcesses,
    /// The compaction failed or was stopped. The session is unchanged.
    #[error("the session was not compacted: {reason}")]
    NotCompacted {
        /// The error in words for people.
        reason: String,
    },
    /// The session has no such message.
    #[error("the session has no message {0}")]
    UnknownMessage(MessageId),
    /// The session has no such question, or it was settled long ago.
    #[error("the session has no question {0}")]
    UnknownQuestion(QuestionId),
    /// The question was settled before. Nothing was changed.
    #[error("question {question} was settled before: {outcome}")]
    QuestionSettled {
        /// The question.
        question: QuestionId,
        /// How it was settled: the name of the answer, `expired` or `withdrawn`.
        outcome: String,
    },
    /// The answer to a question is not one of those that are offered, or its message is too long.
    #[error("the answer cannot be taken: {reason}")]
    InvalidAnswer {
        /// What is wrong and what to do.
        reason: String,
    },
    /// No agent with this name is configured.
    #[error("no agent {0} is configured")]
    UnknownAgent(AgentId),
    /// Too many requests of this connection wait for an answer.
    #[error("{limit} requests are waiting for an answer, which is the limit; wait for one")]
    TooManyRequests {
        /// How many requests may wait.
        limit: usize,
    },
    /// Too many bytes wait to be sent to the process that has the session open.
    #[error(
        "{limit} bytes of requests, which is the limit, may wait for the process that has the session open; it reads them \
         slowly or not at all: try again later"
    )]
    TooManyQueuedBytes {
        /// How many bytes may wait.
        limit: usize,
    },
    /// The key of an input is too long.
    #[error(
        "the key of the message is longer than {limit} bytes, which is the limit; send a shorter one or none"
    )]
    KeyTooLong {
        /// How many bytes a key may have.
        limit: usize,
    },
    /// The title is too long.
    #[error("the title is longer than {limit} characters, which is the limit; choose a shorter one")]
    TitleTooLong {
        /// How many characters a title may have.
        limit: usize,
    },
    /// The title has no visible character.
    #[error("a title needs at least a letter that can be seen")]
    TitleBlank,
    /// The connection, the session or the program is closing. Nothing was changed.
    #[error("{part} is closing")]
    Closing {
        /// The closing connection, session or program.
        part: ClosingPart,
    },
    /// The connection has reached its limit of watches.
    #[error("{limit} sessions are being watched, which is the limit")]
    TooManyWatched {
        /// How many sessions one connection may watch.
        limit: usize,
    },
    /// A file could not be stored or read.
    #[error("the file cannot be kept: {reason}")]
    MediaUnavailable {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The log cannot be written or read. Nothing was changed by this request.
    #[error("the log cannot be used: {reason}")]
    LogUnavailable {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The request is too long to be sent to the process that has the session open.
    #[error(
        "the request is longer than {limit} bytes, which is the limit for a session of another process; send less"
    )]
    RequestTooLong {
        /// How many bytes the request may have in the form in which it is sent.
        limit: usize,
    },
    /// The process that had the session open was lost before it replied, and repeating the request could carry it out twice.
    #[error(
        "the process that had session {0} open was lost before it replied; the request may have been carried out: look at \
         the session before you repeat it"
    )]
    OutcomeUnknown(SessionId),
    /// The process that has the session open got the request and did not reply in time: it is stopped or overloaded.
    #[error(
        "{owner}, which has session {session} open, does not reply; it may be stopped (Ctrl-Z), and may carry out the request \
         when it continues: look at the session before you repeat it"
    )]
    OwnerSilent {
        /// The session that the client asked for.
        session: SessionId,
        /// The other process, in words for people.
        owner: String,
    },
    /// The code that carried out the request panicked, possibly halfway.
    #[error("an internal error; the log of the server has the details")]
    Internal,
}

impl SessionRefusal {
    /// The refusal of a request to a session that is closing.
    pub fn session_closing(session: &SessionId) -> Self {
        Self::Closing { part: ClosingPart::Session(session.clone()) }
    }
}

/// The part of the server that is closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosingPart {
    /// The connection that sent the request.
    Connection,
    /// One session.
    Session(SessionId),
    /// The whole program.
    Program,
}

impl fmt::Display for ClosingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => f.write_str("the connection"),
            Self::Session(id) => write!(f, "session {id}"),
            Self::Program => f.write_str("the program"),
        }
    }
}
