//! Why the log could not do something.

use std::io;
use std::path::PathBuf;

use parlor_vocab::{Seq, SessionId, Timestamp};

/// Who has a lease. For people: nothing is decided by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The process.
    pub pid: u32,
    /// When it took the lease.
    pub since: Timestamp,
}

/// Why the log could not do something. Nothing was changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Somebody appended since the caller looked.
    #[error("the session has gone on to event {}; read on from there and try again", head.0)]
    Conflict {
        /// Where the session stands.
        head: Seq,
    },
    /// Another process, or another part of this one, writes the session.
    #[error("session {session} is in use by process {}; close it there, or end that process", by.pid)]
    Held {
        /// The session.
        session: SessionId,
        /// Who has it.
        by: LeaseHolder,
    },
    /// The lease is not ours any more: it was given back, taken over, or its session was deleted.
    #[error("the right to write session {session} was lost; acquire it again and read what happened since")]
    NotHeld {
        /// The session.
        session: SessionId,
    },
    /// There is no such session.
    #[error("no session {0}; list the sessions to see which there are")]
    UnknownSession(SessionId),
    /// A stored event cannot be understood.
    #[error("event {} of session {session} cannot be read ({reason}); a newer parlor may be able to", seq.0)]
    Unreadable {
        /// The session.
        session: SessionId,
        /// The event's place.
        seq: Seq,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk, or the quota, is full.
    #[error("no room left on the disk that holds {path:?}; free some and try again")]
    Full {
        /// The database or a file beside it.
        path: PathBuf,
    },
    /// The place may be read only.
    #[error("{path:?} cannot be written; make the folder and its files writable, or choose another folder")]
    ReadOnly {
        /// The database or a file beside it.
        path: PathBuf,
    },
    /// A file of the database was removed or replaced while it was open. The log of this process is lost: it
    /// takes nothing any more. What was asked for at that very moment may have been kept.
    #[error(
        "{path:?} was removed or replaced while parlor had it open, and nothing is recorded any more; put the right \
         file in its place and restart parlor"
    )]
    Replaced {
        /// The database or a file beside it.
        path: PathBuf,
    },
    /// The database is damaged. The log of this process takes nothing any more.
    #[error(
        "{path:?} is damaged ({found}), and nothing is recorded in it any more; end every parlor that uses it, run \
         parlor doctor --recover, which saves what can be read, and restart parlor"
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        found: String,
    },
    /// Another process has the database open, and must not while this is done.
    #[error("{} uses {path:?}; end it and try again", process(*pid))]
    InUse {
        /// The database.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// Another process kept the database to itself for too long.
    #[error("the database was kept busy by another process for {} seconds; try again", crate::BUSY_WAIT.as_secs())]
    Busy,
    /// The database was made by a version of parlor that came later.
    #[error("the database has format {found} and this parlor knows {known}; use a newer parlor")]
    Newer {
        /// Its format.
        found: i64,
        /// The newest format that is known here.
        known: i64,
    },
    /// The database failed in another way.
    #[error("the database {path:?} failed: {source}")]
    Database {
        /// The database.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
    /// The operating system failed in another way.
    #[error("cannot {attempt} {path:?}: {source}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The part of the store that does the work has ended.
    #[error("the log is closed; restart parlor")]
    Closed,
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl LogError {
    /// For `map_err`: the system refused to `attempt`.
    pub(crate) fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            if matches!(source.kind(), StorageFull | QuotaExceeded) {
                Self::Full { path }
            } else if matches!(source.kind(), ReadOnlyFilesystem | PermissionDenied) {
                Self::ReadOnly { path }
            } else {
                Self::Io { attempt, path, source }
            }
        }
    }
}
