//! Requests to the writer task and their results; how records are read from rows.

use parlor_vocab::{AgentId, IdError, MessageId, NewEntry, RunId, Seq, SessionId, Timestamp};
use tokio_postgres::Row;

use crate::lease::{Lease, Token};
use crate::snapshot::StoredSnapshot;
use crate::{SessionRecord, row};

/// The columns of a record, in the order in which [`record_from`] reads them.
macro_rules! record_columns {
    () => {
        "id, title, door, agent, created, updated, head, messages, bytes, running"
    };
}
pub(super) use record_columns;

/// About how many bytes an event takes in a message beside its body and its id.
const EVENT_BYTES: usize = 64;

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
    /// `has_work` keeps the row, so that others find the session.
    Release {
        session: SessionId,
        token: Token,
        has_work: bool,
    },
    Delete {
        session: SessionId,
        token: Token,
    },
}

impl WriteRequest {
    pub(super) fn session(&self) -> &SessionId {
        match self {
            Self::Append { session, .. }
            | Self::KeepPartialText { session, .. }
            | Self::KeepSnapshot { session, .. }
            | Self::Acquire { session }
            | Self::Release { session, .. }
            | Self::Delete { session, .. } => session,
        }
    }

    /// About how many bytes the request sends to the server.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append { new, .. } => new
                .iter()
                .map(|event| event.row.body.len() + event.entry.id.as_str().len() + EVENT_BYTES)
                .sum(),
            Self::KeepPartialText { text, .. } => text.len(),
            Self::KeepSnapshot { snapshot, .. } => snapshot.row.body.len(),
            Self::Acquire { .. } | Self::Release { .. } | Self::Delete { .. } => 0,
        }
    }
}

/// An event with its stored form. The appending caller encodes it, because everybody waits for the writer.
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
}

/// Why a stored value cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoredValueError {
    #[error("a stored text is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    #[error("a stored id is not valid: {0}")]
    Id(#[from] IdError),
    #[error("a stored value has another type: {0}")]
    Type(#[from] tokio_postgres::Error),
}

/// The text of a column.
pub(super) fn text(row: &Row, column: usize) -> Result<&str, StoredValueError> {
    Ok(std::str::from_utf8(row.try_get::<_, &[u8]>(column)?)?)
}

/// The text of a column that may be empty.
pub(super) fn optional_text(row: &Row, column: usize) -> Result<Option<&str>, StoredValueError> {
    Ok(row.try_get::<_, Option<&[u8]>>(column)?.map(std::str::from_utf8).transpose()?)
}

/// Reads a record from a row that begins with the columns of `record_columns!`.
pub(super) fn record_from(row: &Row) -> Result<SessionRecord, StoredValueError> {
    let number = |column: usize| row.try_get::<_, i64>(column);
    Ok(SessionRecord {
        id: SessionId::parse(text(row, 0)?)?,
        title: optional_text(row, 1)?.map(str::to_owned),
        door: text(row, 2)?.to_owned(),
        agent: optional_text(row, 3)?.map(AgentId::parse).transpose()?,
        created: Timestamp(number(4)?),
        updated: Timestamp(number(5)?),
        head: Seq(number(6)? as u64),
        messages: number(7)? as u64,
        bytes: number(8)? as u64,
        running: optional_text(row, 9)?.map(RunId::parse).transpose()?,
    })
}
