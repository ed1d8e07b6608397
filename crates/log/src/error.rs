//! The errors of the log.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use parlor_vocab::{Seq, SessionId, Timestamp};

/// The process that holds a lease, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The name of the process's node. `None` if the log is on one machine.
    pub node: Option<String>,
    /// The process id, for error messages.
    pub pid: u32,
    /// When the process took the lease.
    pub since: Timestamp,
    /// What the process announced of itself; empty for a process that announced nothing.
    pub announcement: Announcement,
}

impl fmt::Display for LeaseHolder {
    /// For error messages, such as `process 12` or `process 12 on node a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        self.node.as_ref().map_or(Ok(()), |node| write!(f, " on node {node}"))
    }
}

/// What a process that holds leases tells others of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The version of the program.
    pub version: Option<String>,
    /// Where the process serves its sessions to other processes. The log does not interpret it.
    pub address: Option<String>,
}

/// Why an operation of the log failed. Nothing was changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The caller does not know the latest events.
    #[error("the session has gone on to event {}; read on from there and try again", head.0)]
    Conflict {
        /// The present head of the session.
        head: Seq,
    },
    /// Another process, or another part of this process, holds the lease.
    #[error("session {session} is in use by {by}; close it there, or end that process")]
    Held {
        /// The leased session.
        session: SessionId,
        /// The process that holds the lease.
        by: LeaseHolder,
    },
    /// The session was created by a node with other files, and no such node has it open.
    #[error("session {session} belongs to workspace {workspace}; open it on a node of that workspace")]
    OtherWorkspace {
        /// The session that was not leased.
        session: SessionId,
        /// The label of its workspace.
        workspace: String,
    },
    /// The caller's lease was released or taken over, or its session was deleted.
    #[error("the right to write session {session} was lost; acquire it again and read what happened since")]
    NotHeld {
        /// The session of the lost lease.
        session: SessionId,
    },
    /// The session does not exist.
    #[error("no session {0}; list the sessions to see which there are")]
    UnknownSession(SessionId),
    /// A stored event cannot be decoded.
    #[error("event {} of session {session} cannot be read ({reason}); a newer parlor may be able to", seq.0)]
    Unreadable {
        /// The session of the event.
        session: SessionId,
        /// The event's number.
        seq: Seq,
        /// What the decoder found.
        reason: String,
    },
    /// The disk, or the quota, is full.
    #[error("no room left on the disk that holds {store:?}; free some and try again")]
    Full {
        /// The path of the database or of a file next to it, or the address of the database server.
        store: String,
    },
    /// The database cannot be written: permissions, a read-only file system, or a server that is a standby.
    #[error(
        "{store:?} cannot be written; make the folder and its files writable or name the primary server, or choose \
         another one"
    )]
    ReadOnly {
        /// The path of the database or of a file next to it, or the address of the database server.
        store: String,
    },
    /// The database server cannot be reached. A write that was under way may have been stored, or may still be stored;
    /// read the session before you repeat it.
    #[error("the database cannot be reached ({reason}); try again in {} s", retry.as_secs_f32())]
    Unavailable {
        /// How long a caller does well to wait before it tries again.
        retry: Duration,
        /// What failed.
        reason: String,
    },
    /// A file of the database was removed or replaced while it was open. The log of this process refuses all further
    /// writes. A write that was under way at that moment may have been stored.
    #[error(
        "{path:?} was removed or replaced while parlor had it open, and nothing is recorded any more; put the right \
         file in its place and restart parlor"
    )]
    Replaced {
        /// The database or a file next to it.
        path: PathBuf,
    },
    /// The database is damaged. The log of this process refuses all further writes.
    #[error(
        "{path:?} is damaged ({found}), and nothing is recorded in it any more; end every parlor that uses it, run \
         parlor doctor --recover, which saves what can be read, and restart parlor"
    )]
    Damaged {
        /// The damaged database.
        path: PathBuf,
        /// SQLite's description of the damage.
        found: String,
    },
    /// The operation needs the database for itself, and another process has it open.
    #[error("{} uses {path:?}; end it and try again", process_name(*pid))]
    InUse {
        /// The database.
        path: PathBuf,
        /// The other process, if known.
        pid: Option<u32>,
    },
    /// Another process locked the database for longer than [`BUSY_WAIT`](crate::BUSY_WAIT).
    #[error("the database was kept busy by another process for {} seconds; try again", crate::BUSY_WAIT.as_secs())]
    Busy,
    /// A newer version of parlor made the database.
    #[error("the database has format {found} and this parlor knows {known}; use a newer parlor")]
    Newer {
        /// The format of the database.
        found: i64,
        /// The newest format that this version supports.
        known: i64,
    },
    /// The database failed in another way.
    #[error("the database {store:?} failed: {source}")]
    Database {
        /// The path of the database, or the address of its server.
        store: String,
        /// The error of the database's driver.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The operating system failed in another way.
    #[error("cannot {attempt} {path:?}: {source}")]
    Io {
        /// The operation, such as `open`; a verb for the error text.
        attempt: &'static str,
        /// The file or folder of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store was closed, or its writer thread panicked.
    #[error("the log is closed; restart parlor")]
    Closed,
}

fn process_name(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl LogError {
    /// Makes an error of a failed file operation, for `map_err`.
    pub(crate) fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            if matches!(source.kind(), StorageFull | QuotaExceeded) {
                Self::Full { store: path.display().to_string() }
            } else if matches!(source.kind(), ReadOnlyFilesystem | PermissionDenied) {
                Self::ReadOnly { store: path.display().to_string() }
            } else {
                Self::Io { attempt, path, source }
            }
        }
    }
}
