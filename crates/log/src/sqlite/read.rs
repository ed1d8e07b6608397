//! Reading, on connections of its own: readers and the writer do not wait for each other.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{Entry, EventId, Seq, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::READ_CONNECTIONS;
use super::fault::fault;
use super::schema::connect;
use super::work::{RECORD, record_from};
use crate::{LogError, Page, PageRequest, READ_BYTES, SessionRecord, row};

/// The connections that read. Opened when they are needed, then kept.
pub(super) struct Readers {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(database: PathBuf) -> Self {
        let permits = Arc::new(Semaphore::new(READ_CONNECTIONS));
        Self { database, idle: Mutex::default(), permits }
    }

    /// Has `job` read on a thread that may wait for the disk. Such a thread belongs to the
    /// runtime, which ends it when there has been nothing to do for a while.
    pub(super) async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Connection, &Path) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| LogError::Closed)?;
        let readers = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let connection = readers.connection()?;
            let outcome = job(&connection, &readers.database);
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            outcome
        });
        match task.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(LogError::Closed),
        }
    }

    fn connection(&self) -> Result<Connection, LogError> {
        if let Some(connection) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(connection);
        }
        let failed = |error| fault(&self.database, error);
        let connection = connect(&self.database).map_err(failed)?;
        connection.pragma_update(None, "query_only", true).map_err(failed)?;
        Ok(connection)
    }
}

/// Events of a session. See [`EventLog::read`](crate::EventLog::read).
pub(super) fn entries(
    connection: &Connection,
    path: &Path,
    of: &SessionId,
    after: Seq,
    max: usize,
) -> Result<Vec<Entry>, LogError> {
    let failed = |error| fault(path, error);
    let after = i64::from(u32::try_from(after.0).unwrap_or(u32::MAX));
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    // One statement, hence one moment: a key that is looked up first could be another session's
    // by the time it is used.
    let mut statement = connection
        .prepare(
            "SELECT e.place & 0xffffffff, e.id, e.at, e.version, e.body FROM sessions AS s
             JOIN events AS e ON e.place > (s.key << 32) + ?2 AND e.place < (s.key + 1) << 32
             WHERE s.id = ?1 ORDER BY e.place LIMIT ?3",
        )
        .map_err(failed)?;
    let mut rows = statement.query(params![of.as_str(), after, limit]).map_err(failed)?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |index| row.get_ref(index).and_then(|value| Ok(value.as_str()?));
        let seq = Seq(row.get::<_, i64>(0).map_err(failed)? as u64);
        let body = text(4).map_err(failed)?;
        let event = row::decode(row.get(3).map_err(failed)?, body);
        let id = EventId::parse(text(1).map_err(failed)?).map_err(row::RowError::from);
        match event.and_then(|event| Ok((event, id?))) {
            Ok((event, id)) => {
                let at = Timestamp(row.get(2).map_err(failed)?);
                entries.push(Entry { seq, id, at, event });
            }
            // What stands before it is worth having; the next call meets it first.
            Err(_) if !entries.is_empty() => return Ok(entries),
            Err(error) => {
                let (session, reason) = (of.clone(), error.to_string());
                return Err(LogError::Unreadable { session, seq, reason });
            }
        }
        bytes += body.len();
        if bytes > READ_BYTES {
            return Ok(entries);
        }
    }
    if entries.is_empty() {
        record(connection, path, of)?;
    }
    Ok(entries)
}

/// The record of a session.
pub(super) fn record(
    connection: &Connection,
    path: &Path,
    id: &SessionId,
) -> Result<SessionRecord, LogError> {
    let sql = format!("SELECT {RECORD} FROM sessions AS s WHERE s.id = ?1");
    let found = connection.query_row(&sql, [id.as_str()], record_from).optional();
    found.map_err(|error| fault(path, error))?.ok_or_else(|| LogError::UnknownSession(id.clone()))
}

/// A part of the list of sessions.
pub(super) fn page(connection: &Connection, path: &Path, page: &PageRequest) -> Result<Page, LogError> {
    let limit = page.bounded();
    let read = || {
        let order = "ORDER BY s.updated DESC, s.id DESC LIMIT ?1";
        let fetch = limit as i64 + 1;
        match &page.after {
            None => {
                let sql = format!("SELECT {RECORD} FROM sessions AS s {order}");
                connection.prepare(&sql)?.query_map([fetch], record_from)?.collect()
            }
            Some(after) => {
                let place = "WHERE (s.updated, s.id) < (?2, ?3)";
                let sql = format!("SELECT {RECORD} FROM sessions AS s {place} {order}");
                let values = params![fetch, after.updated.0, after.id.as_str()];
                connection.prepare(&sql)?.query_map(values, record_from)?.collect()
            }
        }
    };
    let records: rusqlite::Result<Vec<SessionRecord>> = read();
    records.map(|records| Page::cut(records, limit)).map_err(|error| fault(path, error))
}
