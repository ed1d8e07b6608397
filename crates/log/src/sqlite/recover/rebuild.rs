//! A new database with what was found in a damaged one.
//!
//! Of each session the events up to the first one that is missing or cannot be read: what comes behind a gap would
//! have other places. All else follows from the events, as when they were appended.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use parlor_vocab::{EventId, NewEntry, SessionId, Timestamp};
use rusqlite::{Connection, Transaction, params};

use super::super::fault::fault;
use super::super::ledger::put_record;
use super::super::statements::Statements;
use super::super::work::SPAN;
use super::cells::RowPage;
use super::pages::Pages;
use super::scan::{Found, FoundEvent, event};
use super::{LostData, SavedData};
use crate::media::media_of;
use crate::record::apply;
use crate::row::Decoder;
use crate::{LogError, SessionRecord};

/// A session as far as it was put together.
struct Session {
    record: SessionRecord,
    /// How many events it had, if that is known.
    head: Option<u64>,
    /// An event is missing: none of those behind it is taken.
    has_gap: bool,
    /// Events that were found and not taken.
    left_out: u64,
}

/// Fills the new `database`, and says what is in it and what is not.
pub(super) fn rebuild(
    database: &Path,
    connection: &mut Connection,
    pages: &Pages,
    found: &Found,
    tell: impl FnMut(u64),
) -> Result<(SavedData, LostData), LogError> {
    let work = || {
        // Nobody reads the file before it is whole and on the disk.
        connection.pragma_update(None, "synchronous", "OFF")?;
        let transaction = connection.transaction()?;
        let outcome = fill(&transaction, pages, found, tell)?;
        transaction.commit()?;
        Ok(outcome)
    };
    work().map_err(|error| fault(database, error))
}

fn fill(
    transaction: &Transaction<'_>,
    pages: &Pages,
    found: &Found,
    mut tell: impl FnMut(u64),
) -> rusqlite::Result<(SavedData, LostData)> {
    let mut statements = Statements::new(transaction)?;
    let mut builder = Builder {
        statements: &mut statements,
        found,
        sessions: HashMap::new(),
        decoder: Decoder::default(),
        events: 0,
    };
    for (_, number) in &found.events {
        let Some(page) = RowPage::read(pages, *number) else { continue };
        for index in 0..page.len() {
            if let Some(event) = page.row(pages, index).and_then(event) {
                builder.put(event)?;
            }
        }
        tell(builder.events);
    }
    for (number, index) in found.fresh.values() {
        let row = RowPage::read(pages, *number).and_then(|page| page.row(pages, *index));
        if let Some(event) = row.and_then(event) {
            builder.put(event)?;
        }
    }
    tell(builder.events);
    let outcome = builder.finish()?;
    for (day, model, counts) in &found.usage {
        let [runs, failed, input, output, cache_read, cache_write, cost] = counts;
        let sql = "INSERT OR IGNORE INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let values = params![day, model, runs, failed, input, output, cache_read, cache_write, cost];
        transaction.execute(sql, values)?;
    }
    Ok(outcome)
}

struct Builder<'a, 'c> {
    statements: &'a mut Statements<'c>,
    found: &'a Found,
    sessions: HashMap<i64, Session>,
    decoder: Decoder,
    events: u64,
}

impl Builder<'_, '_> {
    /// Takes an event, if it is the next one of its session.
    fn put(&mut self, event: FoundEvent) -> rusqlite::Result<()> {
        let FoundEvent { place, id, at, version, body } = event;
        let (key, seq) = (place / SPAN, u64::try_from(place % SPAN).unwrap_or(0));
        let head = self.found.sessions.get(&key).and_then(|named| named.head);
        let session = self.sessions.entry(key).or_insert_with(|| Session {
            // What it is called is decided in the end.
            record: SessionRecord::new(SessionId::parse("").expect("nothing is not too long")),
            head,
            has_gap: false,
            left_out: 0,
        });
        // One that is there already, or was left behind by a session that was deleted.
        if seq <= session.record.head.0 || head.is_some_and(|head| seq > head) {
            return Ok(());
        }
        let read = EventId::parse(&id).ok().zip(self.decoder.decode(version, &body).ok());
        let Some((id, event)) = read.filter(|_| !session.has_gap && seq == session.record.head.0 + 1) else {
            session.has_gap = true;
            session.left_out += 1;
            return Ok(());
        };
        self.statements.insert_event.execute(params![place, id.as_str(), at, version, body])?;
        let draft = NewEntry { id, at: Timestamp(at), event };
        for media in media_of(&draft.event) {
            self.statements.insert_media.execute(params![key, media.as_str()])?;
        }
        apply(&mut session.record, &draft, body.len());
        self.events += 1;
        Ok(())
    }

    /// Names the sessions and writes their records.
    fn finish(mut self) -> rusqlite::Result<(SavedData, LostData)> {
        let mut saved = SavedData { sessions: 0, unnamed: 0, events: self.events };
        let mut lost = LostData::default();
        for (key, named) in &self.found.sessions {
            if self.sessions.get(key).is_none_or(|session| session.record.head.0 == 0) {
                lost.sessions += 1;
                lost.events += named.head.unwrap_or(0);
            }
        }
        let mut taken: HashSet<String> = HashSet::new();
        let mut sessions: Vec<(i64, Session)> = self.sessions.drain().collect();
        sessions.sort_unstable_by_key(|(key, _)| *key);
        for (key, mut session) in sessions {
            if session.record.head.0 == 0 {
                if !self.found.sessions.contains_key(&key) {
                    lost.sessions += 1;
                    lost.events += session.left_out;
                }
                continue;
            }
            lost.events += session.head.map_or(session.left_out, |head| head - session.record.head.0);
            let known = self.found.sessions.get(&key).and_then(|named| SessionId::parse(&named.id).ok());
            saved.unnamed += u64::from(known.is_none());
            session.record.id = match known.filter(|id| taken.insert(id.as_str().to_owned())) {
                Some(id) => id,
                None => free_name(key, &mut taken),
            };
            saved.sessions += 1;
            // With its key, which its events have in their places.
            put_record(&mut self.statements.insert_record, &session.record, Some(key))?;
        }
        Ok((saved, lost))
    }
}

/// A name for a session whose own is not to be found.
fn free_name(key: i64, taken: &mut HashSet<String>) -> SessionId {
    let mut names = (1..).map(|number| match number {
        1 => format!("recovered-{key}"),
        number => format!("recovered-{key}-{number}"),
    });
    let name = names.find(|name| taken.insert(name.clone())).expect("there is always another number");
    SessionId::parse(&name).expect("two numbers are not too long")
}
