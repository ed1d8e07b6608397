//! Reading events.
//!
//! A long reading is cut into parts, and two read them, each on a connection of its own: to
//! understand events takes longer than to find them. Whoever is done with a part takes the next.
//! The second may come late or never, as there are threads and connections to spare: nothing
//! depends on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parlor_vocab::{Entry, EventId, Seq, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Statement, Transaction};

use super::fault::fault;
use super::read::Readers;
use super::work::SPAN;
use crate::row::{Decoder, RowError};
use crate::{LogError, READ_BYTES};

/// How many events a part has, but for the last. With fewer, calling a second costs what it saves.
const PART_EVENTS: usize = 1024;

/// How many bytes one has read when it tells the other. Told of each event, they would wait for one another.
const TOLD_BYTES: usize = 16 << 10;

/// How large the events of a session are on average, at most, if two read them. Of larger ones, an
/// answer holds too few to be shared.
const SHARED_EVENT_BYTES: u64 = 1024;

/// Events of a session. See [`EventLog::read`](crate::EventLog::read).
pub(super) fn entries(
    readers: &Arc<Readers>,
    connection: &Connection,
    path: &Path,
    of: &SessionId,
    after: Seq,
    max: usize,
) -> Result<Vec<Entry>, LogError> {
    let failed = |error| fault(path, error);
    let view = View::open(connection, of).map_err(failed)?;
    let view = view.ok_or_else(|| LogError::UnknownSession(of.clone()))?;
    let left = usize::try_from(view.head.saturating_sub(after.0)).unwrap_or(usize::MAX);
    let count = left.min(max);
    let shared = count > PART_EVENTS && view.bytes <= view.head.saturating_mul(SHARED_EVENT_BYTES);
    let reading = Arc::new(Reading {
        session: of.clone(),
        origin: if shared { view.origin().map_err(failed)? } else { None },
        after: i64::from(u32::try_from(after.0).unwrap_or(u32::MAX)),
        count,
        // The first is ours: without it, the others are worth nothing.
        taken: AtomicUsize::new(1),
        bytes: AtomicUsize::new(0),
    });
    let second = if shared {
        let reading = Arc::clone(&reading);
        readers.lend(move |connection| reading.help(connection))
    } else {
        None
    };
    let mut parts = reading.work(0, &view).map_err(failed)?;
    if parts.len() < reading.begun()
        && let Some(second) = second
    {
        // What it has begun it will end. If it fails, its parts are missing, and the answer is short.
        parts.extend(second.recv().unwrap_or_default());
    }
    parts.sort_unstable_by_key(|part| part.number);
    joined(of, parts)
}

/// The parts as far as they come one after another.
fn joined(of: &SessionId, parts: Vec<Part>) -> Result<Vec<Entry>, LogError> {
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
            End::Whole => {}
            End::Enough => break,
            End::Flaw(seq, error) if entries.is_empty() => {
                let (session, reason) = (of.clone(), error.to_string());
                return Err(LogError::Unreadable { session, seq, reason });
            }
            // What stands before it is worth having; the next call meets it first.
            End::Flaw(..) => break,
        }
    }
    Ok(entries)
}

/// A part that was read.
struct Part {
    number: usize,
    entries: Vec<Entry>,
    end: End,
}

/// Where a part ends.
enum End {
    /// Where the next begins.
    Whole,
    /// Before that, since enough was read.
    Enough,
    /// Before that, at an event that cannot be read.
    Flaw(Seq, RowError),
}

/// A reading that two can share.
struct Reading {
    session: SessionId,
    /// See [`View::origin`]. Only looked at if two read.
    origin: Option<String>,
    after: i64,
    count: usize,
    /// How many parts were taken; more than there are, when none was left.
    taken: AtomicUsize,
    /// How many bytes were read.
    bytes: AtomicUsize,
}

impl Reading {
    fn parts(&self) -> usize {
        self.count.div_ceil(PART_EVENTS)
    }

    /// How many parts somebody reads, or has read.
    fn begun(&self) -> usize {
        self.taken.load(Ordering::Acquire).min(self.parts())
    }

    /// The number of a part that nobody has, if there is one.
    fn take(&self) -> usize {
        self.taken.fetch_add(1, Ordering::AcqRel)
    }

    /// Reads parts from the one of that number on, until there are none left or enough was read.
    fn work(&self, mut number: usize, view: &View<'_>) -> rusqlite::Result<Vec<Part>> {
        let mut parts = Vec::new();
        let mut decoder = Decoder::default();
        let mut tables = view.tables()?;
        while number < self.parts() {
            let part = self.part(number, view.key, &mut tables, &mut decoder)?;
            let whole = matches!(part.end, End::Whole);
            parts.push(part);
            if !whole {
                break;
            }
            number = self.take();
        }
        Ok(parts)
    }

    /// Does the same from another connection, for what is left. Does nothing if another session is to
    /// be seen from there.
    fn help(&self, connection: &Connection) -> Vec<Part> {
        let work = || {
            let Some(view) = View::open(connection, &self.session)? else { return Ok(Vec::new()) };
            if view.origin()? == self.origin { self.work(self.take(), &view) } else { Ok(Vec::new()) }
        };
        work().unwrap_or_else(|_: rusqlite::Error| Vec::new())
    }

    fn part(
        &self,
        number: usize,
        key: i64,
        tables: &mut [Statement<'_>],
        decoder: &mut Decoder,
    ) -> rusqlite::Result<Part> {
        let skipped = number * PART_EVENTS;
        let count = PART_EVENTS.min(self.count - skipped);
        let first = key * SPAN + self.after + skipped as i64;
        let mut part = Part { number, entries: Vec::with_capacity(count), end: End::Whole };
        let mut untold = 0;
        for table in tables {
            // What a session has among the fresh events comes after all others.
            let range = [first + part.entries.len() as i64, first + count as i64];
            if range[0] == range[1] {
                break;
            }
            let mut rows = table.query(range)?;
            while let Some(row) = rows.next()? {
                let seq = Seq((row.get::<_, i64>(0)? % SPAN) as u64);
                let (at, version) = (Timestamp(row.get(2)?), row.get(3)?);
                let (id, body) = (row.get_ref(1)?.as_str()?, row.get_ref(4)?.as_str()?);
                match (EventId::parse(id), decoder.decode(version, body)) {
                    (Ok(id), Ok(event)) => part.entries.push(Entry { seq, id, at, event }),
                    (Err(error), _) => {
                        part.end = End::Flaw(seq, error.into());
                        return Ok(part);
                    }
                    (Ok(_), Err(error)) => {
                        part.end = End::Flaw(seq, error);
                        return Ok(part);
                    }
                }
                untold += body.len();
                if untold >= TOLD_BYTES && self.is_enough_with(std::mem::take(&mut untold)) {
                    part.end = End::Enough;
                    return Ok(part);
                }
            }
        }
        if self.is_enough_with(untold) {
            part.end = End::Enough;
        }
        Ok(part)
    }

    /// Whether enough was read by both, now that these bytes were.
    fn is_enough_with(&self, more: usize) -> bool {
        self.bytes.fetch_add(more, Ordering::Relaxed) + more > READ_BYTES
    }
}

/// A session as one connection sees it, at one moment: meanwhile, its key cannot become another
/// session's, and no event can be moved.
struct View<'c> {
    connection: &'c Connection,
    key: i64,
    head: u64,
    bytes: u64,
    _moment: Transaction<'c>,
}

impl<'c> View<'c> {
    /// `None` if there is no such session.
    fn open(connection: &'c Connection, session: &SessionId) -> rusqlite::Result<Option<Self>> {
        let moment = connection.unchecked_transaction()?;
        let sql = "SELECT key, head, bytes FROM sessions WHERE id = ?1";
        let found = connection.query_row(sql, [session.as_str()], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64))
        });
        let view = |(key, head, bytes)| Self { connection, key, head, bytes, _moment: moment };
        Ok(found.optional()?.map(view))
    }

    /// What finds events in the one table and in the other.
    fn tables(&self) -> rusqlite::Result<[Statement<'c>; 2]> {
        let from = |table: &str| {
            self.connection.prepare(&format!(
                "SELECT place, id, at, version, body FROM {table}
                 WHERE place > ?1 AND place <= ?2 ORDER BY place"
            ))
        };
        Ok([from("events")?, from("fresh")?])
    }

    /// The id of the session's first event: another session of the same name and key has another.
    fn origin(&self) -> rusqlite::Result<Option<String>> {
        let sql = "SELECT id FROM events WHERE place = ?1 UNION ALL SELECT id FROM fresh WHERE place = ?1";
        self.connection.query_row(sql, [self.key * SPAN + 1], |row| row.get(0)).optional()
    }
}
