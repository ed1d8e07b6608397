//! What can be asked of the house as a whole, by doors whose peers talk to agents.

use std::path::PathBuf;

use crate::{
    AgentChoice, EventId, HistoryItem, Media, MediaId, MessageId, NewSession, QueuedInput, RunId, Seq,
    SessionCommand, SessionId, SessionReply, SessionUpdate, Usage,
};

/// Something that a door wants of the house.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryRequest {
    /// Create a session.
    Create {
        /// Its id, or a new one.
        id: Option<SessionId>,
        /// What it begins with.
        new_session: Box<NewSession>,
    },
    /// Create a session that begins with the messages of another.
    Fork {
        /// Its id, or a new one.
        id: Option<SessionId>,
        /// The other.
        from: SessionId,
        /// The last message to copy; all if none.
        message: Option<MessageId>,
    },
    /// Do something to a session.
    Session(SessionId, SessionCommand),
    /// Look at a session as it is now.
    Look(SessionId),
    /// Tell what happens in a session, from a place in its log on. One that is not there is waited for.
    Watch {
        /// Which one.
        session: SessionId,
        /// What was seen already.
        after: WatchFrom,
    },
    /// Tell no more of a session.
    Unwatch(SessionId),
    /// Tell no more of a session, and let it go if it has nothing to do.
    Leave(SessionId),
    /// Delete a session.
    Delete(SessionId),
    /// Read files of this machine that a peer named.
    ReadFiles {
        /// Absolute paths.
        paths: Vec<PathBuf>,
        /// The largest file.
        max_bytes: u64,
    },
    /// Read a file that a peer says is at this address of the network.
    Fetch {
        /// Where it is.
        url: String,
        /// The largest file.
        max_bytes: u64,
    },
    /// Keep files that will come along with an input.
    StoreMedia(Vec<NamedFile>),
    /// The contents of kept files.
    ReadMedia {
        /// Which ones.
        ids: Vec<MediaId>,
        /// How much to read in all; what comes after that is left out.
        max_bytes: u64,
    },
}

/// Up to where a watcher has seen what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// Up to this place. What it has seen of the run that is under way there is not told again.
    At(Seq),
    /// All there is. The run that is under way is told from its start, so that what follows makes sense;
    /// [`RegistryReply::Watching`] says where the new begins.
    Now,
    /// Up to this event, and from the start of the run it belongs to as before; nothing, if the session has
    /// no such event.
    Event(EventId),
}

/// A file with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// What it is called, without folders.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Why a file that a client named was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// There is none.
    Missing,
    /// It is a folder, a pipe or something else that is not a file.
    NotRegular,
    /// It cannot be looked at, because of a folder above it.
    Inaccessible,
    /// It cannot be opened or read, or it is a symbolic link where none is followed, or it is on a network from which
    /// nothing is read.
    Unreadable,
    /// It has more bytes than were allowed.
    TooLarge {
        /// How many, as far as they were counted.
        bytes: u64,
    },
    /// It has no bytes, where some are needed.
    Empty,
}

/// What the house answers to an accepted [`RegistryRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryReply {
    /// A session was created.
    Created(SessionId),
    /// What the session said.
    Session(SessionReply),
    /// The session as it is.
    Overview(Box<SessionOverview>),
    /// It is being watched: events follow.
    Watching {
        /// What stands up to here was seen before; where it is told, it is told as a background.
        seen: Seq,
        /// What stands up to here happened before the watch began.
        head: Seq,
    },
    /// Done.
    Done,
    /// The files, or why there is none, in the order of the question.
    Files(Vec<Result<NamedFile, FileError>>),
    /// The files were kept, in the order of the question.
    Stored(Vec<Media>),
    /// The contents, in the order of the question; none where it was left out or is gone.
    Contents(Vec<Option<Vec<u8>>>),
}

/// A session as it is at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOverview {
    /// Which one.
    pub id: SessionId,
    /// Where its log ends.
    pub head: Seq,
    /// What people call it.
    pub title: Option<String>,
    /// What answers.
    pub choice: AgentChoice,
    /// What was said and done, oldest first.
    pub history: Vec<HistoryItem>,
    /// What all runs have consumed.
    pub usage: Usage,
    /// The inputs that wait.
    pub queue: Vec<QueuedInput>,
    /// The run that is active.
    pub active: Option<RunId>,
}

/// Something that happened in a session that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEvent {
    /// Where.
    pub session: SessionId,
    /// What.
    pub seen: SessionUpdate,
}
