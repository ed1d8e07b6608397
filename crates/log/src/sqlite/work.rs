//! What the writer can be asked for, and what can come of it.

use std::path::Path;

use parlor_vocab::{AgentId, NewEntry, RunId, Seq, SessionId, Timestamp};
use rusqlite::{Error, Row};

use crate::lease::{Lease, Token};
use crate::{LogError, SessionRecord, row};

/// A session's key, times this, plus a seq, is an event's place.
pub(super) const SPAN: i64 = 1 << 32;

/// The columns of a record, in the order in which [`record_from`] reads them.
pub(super) const RECORD: &str =
    "s.id, s.title, s.door, s.agent, s.created, s.updated, s.head, s.messages, s.bytes, s.running";

/// A change.
pub(super) enum Work {
    Append {
        session: SessionId,
        token: Token,
        after: Seq,
        new: Vec<NewEvent>,
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
    /// Gives some of the space that nothing uses back to the file system.
    Reclaim,
}

/// An event with what is to be stored of it: written down by whoever appends, not by the writer,
/// for whom all others wait.
pub(super) struct NewEvent {
    pub(super) draft: NewEntry,
    pub(super) row: row::Row,
}

impl NewEvent {
    pub(super) fn of(draft: &NewEntry) -> Self {
        Self { draft: draft.clone(), row: row::encode(&draft.event) }
    }
}

/// What came of it.
pub(super) enum Done {
    Appended(Seq),
    Leased(Lease),
    Released,
    Deleted,
    Reclaimed(Freed),
}

/// What came of it, while the transaction is open.
pub(super) enum Written {
    Appended(SessionId, Seq),
    Leased(SessionId, Token),
    Released(SessionId, Token),
    Deleted(SessionId),
    Reclaimed(Freed),
}

/// What a step of giving space back has done.
#[derive(Clone, Copy)]
pub(super) struct Freed {
    /// How much smaller the database became.
    pub(super) bytes: u64,
    /// Whether there is more to be had.
    pub(super) more: bool,
}

/// Why it was not done.
pub(super) enum WriterTrouble {
    /// By itself; nothing was written.
    Refused(LogError),
    /// The database failed; the transaction cannot be trusted any more.
    Broken(Error),
}

impl From<Error> for WriterTrouble {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// Who asks.
pub(super) struct WriteRequester<'a> {
    pub(super) holders: &'a Path,
    pub(super) name: &'a str,
    pub(super) now: Timestamp,
    pub(super) next_token: Token,
}

/// The record in a row that begins with the columns of [`RECORD`].
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
