//! Reads the events of a session.
//!
//! A long read is divided into parts that two threads share, each with a connection of its own, because decoding events
//! takes longer than finding them. A thread that has read a part takes the next one. If no thread or connection is free,
//! the second thread starts late or never; then the first thread reads all parts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parlor_vocab::{Entry, EventId, Seq, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Statement, Transaction};

use super::db_error::db_error;
use super::read::Readers;
use super::request::PLACES_PER_SESSION;
use crate::row::{Decoder, RowError};
use crate::{LogError, READ_BYTES};

/// The number of events in each part but the last. With fewer, the second thread costs more than it saves.
const PART_EVENTS: usize = 1024;

/// A thread adds to the shared byte counter only after this many bytes, so that the two threads rarely contend for it.
const REPORT_BYTES: usize = 16 << 10;

/// Two threads share a read only if the session's events are not larger than this on average. A read of larger
/// events reaches [`READ_BYTES`] after too few events to be worth a second thread.
const SHARED_EVENT_BYTES: u64 = 1024;

/// Reads events of a session. See [`EventLog::read`](crate::EventLog::read).
pub(super) fn entries(
    readers: &Arc<Readers>,
    connection: &Connection,
    path: &Path,
    session: &SessionId,
    after: Seq,
    max: usize,
) -> Result<Vec<Entry>, LogError> {
    let failed = |error| db_error(path, error);
    let snapshot = Snapshot::open(connection, session).map_err(failed)?;
    let snapshot = snapshot.ok_or_else(|| LogError::UnknownSession(session.clone()))?;
    let available = usize::try_from(snapshot.head.saturating_sub(after.0)).unwrap_or(usize::MAX);
    let count = available.min(max);
    let is_shared = count > PART_EVENTS && snapshot.bytes <= snapshot.head.saturating_mul(SHARED_EVENT_BYTES);
    let read = Arc::new(SharedRead {
        session: session.clone(),
        first_event: if is_shared { snapshot.first_event().map_err(failed)? } else { None },
        after: i64::from(u32::try_from(after.0).unwrap_or(u32::MAX)),
        count,
        // This thread reads part 0, because the other parts are useless without it.
        next_part: AtomicUsize::new(1),
        bytes: AtomicUsize::new(0),
    });
    let second_thread = if is_shared {
        let read = Arc::clone(&read);
        readers.try_spawn(move |connection| read.read_on_second_thread(connection))
    } else {
        None
    };
    let mut parts = read.read_parts(0, &snapshot).map_err(failed)?;
    if parts.len() < read.taken_parts()
        && let Some(second_thread) = second_thread
    {
        // The second thread finishes the parts that it took. If it fails, they are missing and the result is shorter.
        parts.extend(second_thread.recv().unwrap_or_default());
    }
    parts.sort_unstable_by_key(|part| part.number);
    join(session, parts)
}

/// Joins consecutive parts, up to the first missing or incomplete one.
fn join(session: &SessionId, parts: Vec<Part>) -> Result<Vec<Entry>, LogError> {
    let total = parts.iter().map(|part| part.entries.len()).sum::<usize>();
    let mut entries = Vec::new();
    for (mut part, number) in parts.into_iter().zip(0..) {
        if part.number != number {
            break;
        }
        if number == 0 {
            entries = part.entries;
            entries.reserve_exact(total - entries.len());
        } else {
            entries.append(&mut part.entries);
        }
        match part.end {
            PartEnd::Complete => {}
            PartEnd::SizeLimit => break,
            PartEnd::Unreadable(seq, error) if entries.is_empty() => {
                let (session, reason) = (session.clone(), error.to_string());
                return Err(LogError::Unreadable { session, seq, reason });
            }
            // Return the events before the unreadable one; the next call starts at it and fails.
            PartEnd::Unreadable(..) => break,
        }
    }
    Ok(entries)
}

/// The events of one part.
struct Part {
    number: usize,
    entries: Vec<Entry>,
    end: PartEnd,
}

/// Why a part ends where it does.
enum PartEnd {
    /// All of its events were read.
    Complete,
    /// The result reached [`READ_BYTES`].
    SizeLimit,
    /// The event with this number cannot be decoded.
    Unreadable(Seq, RowError),
}

/// A read that two threads can share.
struct SharedRead {
    session: SessionId,
    /// See [`Snapshot::first_event`]. Only set if two threads share the read.
    first_event: Option<String>,
    /// The number of the event before the first one to read.
    after: i64,
    /// The number of events to read, in all parts.
    count: usize,
    /// The number of the next part to take; may exceed the number of parts.
    next_part: AtomicUsize,
    /// The number of bytes that both threads together have read.
    bytes: AtomicUsize,
}

impl SharedRead {
    fn part_count(&self) -> usize {
        self.count.div_ceil(PART_EVENTS)
    }

    /// The number of parts that the two threads have taken.
    fn taken_parts(&self) -> usize {
        self.next_part.load(Ordering::Acquire).min(self.part_count())
    }

    /// Takes the next part and returns its number, which is too large if no part is left.
    fn take_part(&self) -> usize {
        self.next_part.fetch_add(1, Ordering::AcqRel)
    }

    /// Reads part `number` and then further parts, until none is left or the result is large enough.
    fn read_parts(&self, mut number: usize, snapshot: &Snapshot<'_>) -> rusqlite::Result<Vec<Part>> {
        let mut parts = Vec::new();
        let mut decoder = Decoder::default();
        let mut queries = snapshot.queries()?;
        while number < self.part_count() {
            let part = self.read_part(number, snapshot.key, &mut queries, &mut decoder)?;
            let is_complete = matches!(part.end, PartEnd::Complete);
            parts.push(part);
            if !is_complete {
                break;
            }
            number = self.take_part();
        }
        Ok(parts)
    }

    /// Reads parts with the connection of the second thread. Reads nothing if the session was deleted meanwhile, also if
    /// a new one has the same id.
    fn read_on_second_thread(&self, connection: &Connection) -> Vec<Part> {
        let read = || {
            let Some(snapshot) = Snapshot::open(connection, &self.session)? else { return Ok(Vec::new()) };
            if snapshot.first_event()? == self.first_event {
                self.read_parts(self.take_part(), &snapshot)
            } else {
                Ok(Vec::new())
            }
        };
        read().unwrap_or_else(|_: rusqlite::Error| Vec::new())
    }

    fn read_part(
        &self,
        number: usize,
        key: i64,
        queries: &mut [Statement<'_>],
        decoder: &mut Decoder,
    ) -> rusqlite::Result<Part> {
        let skipped = number * PART_EVENTS;
        let count = PART_EVENTS.min(self.count - skipped);
        let place_before = key * PLACES_PER_SESSION + self.after + skipped as i64;
        let mut part = Part { number, entries: Vec::with_capacity(count), end: PartEnd::Complete };
        let mut unreported = 0;
        for query in queries {
            // A session's events in `fresh` come after those in `events`.
            let range = [place_before + part.entries.len() as i64, place_before + count as i64];
            if range[0] == range[1] {
                break;
            }
            let mut rows = query.query(range)?;
            while let Some(row) = rows.next()? {
                let seq = Seq((row.get::<_, i64>(0)? % PLACES_PER_SESSION) as u64);
                let (at, version) = (Timestamp(row.get(2)?), row.get(3)?);
                let (id, body) = (row.get_ref(1)?.as_str()?, row.get_ref(4)?.as_str()?);
                match (EventId::parse(id), decoder.decode(version, body)) {
                    (Ok(id), Ok(event)) => part.entries.push(Entry { seq, id, at, event }),
                    (Err(error), _) => {
                        part.end = PartEnd::Unreadable(seq, error.into());
                        return Ok(part);
                    }
                    (Ok(_), Err(error)) => {
                        part.end = PartEnd::Unreadable(seq, error);
                        return Ok(part);
                    }
                }
                unreported += decoder.json_bytes();
                if unreported >= REPORT_BYTES
                    && self.add_bytes_and_check_limit(std::mem::take(&mut unreported))
                {
                    part.end = PartEnd::SizeLimit;
                    return Ok(part);
                }
            }
        }
        if self.add_bytes_and_check_limit(unreported) {
            part.end = PartEnd::SizeLimit;
        }
        Ok(part)
    }

    /// Adds to the shared byte counter. Returns whether both threads together have read more than [`READ_BYTES`].
    fn add_bytes_and_check_limit(&self, new_bytes: usize) -> bool {
        self.bytes.fetch_add(new_bytes, Ordering::Relaxed) + new_bytes > READ_BYTES
    }
}

/// A read transaction on one session. It sees one state of the database: no event moves between the tables meanwhile, and
/// the key is not given to another session.
struct Snapshot<'c> {
    connection: &'c Connection,
    key: i64,
    head: u64,
    bytes: u64,
    _transaction: Transaction<'c>,
}

impl<'c> Snapshot<'c> {
    /// Begins the transaction. `None` if the session does not exist.
    fn open(connection: &'c Connection, session: &SessionId) -> rusqlite::Result<Option<Self>> {
        let transaction = connection.unchecked_transaction()?;
        let sql = "SELECT key, head, bytes FROM sessions WHERE id = ?1";
        let found = connection.query_row(sql, [session.as_str()], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64))
        });
        let snapshot = |(key, head, bytes)| Self { connection, key, head, bytes, _transaction: transaction };
        Ok(found.optional()?.map(snapshot))
    }

    /// The queries for events in `events` and in `fresh`.
    fn queries(&self) -> rusqlite::Result<[Statement<'c>; 2]> {
        let select_from = |table: &str| {
            self.connection.prepare(&format!(
                "SELECT place, id, at, version, body FROM {table}
                 WHERE place > ?1 AND place <= ?2 ORDER BY place"
            ))
        };
        Ok([select_from("events")?, select_from("fresh")?])
    }

    /// The id of the session's first event. It tells a deleted session from a new one with the same id and key.
    fn first_event(&self) -> rusqlite::Result<Option<String>> {
        let sql = "SELECT id FROM events WHERE place = ?1 UNION ALL SELECT id FROM fresh WHERE place = ?1";
        self.connection.query_row(sql, [self.key * PLACES_PER_SESSION + 1], |row| row.get(0)).optional()
    }
}
