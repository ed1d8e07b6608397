//! Requests to the session registry: create, use, watch and delete sessions, and store files.

use std::path::PathBuf;

use crate::{
    AgentChoice, EventId, HistoryItem, Media, MediaId, MessageId, NewSession, PolicyMode, Question,
    QueuedInput, RunId, Seq, SessionCommand, SessionId, SessionReply, SessionUpdate, Usage,
};

/// A request to the session registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryRequest {
    /// Creates a session.
    Create {
        /// The id to use; `None` generates one. An id that exists is refused.
        id: Option<SessionId>,
        /// Title, folder, agent and instructions of the new session.
        new_session: Box<NewSession>,
    },
    /// Creates a session that begins with a copy of another session's messages.
    Fork {
        /// The id of the new session; `None` generates one. An id that exists is refused.
        id: Option<SessionId>,
        /// The session to copy from.
        from: SessionId,
        /// The last message to copy; `None` copies all.
        message: Option<MessageId>,
    },
    /// Sends a command to a session.
    Session(SessionId, SessionCommand),
    /// Returns the present state of a session.
    GetOverview(SessionId),
    /// Returns the number of messages and the usage of a session, without its history.
    GetTotals(SessionId),
    /// Reports the updates of a session from a position in its log on. If the session does not exist, the watch waits
    /// until somebody creates it. A second watch of a session replaces the first.
    Watch {
        /// The session to watch.
        session: SessionId,
        /// Where the reports begin.
        after: WatchFrom,
        /// Whether to report live text too. A watch without it is not woken by text.
        deltas: bool,
    },
    /// Ends a watch.
    Unwatch(SessionId),
    /// Ends a watch, and unloads the session if it is idle.
    Release(SessionId),
    /// Deletes a session and its log.
    Delete(SessionId),
    /// When the connection ends, deletes this session if nothing happened in it since it was created; `None` deletes
    /// none. The last request counts.
    DeleteIfUnused(Option<SessionId>),
    /// Reads files of this machine that a client named. Refuses symbolic links and empty files.
    ReadFiles {
        /// Absolute paths.
        paths: Vec<PathBuf>,
        /// The size limit of each file.
        max_bytes: u64,
    },
    /// Downloads a file that a client named by its URL.
    Fetch {
        /// An absolute URL.
        url: String,
        /// The size limit of the file.
        max_bytes: u64,
    },
    /// Stores files that a later input will attach.
    StoreMedia(Vec<NamedFile>),
    /// Removes files that were stored for an input which was then refused. A file that was stored before, or has been
    /// stored again since, stays.
    DiscardMedia(Vec<MediaId>),
    /// Reads stored files.
    ReadMedia {
        /// The files, in the order of the reply.
        ids: Vec<MediaId>,
        /// The limit of all files together; files beyond it are left out.
        max_bytes: u64,
    },
}

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// After this event.
    At(Seq),
    /// At the present end of the log. If a run is active, the watch reports it from its start, because its later events
    /// make no sense alone; [`RegistryReply::Watching`] says which events are new.
    Now,
    /// After this event. As with [`Now`](Self::Now), the run that the event belongs to is reported from its start. If
    /// the session has no such event, the watch begins at the start of the log.
    Event(EventId),
}

/// A file's name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The file name, without folders.
    pub name: String,
    /// The whole content.
    pub bytes: Vec<u8>,
}

/// Why a file that a client named was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// The file does not exist.
    Missing,
    /// The path is a folder, a pipe or something else that is not a regular file.
    NotRegular,
    /// A folder on the path cannot be entered.
    Inaccessible,
    /// The file cannot be opened or read; or it is a symbolic link where links are refused; or it is a download from a
    /// network that parlor may not reach.
    Unreadable,
    /// The file is larger than the limit.
    TooLarge {
        /// The size, or the part of it that was read before parlor gave up.
        bytes: u64,
    },
    /// The file is empty where content is required.
    Empty,
}

/// The reply to an accepted [`RegistryRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryReply {
    /// The session was created.
    Created(SessionId),
    /// The session's reply to its command.
    Session(SessionReply),
    /// The present state of the session.
    Overview(Box<SessionOverview>),
    /// The totals of the session.
    Totals(SessionTotals),
    /// The watch began; [`RegistryEvent`]s follow.
    Watching {
        /// The client has seen the events up to this one. The watch reports some of them again as context.
        seen: Seq,
        /// The end of the log when the watch began.
        head: Seq,
    },
    /// The request was carried out and has no result.
    Done,
    /// One result for each path, in the order of the request.
    Files(Vec<Result<NamedFile, FileError>>),
    /// The stored files, in the order of the request.
    Stored(Vec<Media>),
    /// One content for each id, in the order of the request; `None` if the file was left out or no longer exists.
    Contents(Vec<Option<Vec<u8>>>),
}

/// The state of a session at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOverview {
    /// The session.
    pub id: SessionId,
    /// The last event that this state includes.
    pub head: Seq,
    /// The title, if anybody set one.
    pub title: Option<String>,
    /// The agent, model and reasoning effort of later runs.
    pub choice: AgentChoice,
    /// Messages, tool calls and unfinished runs, oldest first.
    pub history: Vec<HistoryItem>,
    /// The sum over all runs.
    pub usage: Usage,
    /// The inputs that wait for the active run, first to run first.
    pub queue: Vec<QueuedInput>,
    /// The active run, if any.
    pub active: Option<RunId>,
    /// The mode that was chosen for the session, if any.
    pub mode: Option<PolicyMode>,
    /// The question that the active run waits for.
    pub question: Option<Question>,
}

/// The size and the usage of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// How many messages the history has as model APIs count them; see [`MessageCounter`](crate::MessageCounter).
    pub messages: u64,
    /// The sum over all runs.
    pub usage: Usage,
}

/// An update of a watched session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEvent {
    /// The watched session.
    pub session: SessionId,
    /// A log entry, or a piece of text that is being written.
    pub update: SessionUpdate,
}
