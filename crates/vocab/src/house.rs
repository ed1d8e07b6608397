//! What can be asked of the house as a whole, by doors whose peers talk to agents.

use std::path::PathBuf;

use crate::{
    Birth, Choice, EventId, Media, MediaId, MessageId, Passage, Queued, RunId, Seen, Seq, SessionCommand,
    SessionId, SessionReply, Usage,
};

/// Something that a door wants of the house.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HouseCommand {
    /// Create a session.
    Create {
        /// Its id, or a new one.
        id: Option<SessionId>,
        /// What it begins with.
        birth: Box<Birth>,
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
        after: Place,
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
    StoreMedia(Vec<File>),
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
pub enum Place {
    /// Up to this place. What it has seen of the run that is under way there is not told again.
    At(Seq),
    /// All there is. The run that is under way is told from its start, so that what follows makes sense;
    /// [`HouseReply::Watching`] says where the new begins.
    Now,
    /// Up to this event, and from the start of the run it belongs to as before; nothing, if the session has
    /// no such event.
    Event(EventId),
}

/// A file with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What it is called, without folders.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Why a file that a peer named was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFlaw {
    /// It cannot be opened: it is not there, is not ours to read, is at a place where nothing is read, or
    /// its name is a symbolic link.
    Closed,
    /// It is a folder, a pipe or something else that is not a file.
    NotRegular,
    /// It has more bytes than were allowed.
    TooLarge,
    /// There is nothing in it.
    Empty,
}

/// What the house answers to an accepted [`HouseCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HouseReply {
    /// A session was created.
    Created(SessionId),
    /// What the session said.
    Session(SessionReply),
    /// The session as it is.
    Overview(Box<Overview>),
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
    Files(Vec<Result<File, FileFlaw>>),
    /// The files were kept, in the order of the question.
    Stored(Vec<Media>),
    /// The contents, in the order of the question; none where it was left out or is gone.
    Contents(Vec<Option<Vec<u8>>>),
}

/// A session as it is at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Which one.
    pub id: SessionId,
    /// Where its log ends.
    pub head: Seq,
    /// What people call it.
    pub title: Option<String>,
    /// What answers.
    pub choice: Choice,
    /// What was said and done, oldest first.
    pub history: Vec<Passage>,
    /// What all runs have consumed.
    pub usage: Usage,
    /// The inputs that wait.
    pub queue: Vec<Queued>,
    /// The run that is active.
    pub active: Option<RunId>,
}

/// Something that happened in a session that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HouseEvent {
    /// Where.
    pub session: SessionId,
    /// What.
    pub seen: Seen,
}
