//! Requests to the writer thread and their results; how records are read from rows.

use std::path::Path;

use parlor_vocab::{AgentId, MessageId, NewEntry, RunId, Seq, SessionId, Timestamp};
use rusqlite::{Error, Row};

use crate::lease::{Lease, Token};
use crate::snapshot::StoredSnapshot;
use crate::{LogError, SessionRecord, row};

/// The key of an event in the tables is its `place`: the session's key, times this, plus the event's [`Seq`].
pub(super) const PLACES_PER_SESSION: i64 = 1 << 32;

/// The columns of a record, in the order in which [`record_from`] reads them.
pub(super) const RECORD_COLUMNS: &str =
    "s.id, s.title, s.door, s.agent, s.created, s.updated, s.head, s.messages, s.bytes, s.running";

/// A request to change the database.
pub(super) enum WriteRequest {
    Append {
        session: SessionId,
        token: Token,
        after: Seq,
        new: Vec<EncodedEntry>,
    },
    KeepPartialText {
        session: SessionId,
        token: Token,
        message: MessageId,
        start: usize,
        text: String,
    },
    KeepSnapshot {
        session: SessionId,
        token: Token,
        snapshot: StoredSnapshot,
    },
    Acquire {
        session: SessionId,
    },
    Release {
        session: SessionId,
        token: Token,
    },
    Delete {
        session: SessionId,
        token: Token,
    },
    /// Returns some unused space to the file system.
    Reclaim,
}

/// An event with its stored form. The appending caller encodes it, because everybody waits for the writer thread.
pub(super) struct EncodedEntry {
    pub(super) entry: NewEntry,
    pub(super) row: row::Row,
}

impl EncodedEntry {
    pub(super) fn new(entry: &NewEntry) -> Self {
        Self { entry: entry.clone(), row: row::encode(&entry.event) }
    }
}

/// The result of a request, as its caller gets it.
pub(super) enum WriteReply {
    Appended(Seq),
    PartialTextKept,
    SnapshotKept,
    Leased(Lease),
    Released,
    Deleted,
    Reclaimed(ReclaimStep),
}

/// The result of a request inside the transaction, before the commit.
pub(super) enum Applied {
    Appended(SessionId, Seq),
    PartialTextKept,
    SnapshotKept,
    Leased(SessionId, Token),
    Released(SessionId, Token),
    Deleted(SessionId),
    Reclaimed(ReclaimStep),
}

/// The result of one step of returning space.
#[derive(Clone, Copy)]
pub(super) struct ReclaimStep {
    /// By how much the database became smaller.
    pub(super) bytes: u64,
    /// Whether another step can return more.
    pub(super) more: bool,
}

/// Why a request was not applied.
pub(super) enum RequestError {
    /// The request is not allowed; it has written nothing.
    Refused(LogError),
    /// The database failed; the whole transaction has to be rolled back.
    Database(Error),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// What a request needs to know of the store that sends it.
pub(super) struct RequestContext<'a> {
    /// The folder of the lock files.
    pub(super) holders: &'a Path,
    /// The name of this store's lock file.
    pub(super) holder_name: &'a str,
    pub(super) now: Timestamp,
    /// The token of the lease, if the request takes one.
    pub(super) next_token: Token,
}

/// Reads a record from a row that begins with [`RECORD_COLUMNS`].
pub(super) fn record_from(row: &Row<'_>) -> rusqlite::Result<SessionRecord> {
    let text = |index| row.get::<_, Option<String>>(index);
    let parsed = |index: usize, error| {
        Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, Box::new(error))
    };
    Ok(SessionRecord {
        id: SessionId::parse(row.get_ref(0)?.as_str()?).map_err(|error| parsed(0, error))?,
        title: text(1)?,
        door: row.get(2)?,
        agent: text(3)?.map(|id| AgentId::parse(&id)).transpose().map_err(|error| parsed(3, error))?,
        created: Timestamp(row.get(4)?),
        updated: Timestamp(row.get(5)?),
        head: Seq(row.get::<_, i64>(6)? as u64),
        messages: row.get::<_, i64>(7)? as u64,
        bytes: row.get::<_, i64>(8)? as u64,
        running: text(9)?.map(|id| RunId::parse(&id)).transpose().map_err(|error| parsed(9, error))?,
    })
}
