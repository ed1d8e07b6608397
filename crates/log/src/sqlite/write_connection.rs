//! The writer's connection: applies appends, leases (also those of dead processes) and deletions within a transaction.
//!
//! A request is refused before it has written anything, so a refusal needs no rollback and does not affect the other
//! requests of the transaction.

use std::collections::HashMap;

use parlor_vocab::{AgentId, RunId, Seq, SessionId, Timestamp, Usage};
use rusqlite::{Connection, Error, OptionalExtension, Statement, params};

use super::fresh::{self, FRESH_EVENTS};
use super::request::{
    Applied, EncodedEntry, PLACES_PER_SESSION, RequestContext, RequestError, WriteRequest, record_from,
};
use super::statements::Statements;
use super::{holder, reclaim};
use crate::lease::Token;
use crate::media::media_of;
use crate::partial_text::{PartialText, ends_partial_text};
use crate::record::apply;
use crate::snapshot::StoredSnapshot;
use crate::{LeaseHolder, LogError, SessionRecord, UsageLine};

/// The result of each request of a transaction.
pub(super) type Outcomes = Vec<Result<Applied, LogError>>;

/// The writer's connection with its prepared statements and a cache of session records.
pub(super) struct WriteConnection<'c> {
    connection: &'c Connection,
    statements: Statements<'c>,
    /// Sessions that this store holds and has appended to. Valid until another connection writes or a transaction fails.
    cache: HashMap<SessionId, CachedSession>,
    /// SQLite's `data_version` when the cache was valid: the number changes when another connection writes.
    cache_version: Option<i64>,
    /// The number of rows in the table `fresh`, or more.
    fresh_events: usize,
}

/// The record of a session that this store holds.
struct CachedSession {
    token: Token,
    record: SessionRecord,
    /// `None` until the first append.
    key: Option<i64>,
}

impl<'c> WriteConnection<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let statements = Statements::new(connection)?;
        Ok(Self { connection, statements, cache: HashMap::new(), cache_version: None, fresh_events: 0 })
    }

    /// Applies all requests in one transaction. A refused request does not affect the others; an error means that nothing
    /// was written. `context` gets the index of a request.
    pub(super) fn transact<'a>(
        &mut self,
        requests: &[&WriteRequest],
        context: impl Fn(u64) -> RequestContext<'a>,
    ) -> rusqlite::Result<Outcomes> {
        self.in_transaction(|this| {
            let apply = |(request, index): (&&WriteRequest, u64)| match this
                .apply_request(request, &context(index))
            {
                Ok(applied) => Ok(Ok(applied)),
                Err(RequestError::Refused(error)) => Ok(Err(error)),
                Err(RequestError::Database(error)) => Err(error),
            };
            requests.iter().zip(0..).map(apply).collect()
        })
    }

    /// Moves the events of the table `fresh` to the table `events`, if there are many.
    pub(super) fn move_fresh_if_many(&mut self) -> rusqlite::Result<()> {
        if self.fresh_events < FRESH_EVENTS {
            return Ok(());
        }
        self.in_transaction(|this| fresh::move_all(&mut this.statements))?;
        self.fresh_events = 0;
        Ok(())
    }

    /// A number that changes when another connection writes.
    pub(super) fn data_version(&mut self) -> rusqlite::Result<i64> {
        self.statements.data_version.query_row([], |row| row.get(0))
    }

    /// Whether the lease with this token is still that of the holder.
    pub(super) fn has_lease(
        &mut self,
        session: &SessionId,
        holder_name: &str,
        token: Token,
    ) -> rusqlite::Result<bool> {
        self.statements.has_lease.exists(params![session.as_str(), holder_name, token.0 as i64])
    }

    /// The head of a session; [`Seq::START`] if it does not exist.
    pub(super) fn head(&mut self, session: &SessionId) -> rusqlite::Result<Seq> {
        let head = self.statements.head.query_row([session.as_str()], |row| row.get::<_, i64>(0));
        Ok(head.optional()?.map_or(Seq::START, |head| Seq(head as u64)))
    }

    /// Runs `change` in a transaction and commits it, or rolls it back on error.
    fn in_transaction<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let result = self.statements.begin.execute([]).and_then(|_| {
            let version = self.data_version()?;
            if self.cache_version != Some(version) {
                self.cache.clear();
                self.cache_version = Some(version);
            }
            let result = change(self)?;
            self.statements.commit.execute([])?;
            Ok(result)
        });
        if result.is_err() {
            self.cache.clear();
            // SQLite rolls some failed transactions back itself.
            if !self.connection.is_autocommit() {
                let _ = self.statements.rollback.execute([]);
            }
        }
        result
    }

    fn apply_request(
        &mut self,
        request: &WriteRequest,
        context: &RequestContext<'_>,
    ) -> Result<Applied, RequestError> {
        match request {
            WriteRequest::Append { session, token, after, new } => {
                self.append(session, *token, *after, new, context)
            }
            WriteRequest::KeepPartialText { session, token, message, start, text } => {
                let part = PartialText { message, start: *start, text };
                self.keep_partial_text(session, *token, part, context)
            }
            WriteRequest::KeepSnapshot { session, token, snapshot } => {
                self.keep_snapshot(session, *token, snapshot, context)
            }
            WriteRequest::Acquire { session } => self.acquire(session, context),
            WriteRequest::Release { session, token } => {
                if self.cache.get(session).is_some_and(|cached| cached.token == *token) {
                    self.cache.remove(session);
                }
                let lease = params![session.as_str(), context.holder_name, token.0 as i64];
                self.statements.delete_lease.execute(lease)?;
                Ok(Applied::Released(session.clone(), *token))
            }
            WriteRequest::Delete { session, token } => self.delete(session, *token, context),
            WriteRequest::Reclaim => Ok(Applied::Reclaimed(reclaim::step(self.connection)?)),
        }
    }

    fn append(
        &mut self,
        session: &SessionId,
        token: Token,
        after: Seq,
        new: &[EncodedEntry],
        context: &RequestContext<'_>,
    ) -> Result<Applied, RequestError> {
        self.load(session, token, context)?;
        let Self { connection, statements, cache, fresh_events, .. } = self;
        let CachedSession { record, key, .. } = cache.get_mut(session).expect("`load` has cached it");
        if record.head != after {
            return Err(RequestError::Refused(LogError::Conflict { head: record.head }));
        }
        if new.is_empty() {
            return Ok(Applied::Appended(session.clone(), after));
        }
        if record.head.0 + new.len() as u64 >= PLACES_PER_SESSION as u64 {
            return Err(RequestError::Database(Error::IntegralValueOutOfRange(0, PLACES_PER_SESSION)));
        }
        // From here on, an error rolls back the transaction, which also clears the cache that is changed here.
        for EncodedEntry { entry, row } in new {
            if let Some(line) = UsageLine::of(record, entry) {
                execute_usage(&mut statements.add_usage, &line)?;
            }
            apply(record, entry, row.body.len());
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
        let fresh_count = fresh::insert(statements, key, after.0 as i64 + 1, new)?;
        *fresh_events = fresh_count.unwrap_or(*fresh_events);
        for id in new.iter().flat_map(|event| media_of(&event.entry.event)) {
            statements.insert_media.execute(params![key, id.as_str()])?;
        }
        if new.iter().any(|event| ends_partial_text(&event.entry.event)) {
            statements.delete_partial_text.execute([key])?;
        }
        Ok(Applied::Appended(session.clone(), record.head))
    }

    fn keep_partial_text(
        &mut self,
        session: &SessionId,
        token: Token,
        part: PartialText<'_>,
        context: &RequestContext<'_>,
    ) -> Result<Applied, RequestError> {
        self.load(session, token, context)?;
        let Some(key) = self.cache.get(session).and_then(|cached| cached.key) else {
            return Err(RequestError::Refused(LogError::UnknownSession(session.clone())));
        };
        let (start, message) = (part.start as i64, part.message.as_str());
        self.statements.delete_partial_text_from.execute(params![key, start, message])?;
        self.statements.insert_partial_text.execute(params![key, start, message, part.text])?;
        Ok(Applied::PartialTextKept)
    }

    fn keep_snapshot(
        &mut self,
        session: &SessionId,
        token: Token,
        snapshot: &StoredSnapshot,
        context: &RequestContext<'_>,
    ) -> Result<Applied, RequestError> {
        self.load(session, token, context)?;
        let Some(key) = self.cache.get(session).and_then(|cached| cached.key) else {
            return Err(RequestError::Refused(LogError::UnknownSession(session.clone())));
        };
        let StoredSnapshot { seq, event, row } = snapshot;
        let values = params![key, seq.0 as i64, event.as_str(), row.version, row.body];
        self.statements.put_snapshot.execute(values)?;
        Ok(Applied::SnapshotKept)
    }

    /// Makes sure that the session is in the cache. Refused if the lease is not valid.
    fn load(
        &mut self,
        session: &SessionId,
        token: Token,
        context: &RequestContext<'_>,
    ) -> Result<(), RequestError> {
        if self.cache.get(session).is_some_and(|cached| cached.token == token) {
            return Ok(());
        }
        if !self.has_lease(session, context.holder_name, token)? {
            return Err(RequestError::Refused(LogError::NotHeld { session: session.clone() }));
        }
        let found = self
            .statements
            .record
            .query_row([session.as_str()], |row| Ok((record_from(row)?, row.get("key")?)));
        let (record, key) = match found.optional()? {
            Some((record, key)) => (record, Some(key)),
            None => (SessionRecord::new(session.clone()), None),
        };
        self.cache.insert(session.clone(), CachedSession { token, record, key });
        Ok(())
    }

    fn acquire(
        &mut self,
        session: &SessionId,
        context: &RequestContext<'_>,
    ) -> Result<Applied, RequestError> {
        let found = self
            .statements
            .lease
            .query_row([session.as_str()], |row| {
                let holder: String = row.get(0)?;
                Ok((holder, row.get(1)?, Timestamp(row.get(2)?)))
            })
            .optional()?;
        if let Some((holder, pid, since)) = found {
            let is_alive = holder == context.holder_name
                || holder::is_alive(context.holders, &holder).map_err(RequestError::Refused)?;
            if is_alive {
                let announcement = holder::announcement(context.holders, &holder);
                let by = LeaseHolder { node: None, pid, since, announcement };
                return Err(RequestError::Refused(LogError::Held { session: session.clone(), by }));
            }
        }
        let token = context.next_token;
        let pid = std::process::id();
        let values = params![session.as_str(), context.holder_name, token.0 as i64, pid, context.now.0];
        self.statements.insert_lease.execute(values)?;
        Ok(Applied::Leased(session.clone(), token))
    }

    fn delete(
        &mut self,
        session: &SessionId,
        token: Token,
        context: &RequestContext<'_>,
    ) -> Result<Applied, RequestError> {
        self.load(session, token, context)?;
        let cached = self.cache.remove(session).expect("`load` has cached it");
        let Some(key) = cached.key else {
            return Err(RequestError::Refused(LogError::UnknownSession(session.clone())));
        };
        let statements = &mut self.statements;
        let places = [key * PLACES_PER_SESSION, (key + 1) * PLACES_PER_SESSION];
        statements.delete_events.execute(places)?;
        statements.delete_fresh.execute(places)?;
        statements.delete_partial_text.execute([key])?;
        statements.delete_media.execute([key])?;
        statements.delete_snapshot.execute([key])?;
        statements.delete_record.execute([key])?;
        statements.delete_lease.execute(params![session.as_str(), context.holder_name, token.0 as i64])?;
        Ok(Applied::Deleted(session.clone()))
    }
}

/// Runs a statement whose parameters are the columns of the table `usage`.
pub(super) fn execute_usage(statement: &mut Statement<'_>, line: &UsageLine) -> rusqlite::Result<()> {
    // An absurd number from a provider must not make an append fail, now or when numbers are added.
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).min(i64::MAX >> 20);
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros } =
        line.usage;
    statement.execute(params![
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

/// Writes a session's record with the given insert or update statement. Without a key, SQLite chooses one.
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
    fn released_and_deleted_sessions_leave_the_cache() {
        let home = tempfile::tempdir().unwrap();
        let files = Files::in_home(home.path());
        let (connection, _) = schema::open(home.path(), &files, OPEN_CHECK_WAIT).unwrap();
        let mut writer = WriteConnection::new(&connection).unwrap();
        let event = SessionEvent::Cleared;
        let entry = NewEntry { id: EventId::parse("e").unwrap(), at: Timestamp(1), event };
        let (session, token) = (SessionId::parse("s").unwrap(), Token(1));
        let mut cached_after = |request: WriteRequest| {
            let context = |_| RequestContext {
                holders: &files.holders,
                holder_name: "me",
                now: Timestamp(1),
                next_token: token,
            };
            writer.transact(&[&request], context).unwrap().pop().unwrap().unwrap();
            writer.cache.len()
        };
        for end in [
            WriteRequest::Release { session: session.clone(), token },
            WriteRequest::Delete { session: session.clone(), token },
        ] {
            assert_eq!(cached_after(WriteRequest::Acquire { session: session.clone() }), 0);
            let after = if matches!(end, WriteRequest::Release { .. }) { Seq::START } else { Seq(1) };
            let new = vec![EncodedEntry::new(&entry)];
            assert_eq!(cached_after(WriteRequest::Append { session: session.clone(), token, after, new }), 1);
            assert_eq!(cached_after(end), 0);
        }
    }
}
