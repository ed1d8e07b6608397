//! Copying to and from the log in SQLite. See [`CopyableLog`].

use std::path::Path;

use async_trait::async_trait;
use parlor_vocab::{EventId, Seq, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::db_error::db_error;
use super::request::{EncodedEntry, PLACES_PER_SESSION, WriteReply, WriteRequest};
use super::write_connection::execute_usage;
use super::{Files, SqliteLog, schema, unused};
use crate::copy::{CopyableLog, StoredEvent};
use crate::row::{Decoder, Row};
use crate::{Lease, LogError, READ_BYTES, UsageLine};

const RAISE_USAGE: &str =
    "INSERT INTO usage (day, model, runs, failed, input, output, cache_read, cache_write, cost)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (day, model) DO UPDATE SET runs = max(runs, excluded.runs),
        failed = max(failed, excluded.failed), input = max(input, excluded.input),
        output = max(output, excluded.output), cache_read = max(cache_read, excluded.cache_read),
        cache_write = max(cache_write, excluded.cache_write), cost = max(cost, excluded.cost)";

impl SqliteLog {
    /// Fails with `InUse` if a process has the log in the folder `home` open, also this one.
    pub fn refuse_if_used(home: &Path) -> Result<(), LogError> {
        let files = Files::in_home(&std::path::absolute(home).map_err(LogError::io("find", home))?);
        unused::refuse_if_used(&files)
    }
}

#[async_trait]
impl CopyableLog for SqliteLog {
    async fn stored_events(
        &self,
        session: &SessionId,
        after: Seq,
        max: usize,
    ) -> Result<Vec<StoredEvent>, LogError> {
        let session = session.clone();
        let read = move |connection: &Connection, path: &Path| {
            stored_events(connection, &session, after, max).map_err(|error| db_error(path, error))?
        };
        self.0.readers.with_events(read).await
    }

    async fn append_stored(
        &self,
        lease: &Lease,
        after: Seq,
        events: Vec<StoredEvent>,
    ) -> Result<Seq, LogError> {
        let (session, token) = self.check_lease(lease)?;
        let mut decoder = Decoder::default();
        let encoded = events.into_iter().map(|event| {
            let (entry, row) = event.decode(&session, &mut decoder)?;
            Ok(EncodedEntry { entry, row })
        });
        let new = encoded.collect::<Result<_, LogError>>()?;
        match self.write(WriteRequest::Append { session, token, after, new }).await? {
            WriteReply::Appended(head) => Ok(head),
            WriteReply::PartialTextKept
            | WriteReply::SnapshotKept
            | WriteReply::Leased(_)
            | WriteReply::Released
            | WriteReply::Deleted
            | WriteReply::Reclaimed(_) => {
                unreachable!("the writer replies to an append with `Appended` or an error")
            }
        }
    }

    async fn raise_usage(&self, lines: &[UsageLine]) -> Result<(), LogError> {
        let (lines, path) = (lines.to_vec(), self.0.files.database.clone());
        let open_files = std::sync::Arc::clone(&self.0.open_files);
        let raise = move || {
            open_files.verify()?;
            raise_usage(&path, &lines).map_err(|error| db_error(&path, error))
        };
        tokio::task::spawn_blocking(raise).await.unwrap_or(Err(LogError::Closed))
    }

    /// None: the lock files of others tell nothing of a process that has no lease. See
    /// [`refuse_if_used`](Self::refuse_if_used), which is for the time before the log is opened.
    async fn other_user(&self) -> Result<Option<String>, LogError> {
        Ok(None)
    }
}

fn stored_events(
    connection: &Connection,
    session: &SessionId,
    after: Seq,
    max: usize,
) -> rusqlite::Result<Result<Vec<StoredEvent>, LogError>> {
    // One snapshot of both tables: otherwise an event that is moved in between would be in neither.
    let _snapshot = connection.unchecked_transaction()?;
    let sql = "SELECT key FROM sessions WHERE id = ?1";
    let key = connection.query_row(sql, [session.as_str()], |row| row.get::<_, i64>(0)).optional()?;
    let Some(key) = key else { return Ok(Err(LogError::UnknownSession(session.clone()))) };
    let start = key * PLACES_PER_SESSION;
    let (mut events, mut bytes) = (Vec::new(), 0);
    // A session's events in `fresh` come after those in `events`.
    for table in ["events", "fresh"] {
        let sql = format!(
            "SELECT place, id, at, version, body FROM {table} WHERE place > ?1 AND place < ?2 ORDER BY place"
        );
        let mut statement = connection.prepare(&sql)?;
        let first = i64::try_from(after.0).unwrap_or(i64::MAX >> 1) + events.len() as i64;
        let mut rows = statement.query([start.saturating_add(first), start + PLACES_PER_SESSION])?;
        while let Some(row) = rows.next()? {
            let seq = Seq((row.get::<_, i64>(0)? - start) as u64);
            if events.len() == max || bytes > READ_BYTES || seq.0 != after.0 + events.len() as u64 + 1 {
                return Ok(Ok(events));
            }
            let Ok(id) = EventId::parse(row.get_ref(1)?.as_str()?) else {
                let (session, reason) = (session.clone(), "its id is too long".to_owned());
                let unreadable = LogError::Unreadable { session, seq, reason };
                return Ok(if events.is_empty() { Err(unreadable) } else { Ok(events) });
            };
            let stored = Row { version: row.get(3)?, body: row.get(4)? };
            bytes += stored.memory_bytes();
            events.push(StoredEvent { seq, id, at: Timestamp(row.get(2)?), row: stored });
        }
    }
    Ok(Ok(events))
}

fn raise_usage(path: &Path, lines: &[UsageLine]) -> rusqlite::Result<()> {
    let mut connection = schema::connect(path)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut statement = transaction.prepare(RAISE_USAGE)?;
        for line in lines {
            execute_usage(&mut statement, line)?;
        }
    }
    transaction.commit()
}
