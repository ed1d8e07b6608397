//! How the writer carries out a group of appends and partial texts, and settles what a lost connection left open.
//!
//! After a connection was lost, nobody knows whether its last statement was committed, or still will be. Then the writer
//! looks for the first event of each append. If it is there, the append succeeded. If not, the writer repeats the append;
//! should the first statement be committed after all, the repeated one finds another head, and the writer looks again.
//!
//! What is seen that way, or committed with a warning, may be missing on the standby. It is acknowledged after a later write
//! was committed without a warning, because a standby has all that was committed before what it has.

use parlor_vocab::{Seq, SessionId};

use super::append::{Append, Change, ChangeKind, ChangeOutcome, SentAppend, find_appends};
use super::append_all::write_all;
use super::append_each::write_each;
use super::db_error::{DbError, describe};
use super::queue::Job;
use super::request::{StoredValueError, WriteReply, WriteRequest, record_columns, record_from};
use super::writer::{Failures, MAX_ROLLBACKS, Replies, Writer};
use crate::lease::Token;
use crate::{LogError, SessionRecord};

const RECORDS: &str = concat!("SELECT ", record_columns!(), " FROM sessions WHERE id = ANY ($1::bytea[])");

/// A small write, to find out whether a commit is durable now.
pub(super) const PROBE: &str = "INSERT INTO write_probes (node, at) VALUES ($1, now())
    ON CONFLICT (node) DO UPDATE SET at = excluded.at";

/// The progress of one job of the group.
#[derive(Default)]
struct Progress {
    reply: Option<Result<WriteReply, LogError>>,
    /// Whether an attempt was lost with its connection.
    is_unsure: bool,
    /// How often the database had another head or another lease than expected.
    surprises: usize,
    /// Whether the last surprise was another lease.
    is_lease_lost: bool,
}

/// Why an attempt ended early.
pub(super) enum Interrupted {
    /// By the database.
    Database(DbError),
    /// For all jobs of the group.
    Failed(LogError),
}

impl From<DbError> for Interrupted {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

impl From<LogError> for Interrupted {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

impl Writer<'_> {
    /// Carries out appends and partial texts. A refused one does not affect the others.
    pub(super) async fn write_changes(&mut self, jobs: &[Job], incarnation: i64) -> Replies {
        let mut progress: Vec<Progress> = jobs.iter().map(|_| Progress::default()).collect();
        for (job, progress) in jobs.iter().zip(&mut progress) {
            let (session, token) = lease_of(&job.request);
            if !self.shared.membership.holds(session, token) {
                progress.reply = Some(Err(LogError::NotHeld { session: session.clone() }));
            }
        }
        // Usually all of them. One after the other, if the database refuses the group because of one of them.
        let mut size = jobs.len();
        let mut failures = Failures::default();
        loop {
            let pending = (0..jobs.len()).filter(|number| progress[*number].reply.is_none());
            let pending: Vec<usize> = pending.take(size).collect();
            if pending.is_empty() {
                return progress.into_iter().filter_map(|progress| progress.reply).collect();
            }
            let error = match self.attempt(jobs, &pending, &mut progress, incarnation).await {
                Ok(()) => continue,
                Err(interrupted) => interrupted,
            };
            for number in &pending {
                self.records.remove(jobs[*number].request.session());
            }
            let error = match error {
                Interrupted::Database(error) => {
                    if self.may_repeat(&error, &mut failures) {
                        pending.iter().for_each(|number| progress[*number].is_unsure = true);
                        continue;
                    }
                    if pending.len() > 1 {
                        (size, failures) = (1, Failures::default());
                        continue;
                    }
                    failures = Failures::default();
                    if progress[pending[0]].is_unsure {
                        // It may be stored, so it did not simply fail.
                        self.shared.unavailable(&describe(&error))
                    } else {
                        self.shared.log_error(error)
                    }
                }
                // A record that cannot be read must not stop the other sessions.
                Interrupted::Failed(LogError::Database { .. }) if pending.len() > 1 => {
                    size = 1;
                    continue;
                }
                Interrupted::Failed(error @ LogError::Unavailable { .. }) => {
                    // The others would wait for the same server, one after the other.
                    for progress in progress.iter_mut().filter(|progress| progress.reply.is_none()) {
                        progress.reply = Some(Err(self.shared.unavailable(&error.to_string())));
                    }
                    continue;
                }
                Interrupted::Failed(error) => error,
            };
            for number in pending.iter().skip(1) {
                progress[*number].reply = Some(Err(self.shared.unavailable(&error.to_string())));
            }
            progress[pending[0]].reply = Some(Err(error));
        }
    }

    /// Tries to carry out the jobs with these numbers. Those that are still without a reply afterwards have to be tried
    /// again.
    async fn attempt(
        &mut self,
        jobs: &[Job],
        pending: &[usize],
        progress: &mut [Progress],
        incarnation: i64,
    ) -> Result<(), Interrupted> {
        // In this order: an append that is committed between the two is found, and a head that is not ours is a conflict.
        self.load_records(jobs, pending).await?;
        let mut done = self.find_unsure(jobs, pending, progress).await?;
        let mut needs_probe = !done.is_empty();
        for (number, _) in &done {
            self.records.remove(jobs[*number].request.session());
        }
        let (mut numbers, mut changes) = (Vec::new(), Vec::new());
        for number in pending.iter().copied() {
            if done.iter().any(|(found, _)| *found == number) {
                continue;
            }
            match self.change(&jobs[number].request, progress[number].is_lease_lost) {
                Ok(change) => {
                    numbers.push(number);
                    changes.push(change);
                }
                Err(reply) => progress[number].reply = Some(reply),
            }
        }
        if !changes.is_empty() {
            let origin = self.shared.write_origin(incarnation);
            let connection = self.connected().await?;
            let outcomes = if write_all(connection, &changes, &origin).await? {
                vec![ChangeOutcome::Done; changes.len()]
            } else {
                write_each(connection, &changes, &origin).await?
            };
            needs_probe |= connection.take_sync_wait_cancelled();
            for ((number, change), outcome) in numbers.into_iter().zip(changes).zip(outcomes) {
                let reply = self.note_outcome(change, outcome, &mut progress[number]);
                done.extend(reply.map(|reply| (number, reply)));
            }
        }
        if needs_probe {
            // If this fails, what is done has to be found again.
            done.iter().for_each(|(number, _)| progress[*number].is_unsure = true);
            self.probe().await?;
        }
        for (number, reply) in done {
            progress[number].reply = Some(Ok(reply));
        }
        Ok(())
    }

    /// Finds the unsure appends that are in the database. Returns their numbers and replies.
    async fn find_unsure(
        &mut self,
        jobs: &[Job],
        pending: &[usize],
        progress: &[Progress],
    ) -> Result<Vec<(usize, WriteReply)>, Interrupted> {
        let (mut replies, mut appends) = (Vec::new(), Vec::new());
        for number in pending.iter().copied().filter(|number| progress[*number].is_unsure) {
            if let WriteRequest::Append { session, after, new, .. } = &jobs[number].request
                && let Some(first) = new.first()
            {
                let head = Seq(after.0 + new.len() as u64);
                replies.push((number, WriteReply::Appended(head)));
                appends.push(SentAppend { session, after: *after, first_event: &first.entry.id });
            }
        }
        if appends.is_empty() {
            return Ok(Vec::new());
        }
        let found = find_appends(self.connected().await?, &appends).await?;
        Ok(replies.into_iter().zip(found).filter_map(|(reply, found)| found.then_some(reply)).collect())
    }

    /// Reads the records that are not in the cache.
    async fn load_records(&mut self, jobs: &[Job], pending: &[usize]) -> Result<(), Interrupted> {
        self.records.make_room();
        let leases = pending.iter().map(|number| lease_of(&jobs[*number].request));
        let missing: Vec<(&SessionId, Token)> =
            leases.filter(|(session, token)| self.records.get(session, *token).is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&[u8]> = missing.iter().map(|(session, _)| session.as_str().as_bytes()).collect();
        let rows = self.connected().await?.query(RECORDS, &[&names]).await?;
        let found: Result<Vec<SessionRecord>, StoredValueError> = rows.iter().map(record_from).collect();
        let mut found = self.shared.stored(found)?;
        for (session, token) in missing {
            let stored = found.iter().position(|record| record.id == *session);
            let record = stored.map(|index| found.swap_remove(index));
            self.records.put(token, record.unwrap_or_else(|| SessionRecord::new(session.clone())));
        }
        Ok(())
    }

    /// What a request changes, or the reply if it changes nothing.
    fn change<'j>(
        &self,
        request: &'j WriteRequest,
        is_lease_lost: bool,
    ) -> Result<Change<'j>, Result<WriteReply, LogError>> {
        let (session, token) = lease_of(request);
        if is_lease_lost {
            return Err(Err(LogError::NotHeld { session: session.clone() }));
        }
        let record = self.records.get(session, token).expect("`load_records` has cached it");
        match request {
            WriteRequest::Append { after, .. } if record.head != *after => {
                Err(Err(LogError::Conflict { head: record.head }))
            }
            WriteRequest::Append { after, new, .. } if new.is_empty() => {
                Err(Ok(WriteReply::Appended(*after)))
            }
            WriteRequest::Append { new, .. } => {
                let kind = ChangeKind::Append(Append::new(record.clone(), new));
                Ok(Change { session, token, kind })
            }
            WriteRequest::KeepPartialText { .. } if record.head == Seq::START => {
                Err(Err(LogError::UnknownSession(session.clone())))
            }
            WriteRequest::KeepPartialText { message, start, text, .. } => {
                Ok(Change { session, token, kind: ChangeKind::PartialText { message, start: *start, text } })
            }
            WriteRequest::KeepSnapshot { .. }
            | WriteRequest::Acquire { .. }
            | WriteRequest::Release { .. }
            | WriteRequest::Delete { .. } => {
                unreachable!("the group has appends and partial texts only")
            }
        }
    }

    /// Returns the reply to a change that is done. Leaves it without a reply if it has to be tried again.
    fn note_outcome(
        &mut self,
        change: Change<'_>,
        outcome: ChangeOutcome,
        progress: &mut Progress,
    ) -> Option<WriteReply> {
        match (outcome, change.kind) {
            (ChangeOutcome::Done, ChangeKind::Append(append)) => {
                let head = append.record.head;
                self.records.put(change.token, append.record);
                return Some(WriteReply::Appended(head));
            }
            (ChangeOutcome::Done, ChangeKind::PartialText { .. }) => {
                return Some(WriteReply::PartialTextKept);
            }
            (ChangeOutcome::NotHeld, _) if !progress.is_unsure => {
                progress.reply = Some(Err(LogError::NotHeld { session: change.session.clone() }));
            }
            // The lost attempt may have been committed a moment ago: look again.
            (ChangeOutcome::NotHeld | ChangeOutcome::OtherHead, _) => {
                self.records.remove(change.session);
                progress.surprises += 1;
                progress.is_lease_lost = outcome == ChangeOutcome::NotHeld;
                if progress.surprises > MAX_ROLLBACKS {
                    let error = self.shared.unavailable("the head of a session keeps changing");
                    progress.reply = Some(Err(error));
                }
            }
        }
        None
    }

    /// Writes until a commit comes back without a warning.
    pub(super) async fn probe(&mut self) -> Result<(), Interrupted> {
        let node = self.shared.options.node.as_bytes();
        let connection = self.connected().await?;
        loop {
            connection.query(PROBE, &[&node]).await?;
            if !connection.take_sync_wait_cancelled() {
                return Ok(());
            }
        }
    }
}

/// The session and the token of an append or a partial text.
fn lease_of(request: &WriteRequest) -> (&SessionId, Token) {
    match request {
        WriteRequest::Append { session, token, .. }
        | WriteRequest::KeepPartialText { session, token, .. } => (session, *token),
        WriteRequest::KeepSnapshot { .. }
        | WriteRequest::Acquire { .. }
        | WriteRequest::Release { .. }
        | WriteRequest::Delete { .. } => {
            unreachable!("the group has appends and partial texts only")
        }
    }
}
