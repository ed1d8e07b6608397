//! Fills a new database with the rows that were found in a damaged one.
//!
//! Of each session it takes the events up to the first missing or unreadable one, since a session must not have gaps. It
//! computes records and references to files from the events, as an append does.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use parlor_vocab::{EventId, NewEntry, SessionId, Timestamp};
use rusqlite::{Connection, Transaction, params};

use super::super::db_error::db_error;
use super::super::request::PLACES_PER_SESSION;
use super::super::statements::Statements;
use super::super::write_connection::put_record;
use super::cells::RowPage;
use super::pages::Pages;
use super::scan::{Found, FoundEvent, event};
use super::{LostData, SavedData};
use crate::media::media_of;
use crate::record::apply;
use crate::row::Decoder;
use crate::{LogError, SessionRecord};

/// A session as far as it has been rebuilt.
struct Session {
    record: SessionRecord,
    /// The number of events in the damaged database, if known.
    head: Option<u64>,
    /// Whether an event was missing or unreadable; all later ones are left out.
    has_gap: bool,
    /// The number of events that were found but left out.
    left_out: u64,
}

/// Fills the new `database`. Returns what it contains and what it lacks.
pub(super) fn rebuild(
    database: &Path,
    connection: &mut Connection,
    pages: &Pages,
    found: &Found,
    on_events: impl FnMut(u64),
) -> Result<(SavedData, LostData), LogError> {
    let fill_in_transaction = || {
        // No syncs needed: nobody reads the file before it is complete and synced.
        connection.pragma_update(None, "synchronous", "OFF")?;
        let transaction = connection.transaction()?;
        let outcome = fill(&transaction, pages, found, on_events)?;
        transaction.commit()?;
        Ok(outcome)
    };
    fill_in_transaction().map_err(|error| db_error(database, error))
}

fn fill(
    transaction: &Transaction<'_>,
    pages: &Pages,
    found: &Found,
    mut on_events: impl FnMut(u64),
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
                builder.add(event)?;
            }
        }
        on_events(builder.events);
    }
    for (number, index) in found.fresh.values() {
        let row = RowPage::read(pages, *number).and_then(|page| page.row(pages, *index));
        if let Some(event) = row.and_then(event) {
            builder.add(event)?;
        }
    }
    on_events(builder.events);
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
    /// Inserts an event if it is the next one of its session.
    fn add(&mut self, event: FoundEvent) -> rusqlite::Result<()> {
        let FoundEvent { place, id, at, version, body } = event;
        let (key, seq) = (place / PLACES_PER_SESSION, u64::try_from(place % PLACES_PER_SESSION).unwrap_or(0));
        let head = self.found.sessions.get(&key).and_then(|row| row.head);
        let session = self.sessions.entry(key).or_insert_with(|| Session {
            // `finish` sets the id.
            record: SessionRecord::new(SessionId::parse("").expect("an empty id is valid")),
            head,
            has_gap: false,
            left_out: 0,
        });
        // A duplicate, or a remainder of a deleted session.
        if seq <= session.record.head.0 || head.is_some_and(|head| seq > head) {
            return Ok(());
        }
        let decoded = EventId::parse(&id).ok().zip(self.decoder.decode(version, &body).ok());
        let Some((id, event)) = decoded.filter(|_| !session.has_gap && seq == session.record.head.0 + 1)
        else {
            session.has_gap = true;
            session.left_out += 1;
            return Ok(());
        };
        self.statements.insert_event.execute(params![place, id.as_str(), at, version, body])?;
        let entry = NewEntry { id, at: Timestamp(at), event };
        for media in media_of(&entry.event) {
            self.statements.insert_media.execute(params![key, media.as_str()])?;
        }
        apply(&mut session.record, &entry, body.len());
        self.events += 1;
        Ok(())
    }

    /// Sets the ids of the sessions and writes their records.
    fn finish(mut self) -> rusqlite::Result<(SavedData, LostData)> {
        let mut saved = SavedData { sessions: 0, unnamed: 0, events: self.events };
        let mut lost = LostData::default();
        for (key, row) in &self.found.sessions {
            if self.sessions.get(key).is_none_or(|session| session.record.head.0 == 0) {
                lost.sessions += 1;
                lost.events += row.head.unwrap_or(0);
            }
        }
        let mut used_ids: HashSet<String> = HashSet::new();
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
            let known = self.found.sessions.get(&key).and_then(|row| SessionId::parse(&row.id).ok());
            saved.unnamed += u64::from(known.is_none());
            session.record.id = match known.filter(|id| used_ids.insert(id.as_str().to_owned())) {
                Some(id) => id,
                None => unused_id(key, &mut used_ids),
            };
            saved.sessions += 1;
            // Keep the key, which is part of the events' `place`.
            put_record(&mut self.statements.insert_record, &session.record, Some(key))?;
        }
        Ok((saved, lost))
    }
}

/// An unused id for a session whose own was not found.
fn unused_id(key: i64, used_ids: &mut HashSet<String>) -> SessionId {
    let mut names = (1..).map(|number| match number {
        1 => format!("recovered-{key}"),
        number => format!("recovered-{key}-{number}"),
    });
    let name = names.find(|name| used_ids.insert(name.clone())).expect("the numbers do not end");
    SessionId::parse(&name).expect("a short text")
}
