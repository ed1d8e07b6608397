//! The connections for reading, and all queries but that for events. Readers and the writer do not block each other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{EventId, MediaId, MessageId, Seq, SessionId, Timestamp, Usage};
use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension, params};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::db_error::db_error;
use super::open_files::OpenFiles;
use super::request::{PLACES_PER_SESSION, RECORD_COLUMNS, record_from};
use super::schema::connect;
use super::{READ_CONNECTIONS, SHORT_READ_CONNECTIONS, holder};
use crate::partial_text::join_pieces;
use crate::row::Row;
use crate::snapshot::StoredSnapshot;
use crate::{
    LeaseHolder, LogError, MAX_USAGE_LINES, Page, PageRequest, PartialMessage, SessionRecord, UsageLine,
};

/// The pool of reading connections. A connection is opened when it is needed and then kept.
pub(super) struct Readers {
    files: Arc<OpenFiles>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    /// For short reads only: reads of large events may take all of `permits` for seconds.
    short_permits: Arc<Semaphore>,
    /// Whether a background task empties the write-ahead log. Locked during each attempt: SQLite refuses a second
    /// checkpoint, however long the first takes.
    pub(super) retrying_erase: tokio::sync::Mutex<bool>,
}

impl Readers {
    pub(super) fn new(files: Arc<OpenFiles>) -> Self {
        let permits = Arc::new(Semaphore::new(READ_CONNECTIONS));
        let short_permits = Arc::new(Semaphore::new(SHORT_READ_CONNECTIONS));
        let retrying_erase = tokio::sync::Mutex::default();
        Self { files, idle: Mutex::default(), permits, short_permits, retrying_erase }
    }

    /// Waits for a free connection and runs `job`, a short read, on a blocking thread of the runtime.
    pub(super) async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Connection, &Path) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(&self.short_permits).acquire_owned() => permit,
            permit = Arc::clone(&self.permits).acquire_owned() => permit,
        };
        self.run(permit.map_err(|_| LogError::Closed)?, job).await
    }

    /// Like [`with`](Self::with), for a read of events, which may be long.
    pub(super) async fn with_events<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Connection, &Path) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| LogError::Closed)?;
        self.run(permit, job).await
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        job: impl FnOnce(&Connection, &Path) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let readers = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let connection = readers.connection()?;
            let result = job(&connection, readers.files.database());
            if let Err(error) = &result {
                readers.files.note_error(error);
            }
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        });
        match task.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(LogError::Closed),
        }
    }

    /// Runs `job` on another thread and connection, if one is free now.
    pub(super) fn try_spawn<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let readers = Arc::clone(self);
        let (answer, receiver) = sync_channel(1);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if let Ok(connection) = readers.connection() {
                // Fails if the caller finished without this result.
                let _ = answer.send(job(&connection));
                readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
        });
        Some(receiver)
    }

    fn connection(&self) -> Result<Connection, LogError> {
        if let Some(connection) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(connection);
        }
        let failed = |error| db_error(self.files.database(), error);
        // Before: opening could create a removed file again. After: the opened file must be the verified one.
        self.files.verify()?;
        let connection = connect(self.files.database()).map_err(failed)?;
        connection.pragma_update(None, "query_only", true).map_err(failed)?;
        self.files.verify()?;
        Ok(connection)
    }

    /// The files of the database.
    pub(super) fn files(&self) -> &OpenFiles {
        &self.files
    }
}

/// The stored files that any session refers to.
pub(super) fn media(connection: &Connection, path: &Path) -> Result<BTreeSet<MediaId>, LogError> {
    let read = || {
        let mut statement = connection.prepare("SELECT DISTINCT id FROM media")?;
        let ids = statement.query_map([], |row| {
            let id = MediaId::parse(row.get_ref(0)?.as_str()?);
            id.map_err(|error| Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
        })?;
        ids.collect::<rusqlite::Result<_>>()
    };
    read().map_err(|error| db_error(path, error))
}

/// The number of an event. See [`EventLog::find`](crate::EventLog::find).
pub(super) fn find(
    connection: &Connection,
    path: &Path,
    session: &SessionId,
    event: &EventId,
) -> Result<Option<Seq>, LogError> {
    let read = || {
        // One snapshot of both tables: otherwise an event that is moved in between would be in neither.
        let _snapshot = connection.unchecked_transaction()?;
        let sql = "SELECT key FROM sessions WHERE id = ?1";
        let Some(key) =
            connection.query_row(sql, [session.as_str()], |row| row.get::<_, i64>(0)).optional()?
        else {
            return Ok(None);
        };
        for table in ["fresh", "events"] {
            // From the end, because callers mostly look for a late event.
            let range = "place BETWEEN ?1 AND ?2 AND id = ?3 ORDER BY place DESC LIMIT 1";
            let sql = format!("SELECT place FROM {table} WHERE {range}");
            let values =
                params![key * PLACES_PER_SESSION, (key + 1) * PLACES_PER_SESSION - 1, event.as_str()];
            let place = connection.query_row(&sql, values, |row| row.get::<_, i64>(0)).optional()?;
            if let Some(place) = place {
                return Ok(Some(Seq(u64::try_from(place - key * PLACES_PER_SESSION).unwrap_or(0))));
            }
        }
        Ok(None)
    };
    read().map_err(|error| db_error(path, error))
}

/// The unfinished message of a session. See [`EventLog::partial_message`](crate::EventLog::partial_message).
pub(super) fn partial_message(
    connection: &Connection,
    path: &Path,
    session: &SessionId,
) -> Result<Option<PartialMessage>, LogError> {
    let failed = |error| db_error(path, error);
    let sql = "SELECT message, start, text FROM partial_texts
               WHERE session = (SELECT key FROM sessions WHERE id = ?1) ORDER BY start";
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let pieces = statement.query_map([session.as_str()], |row| {
        let message = MessageId::parse(row.get_ref(0)?.as_str()?);
        let message =
            message.map_err(|error| Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))?;
        Ok((message, usize::try_from(row.get::<_, i64>(1)?).unwrap_or(usize::MAX), row.get(2)?))
    });
    join_pieces(pieces.map_err(failed)?.map(|piece| piece.map_err(failed)))
}

/// The snapshot of a session, if its event is in the log. See [`EventLog::snapshot`](crate::EventLog::snapshot).
pub(super) fn snapshot(
    connection: &Connection,
    path: &Path,
    session: &SessionId,
) -> Result<Option<StoredSnapshot>, LogError> {
    let is_in = |table: &str| {
        format!(
            "EXISTS (SELECT 1 FROM {table} WHERE place = s.key * {PLACES_PER_SESSION} + n.seq AND id = n.event)"
        )
    };
    let sql = format!(
        "SELECT n.seq, n.event, n.version, n.body FROM sessions AS s JOIN snapshots AS n ON n.session = s.key
         WHERE s.id = ?1 AND n.seq <= s.head AND ({} OR {})",
        is_in("events"),
        is_in("fresh")
    );
    let found = connection.query_row(&sql, [session.as_str()], |row| {
        let event = EventId::parse(row.get_ref(1)?.as_str()?);
        let event = event.map_err(|error| Error::FromSqlConversionFailure(1, Type::Text, Box::new(error)))?;
        let seq = Seq(row.get::<_, i64>(0)? as u64);
        Ok(StoredSnapshot { seq, event, row: Row { version: row.get(2)?, body: row.get(3)? } })
    });
    found.optional().map_err(|error| db_error(path, error))
}

/// The record of a session.
pub(super) fn record(
    connection: &Connection,
    path: &Path,
    id: &SessionId,
) -> Result<SessionRecord, LogError> {
    let sql = format!("SELECT {RECORD_COLUMNS} FROM sessions AS s WHERE s.id = ?1");
    let found = connection.query_row(&sql, [id.as_str()], record_from).optional();
    found.map_err(|error| db_error(path, error))?.ok_or_else(|| LogError::UnknownSession(id.clone()))
}

/// Usage by day and model. See [`EventLog::usage`](crate::EventLog::usage).
pub(super) fn usage(connection: &Connection, path: &Path, since: i64) -> Result<Vec<UsageLine>, LogError> {
    let read = || {
        let columns = "day, model, runs, failed, input, output, cache_read, cache_write, cost";
        let sql =
            format!("SELECT {columns} FROM usage WHERE day >= ?1 ORDER BY day DESC, model DESC LIMIT ?2");
        let mut statement = connection.prepare(&sql)?;
        let lines = statement.query_map(params![since, MAX_USAGE_LINES as i64], |row| {
            let number = |index| row.get::<_, i64>(index).map(|number| number as u64);
            let usage = Usage {
                input_tokens: number(4)?,
                output_tokens: number(5)?,
                cache_read_tokens: number(6)?,
                cache_write_tokens: number(7)?,
                cost_micros: number(8)?,
            };
            Ok(UsageLine {
                day: row.get(0)?,
                model: row.get(1)?,
                runs: number(2)?,
                failed: number(3)?,
                usage,
            })
        })?;
        lines.collect::<rusqlite::Result<Vec<_>>>()
    };
    let mut lines = read().map_err(|error| db_error(path, error))?;
    lines.reverse();
    Ok(lines)
}

/// The living holder of a session's lease. See [`EventLog::holder`](crate::EventLog::holder).
pub(super) fn holder(
    connection: &Connection,
    path: &Path,
    holders: &Path,
    session: &SessionId,
) -> Result<Option<LeaseHolder>, LogError> {
    let sql = "SELECT holder, pid, since FROM leases WHERE session = ?1";
    let found = connection.query_row(sql, [session.as_str()], |row| {
        let name: String = row.get(0)?;
        Ok((name, row.get(1)?, Timestamp(row.get(2)?)))
    });
    match found.optional().map_err(|error| db_error(path, error))? {
        Some((name, pid, since)) if holder::is_alive(holders, &name)? => {
            let announcement = holder::announcement(holders, &name);
            Ok(Some(LeaseHolder { node: None, pid, since, announcement }))
        }
        Some(_) | None => Ok(None),
    }
}

/// A page of the list of sessions.
pub(super) fn page(connection: &Connection, path: &Path, page: &PageRequest) -> Result<Page, LogError> {
    let limit = page.clamped_limit();
    let read = || {
        let order = "ORDER BY s.updated DESC, s.id DESC LIMIT ?1";
        let fetch = limit as i64 + 1;
        match &page.after {
            None => {
                let sql = format!("SELECT {RECORD_COLUMNS} FROM sessions AS s {order}");
                connection.prepare(&sql)?.query_map([fetch], record_from)?.collect()
            }
            Some(after) => {
                let filter = "WHERE (s.updated, s.id) < (?2, ?3)";
                let sql = format!("SELECT {RECORD_COLUMNS} FROM sessions AS s {filter} {order}");
                let values = params![fetch, after.updated.0, after.id.as_str()];
                connection.prepare(&sql)?.query_map(values, record_from)?.collect()
            }
        }
    };
    let records: rusqlite::Result<Vec<SessionRecord>> = read();
    records.map(|records| Page::from_extra(records, limit)).map_err(|error| db_error(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_read_does_not_wait_for_reads_of_events() {
        let home = tempfile::tempdir().unwrap();
        let log = crate::SqliteLog::open(home.path(), Arc::new(crate::SystemClock)).unwrap();
        let readers = Arc::clone(&log.0.readers);
        let (ends, started) = (Arc::new(std::sync::Barrier::new(READ_CONNECTIONS + 1)), sync_channel(8));
        let reads: Vec<_> = (0..READ_CONNECTIONS)
            .map(|_| {
                let (readers, ends, started) = (Arc::clone(&readers), Arc::clone(&ends), started.0.clone());
                let long = move |_: &Connection, _: &Path| {
                    started.send(()).unwrap();
                    ends.wait();
                    Ok(())
                };
                tokio::spawn(async move { readers.with_events(long).await })
            })
            .collect();
        for _ in &reads {
            while started.1.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(readers.permits.available_permits(), 0);
        let short = readers.with(|_, _| Ok(5));
        let short = tokio::time::timeout(std::time::Duration::from_secs(20), short).await;
        // The reads end even if this test fails.
        ends.wait();
        assert_eq!(short.expect("a connection is kept for short reads").unwrap(), 5);
        for read in reads {
            read.await.unwrap().unwrap();
        }
    }
}
