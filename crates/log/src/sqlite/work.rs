//! What the writer can be asked for, and how each is done within a transaction.
//!
//! Whatever is refused is refused before anything of it is written, so a refusal needs no
//! rollback and leaves the others in the transaction alone.

use std::path::Path;

use parlor_vocab::{AgentId, Draft, RunId, Seq, SessionId, Timestamp};
use rusqlite::{Connection, Error, OptionalExtension, Row, Statement, named_params, params};

use super::holder;
use crate::lease::{Lease, Token};
use crate::record::apply;
use crate::{Holder, LogError, SessionRecord, row};

/// A session's key, times this, plus a seq, is an event's place.
const SPAN: i64 = 1 << 32;

/// The columns of a record, in the order in which [`record_from`] reads them.
pub(super) const RECORD: &str =
    "s.id, s.title, s.door, s.agent, s.created, s.updated, s.head, s.messages, s.running";

/// A change.
pub(super) enum Work {
    Append { session: SessionId, token: Token, after: Seq, new: Vec<Draft> },
    Acquire { session: SessionId },
    Release { session: SessionId, token: Token },
    Delete { session: SessionId, token: Token },
}

impl Work {
    pub(super) fn session(&self) -> &SessionId {
        match self {
            Self::Append { session, .. }
            | Self::Acquire { session }
            | Self::Release { session, .. }
            | Self::Delete { session, .. } => session,
        }
    }
}

/// What came of it.
pub(super) enum Done {
    Appended(Seq),
    Leased(Lease),
    Released,
    Deleted,
}

/// What came of it, while the transaction is open.
pub(super) enum Written {
    Appended(Seq),
    Leased(Token),
    Released,
    Deleted,
}

/// Why it was not done.
pub(super) enum Trouble {
    /// By itself; nothing was written.
    Refused(LogError),
    /// The database failed; the transaction cannot be trusted any more.
    Broken(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// Who asks.
pub(super) struct Asker<'a> {
    pub(super) holders: &'a Path,
    pub(super) name: &'a str,
    pub(super) now: Timestamp,
    pub(super) next_token: Token,
}

/// All that the writer says to the database, parsed once.
pub(super) struct Statements<'c> {
    pub(super) begin: Statement<'c>,
    pub(super) commit: Statement<'c>,
    pub(super) rollback: Statement<'c>,
    pub(super) data_version: Statement<'c>,
    pub(super) head: Statement<'c>,
    holds: Statement<'c>,
    record: Statement<'c>,
    insert_record: Statement<'c>,
    update_record: Statement<'c>,
    insert_event: Statement<'c>,
    lease: Statement<'c>,
    insert_lease: Statement<'c>,
    delete_lease: Statement<'c>,
    delete_record: Statement<'c>,
    delete_events: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        Ok(Self {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            rollback: prepare("ROLLBACK")?,
            data_version: prepare("PRAGMA data_version")?,
            head: prepare("SELECT head FROM sessions WHERE id = ?1")?,
            holds: prepare("SELECT 1 FROM leases WHERE session = ?1 AND holder = ?2 AND token = ?3")?,
            record: prepare(&format!("SELECT {RECORD}, s.key FROM sessions AS s WHERE s.id = ?1"))?,
            insert_record: prepare(
                "INSERT INTO sessions (id, title, door, agent, created, updated, head, messages, running)
                 VALUES (:id, :title, :door, :agent, :created, :updated, :head, :messages, :running)",
            )?,
            update_record: prepare(
                "UPDATE sessions SET title = :title, door = :door, agent = :agent, created = :created,
                 updated = :updated, head = :head, messages = :messages, running = :running WHERE id = :id",
            )?,
            insert_event: prepare(
                "INSERT INTO events (place, id, at, version, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            lease: prepare("SELECT holder, pid, since FROM leases WHERE session = ?1")?,
            insert_lease: prepare(
                "INSERT OR REPLACE INTO leases (session, holder, token, pid, since)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            delete_lease: prepare("DELETE FROM leases WHERE session = ?1 AND holder = ?2 AND token = ?3")?,
            delete_record: prepare("DELETE FROM sessions WHERE key = ?1")?,
            delete_events: prepare("DELETE FROM events WHERE place > ?1 AND place < ?2")?,
        })
    }

    /// Does `work` within the open transaction.
    pub(super) fn perform(&mut self, work: &Work, asker: &Asker<'_>) -> Result<Written, Trouble> {
        match work {
            Work::Append { session, token, after, new } => self.append(session, *token, *after, new, asker),
            Work::Acquire { session } => self.acquire(session, asker),
            Work::Release { session, token } => {
                self.delete_lease.execute(params![session.as_str(), asker.name, token.0 as i64])?;
                Ok(Written::Released)
            }
            Work::Delete { session, token } => self.delete(session, *token, asker),
        }
    }

    fn append(
        &mut self,
        session: &SessionId,
        token: Token,
        after: Seq,
        new: &[Draft],
        asker: &Asker<'_>,
    ) -> Result<Written, Trouble> {
        let (mut record, key) = match self.leased(session, token, asker)? {
            Some((record, key)) => (record, Some(key)),
            None => (SessionRecord::new(session.clone()), None),
        };
        if record.head != after {
            return Err(Trouble::Refused(LogError::Conflict { head: record.head }));
        }
        if new.is_empty() {
            return Ok(Written::Appended(after));
        }
        for draft in new {
            apply(&mut record, draft);
        }
        if record.head.0 >= SPAN as u64 {
            return Err(Trouble::Broken(Error::IntegralValueOutOfRange(0, SPAN)));
        }
        let key = self.put_record(&record, key)?;
        for (draft, seq) in new.iter().zip(after.0 as i64 + 1..) {
            let row = row::encode(&draft.event);
            let place = key * SPAN + seq;
            let values = params![place, draft.id.as_str(), draft.at.0, row.version, row.body];
            self.insert_event.execute(values)?;
        }
        Ok(Written::Appended(record.head))
    }

    /// The session's record and key, if it exists. Refused if the lease does not hold.
    fn leased(
        &mut self,
        session: &SessionId,
        token: Token,
        asker: &Asker<'_>,
    ) -> Result<Option<(SessionRecord, i64)>, Trouble> {
        if !self.holds.exists(params![session.as_str(), asker.name, token.0 as i64])? {
            return Err(Trouble::Refused(LogError::NotHeld { session: session.clone() }));
        }
        let found = self.record.query_row([session.as_str()], |row| Ok((record_from(row)?, row.get("key")?)));
        Ok(found.optional()?)
    }

    fn put_record(&mut self, record: &SessionRecord, key: Option<i64>) -> rusqlite::Result<i64> {
        let statement = if key.is_some() { &mut self.update_record } else { &mut self.insert_record };
        let values = named_params! {
            ":id": record.id.as_str(),
            ":title": record.title,
            ":door": record.door,
            ":agent": record.agent.as_ref().map(AgentId::as_str),
            ":created": record.created.0,
            ":updated": record.updated.0,
            ":head": record.head.0 as i64,
            ":messages": record.messages as i64,
            ":running": record.running.as_ref().map(RunId::as_str),
        };
        match key {
            Some(key) => statement.execute(values).map(|_| key),
            None => statement.insert(values),
        }
    }

    fn acquire(&mut self, session: &SessionId, asker: &Asker<'_>) -> Result<Written, Trouble> {
        let found = self
            .lease
            .query_row([session.as_str()], |row| {
                let holder: String = row.get(0)?;
                Ok((holder, Holder { pid: row.get(1)?, since: Timestamp(row.get(2)?) }))
            })
            .optional()?;
        if let Some((holder, by)) = found {
            let alive =
                holder == asker.name || holder::lives(asker.holders, &holder).map_err(Trouble::Refused)?;
            if alive {
                return Err(Trouble::Refused(LogError::Held { session: session.clone(), by }));
            }
        }
        let token = asker.next_token;
        let pid = std::process::id();
        let values = params![session.as_str(), asker.name, token.0 as i64, pid, asker.now.0];
        self.insert_lease.execute(values)?;
        Ok(Written::Leased(token))
    }

    fn delete(&mut self, session: &SessionId, token: Token, asker: &Asker<'_>) -> Result<Written, Trouble> {
        let Some((_, key)) = self.leased(session, token, asker)? else {
            return Err(Trouble::Refused(LogError::UnknownSession(session.clone())));
        };
        self.delete_events.execute([key * SPAN, (key + 1) * SPAN])?;
        self.delete_record.execute([key])?;
        self.delete_lease.execute(params![session.as_str(), asker.name, token.0 as i64])?;
        Ok(Written::Deleted)
    }
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
        running: text(8)?.map(|id| RunId::parse(&id)).transpose().map_err(|error| parsed(8, error))?,
    })
}
