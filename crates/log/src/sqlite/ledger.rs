//! The database as the writer uses it: how each work is done within a transaction.
//!
//! Whatever is refused is refused before anything of it is written, so a refusal needs no
//! rollback and leaves the others in the transaction alone.

use std::collections::HashMap;

use parlor_vocab::{AgentId, RunId, Seq, SessionId, Timestamp, Usage};
use rusqlite::{Connection, Error, OptionalExtension, Statement, params};

use super::fresh::{self, FRESH_EVENTS};
use super::statements::Statements;
use super::work::{NewEvent, SPAN, Work, WriteRequester, WriterTrouble, Written, record_from};
use super::{holder, reclaim};
use crate::lease::Token;
use crate::media::media_of;
use crate::record::apply;
use crate::{LeaseHolder, LogError, SessionRecord, UsageLine};

/// What came of each work of a transaction.
pub(super) type Outcomes = Vec<Result<Written, LogError>>;

/// The writer's connection, with its statements and what it knows without asking.
pub(super) struct Ledger<'c> {
    connection: &'c Connection,
    statements: Statements<'c>,
    /// Sessions that are held here and were appended to, as they stand in the database. True until
    /// another connection writes, of which SQLite tells, or a transaction fails.
    known: HashMap<SessionId, Known>,
    /// What SQLite calls the state of the database in which this was true.
    known_at: Option<i64>,
    /// How many events are fresh, at most.
    fresh: usize,
}

/// A session that is held here.
struct Known {
    token: Token,
    record: SessionRecord,
    /// Absent until its first event.
    key: Option<i64>,
}

impl<'c> Ledger<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let statements = Statements::new(connection)?;
        Ok(Self { connection, statements, known: HashMap::new(), known_at: None, fresh: 0 })
    }

    /// Does all works in one transaction. Each can be refused without harm to the others; an error
    /// means that nothing was written. The asker depends on the number of a work, from zero on.
    pub(super) fn transact<'a>(
        &mut self,
        works: &[&Work],
        asker: impl Fn(u64) -> WriteRequester<'a>,
    ) -> rusqlite::Result<Outcomes> {
        self.begun(|ledger| {
            let perform = |(work, number): (&&Work, u64)| match ledger.perform(work, &asker(number)) {
                Ok(written) => Ok(Ok(written)),
                Err(WriterTrouble::Refused(error)) => Ok(Err(error)),
                Err(WriterTrouble::Broken(error)) => Err(error),
            };
            works.iter().zip(0..).map(perform).collect()
        })
    }

    /// Moves fresh events to their places, if there are many.
    pub(super) fn tidy(&mut self) -> rusqlite::Result<()> {
        if self.fresh < FRESH_EVENTS {
            return Ok(());
        }
        self.begun(|ledger| fresh::settle_all(&mut ledger.statements))?;
        self.fresh = 0;
        Ok(())
    }

    /// What SQLite calls the state of the database: another number if others have written.
    pub(super) fn data_version(&mut self) -> rusqlite::Result<i64> {
        self.statements.data_version.query_row([], |row| row.get(0))
    }

    /// Where a session stands.
    pub(super) fn head(&mut self, session: &SessionId) -> rusqlite::Result<Seq> {
        let head = self.statements.head.query_row([session.as_str()], |row| row.get::<_, i64>(0));
        Ok(head.optional()?.map_or(Seq::START, |head| Seq(head as u64)))
    }

    /// One transaction, all or none.
    fn begun<T>(&mut self, work: impl FnOnce(&mut Self) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let done = self.statements.begin.execute([]).and_then(|_| {
            let state = self.data_version()?;
            if self.known_at != Some(state) {
                self.known.clear();
                self.known_at = Some(state);
            }
            let done = work(self)?;
            self.statements.commit.execute([])?;
            Ok(done)
        });
        if done.is_err() {
            self.known.clear();
            // SQLite ends some failed transactions itself, and then there is none to end.
            if !self.connection.is_autocommit() {
                let _ = self.statements.rollback.execute([]);
            }
        }
        done
    }

    fn perform(&mut self, work: &Work, asker: &WriteRequester<'_>) -> Result<Written, WriterTrouble> {
        match work {
            Work::Append { session, token, after, new } => self.append(session, *token, *after, new, asker),
            Work::Acquire { session } => self.acquire(session, asker),
            Work::Release { session, token } => {
                if self.known.get(session).is_some_and(|known| known.token == *token) {
                    self.known.remove(session);
                }
                let lease = params![session.as_str(), asker.name, token.0 as i64];
                self.statements.delete_lease.execute(lease)?;
                Ok(Written::Released(session.clone(), *token))
            }
            Work::Delete { session, token } => self.delete(session, *token, asker),
            Work::Reclaim => Ok(Written::Reclaimed(reclaim::step(self.connection)?)),
        }
    }

    fn append(
        &mut self,
        session: &SessionId,
        token: Token,
        after: Seq,
        new: &[NewEvent],
        asker: &WriteRequester<'_>,
    ) -> Result<Written, WriterTrouble> {
        self.learn(session, token, asker)?;
        let Self { connection, statements, known, fresh, .. } = self;
        let Known { record, key, .. } = known.get_mut(session).expect("it was just learnt");
        if record.head != after {
            return Err(WriterTrouble::Refused(LogError::Conflict { head: record.head }));
        }
        if new.is_empty() {
            return Ok(Written::Appended(session.clone(), after));
        }
        if record.head.0 + new.len() as u64 >= SPAN as u64 {
            return Err(WriterTrouble::Broken(Error::IntegralValueOutOfRange(0, SPAN)));
        }
        // From here on a failure is the transaction's, and then nothing is known any more.
        for NewEvent { draft, row } in new {
            if let Some(line) = UsageLine::of(record, draft) {
                add_usage(statements, &line)?;
            }
            apply(record, draft, row.body.len());
        }
        let key = match *key {
            Some(key) => {
                put_record(&mut statements.update_record, record, Some(key))?;
                key
            }
            None => {
                put_record(&mut statements.insert_record, record, None)?;
                *key.insert(connection.last_insert_rowid())
            }
        };
        let number = fresh::insert(statements, key, after.0 as i64 + 1, new)?;
        *fresh = number.unwrap_or(*fresh);
        for id in new.iter().flat_map(|event| media_of(&event.draft.event)) {
            statements.insert_media.execute(params![key, id.as_str()])?;
        }
        Ok(Written::Appended(session.clone(), record.head))
    }

    /// Makes sure that the session is known. Refused if the lease does not hold.
    fn learn(
        &mut self,
        session: &SessionId,
        token: Token,
        asker: &WriteRequester<'_>,
    ) -> Result<(), WriterTrouble> {
        if self.known.get(session).is_some_and(|known| known.token == token) {
            return Ok(());
        }
        let Statements { holds, record, .. } = &mut self.statements;
        if !holds.exists(params![session.as_str(), asker.name, token.0 as i64])? {
            return Err(WriterTrouble::Refused(LogError::NotHeld { session: session.clone() }));
        }
        let found = record.query_row([session.as_str()], |row| Ok((record_from(row)?, row.get("key")?)));
        let (record, key) = match found.optional()? {
            Some((record, key)) => (record, Some(key)),
            None => (SessionRecord::new(session.clone()), None),
        };
        self.known.insert(session.clone(), Known { token, record, key });
        Ok(())
    }

    fn acquire(&mut self, session: &SessionId, asker: &WriteRequester<'_>) -> Result<Written, WriterTrouble> {
        let found = self
            .statements
            .lease
            .query_row([session.as_str()], |row| {
                let holder: String = row.get(0)?;
                Ok((holder, LeaseHolder { pid: row.get(1)?, since: Timestamp(row.get(2)?) }))
            })
            .optional()?;
        if let Some((holder, by)) = found {
            let alive = holder == asker.name
                || holder::lives(asker.holders, &holder).map_err(WriterTrouble::Refused)?;
            if alive {
                return Err(WriterTrouble::Refused(LogError::Held { session: session.clone(), by }));
            }
        }
        let token = asker.next_token;
        let pid = std::process::id();
        let values = params![session.as_str(), asker.name, token.0 as i64, pid, asker.now.0];
        self.statements.insert_lease.execute(values)?;
        Ok(Written::Leased(session.clone(), token))
    }

    fn delete(
        &mut self,
        session: &SessionId,
        token: Token,
        asker: &WriteRequester<'_>,
    ) -> Result<Written, WriterTrouble> {
        self.learn(session, token, asker)?;
        let known = self.known.remove(session).expect("it was just learnt");
        let Some(key) = known.key else {
            return Err(WriterTrouble::Refused(LogError::UnknownSession(session.clone())));
        };
        let statements = &mut self.statements;
        let places = [key * SPAN, (key + 1) * SPAN];
        statements.delete_events.execute(places)?;
        statements.delete_fresh.execute(places)?;
        statements.delete_media.execute([key])?;
        statements.delete_record.execute([key])?;
        statements.delete_lease.execute(params![session.as_str(), asker.name, token.0 as i64])?;
        Ok(Written::Deleted(session.clone()))
    }
}

fn add_usage(statements: &mut Statements<'_>, line: &UsageLine) -> rusqlite::Result<()> {
    // What no provider could mean must not make an append fail, now or when it is added up.
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).min(i64::MAX >> 20);
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros } =
        line.usage;
    statements.add_usage.execute(params![
        line.day,
        line.model,
        number(line.runs),
        number(line.failed),
        number(input_tokens),
        number(output_tokens),
        number(cache_read_tokens),
        number(cache_write_tokens),
        number(cost_micros),
    ])?;
    Ok(())
}

/// Writes a session's record with the statement that inserts or updates it. Without a key, one is chosen.
pub(super) fn put_record(
    statement: &mut Statement<'_>,
    record: &SessionRecord,
    key: Option<i64>,
) -> rusqlite::Result<()> {
    let values = params![
        key,
        record.id.as_str(),
        record.title,
        record.door,
        record.agent.as_ref().map(AgentId::as_str),
        record.created.0,
        record.updated.0,
        record.head.0 as i64,
        record.messages as i64,
        record.bytes as i64,
        record.running.as_ref().map(RunId::as_str),
    ];
    statement.execute(values).map(|_| ())
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{EventId, NewEntry, SessionEvent};

    use super::super::{Files, OPEN_CHECK_WAIT, schema};
    use super::*;

    #[test]
    fn nothing_is_known_of_sessions_that_are_not_held_any_more() {
        let home = tempfile::tempdir().unwrap();
        let files = Files::of(home.path());
        let (connection, _) = schema::open(home.path(), &files, OPEN_CHECK_WAIT).unwrap();
        let mut ledger = Ledger::new(&connection).unwrap();
        let event = SessionEvent::Cleared;
        let draft = NewEntry { id: EventId::parse("e").unwrap(), at: Timestamp(1), event };
        let (session, token) = (SessionId::parse("s").unwrap(), Token(1));
        let mut known_after = |work: Work| {
            let asker = |_| WriteRequester {
                holders: &files.holders,
                name: "me",
                now: Timestamp(1),
                next_token: token,
            };
            ledger.transact(&[&work], asker).unwrap().pop().unwrap().unwrap();
            ledger.known.len()
        };
        for end in [
            Work::Release { session: session.clone(), token },
            Work::Delete { session: session.clone(), token },
        ] {
            assert_eq!(known_after(Work::Acquire { session: session.clone() }), 0);
            let after = if matches!(end, Work::Release { .. }) { Seq::START } else { Seq(1) };
            let new = vec![NewEvent::of(&draft)];
            assert_eq!(known_after(Work::Append { session: session.clone(), token, after, new }), 1);
            assert_eq!(known_after(end), 0);
        }
    }
}
