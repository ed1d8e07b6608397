//! The writer thread.
//!
//! Requests that arrive during a flush of the disk share the next transaction. The thread also polls for appends of other
//! processes while somebody follows a session that this store does not hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parlor_vocab::{Seq, SessionId};
use rusqlite::Connection;

use super::db_error::db_error;
use super::holder::Holder;
use super::queue::Job;
use super::request::{Applied, RequestContext, WriteReply, WriteRequest};
use super::rescue::rescue;
use super::write_connection::{Outcomes, WriteConnection};
use super::{FOLLOW_INTERVAL, GATHER_DIVISOR, GATHER_WAIT, Shared};
use crate::LogError;
use crate::lease::{Lease, Token};

/// Carries out requests until the queue is closed and empty.
pub(super) fn run(shared: &Arc<Shared>, connection: &Connection) {
    let mut writer = Writer {
        shared,
        connection,
        database: None,
        holder: None,
        last_token: 0,
        leases: HashMap::new(),
        unreleased: Vec::new(),
        expected_jobs: 0,
        gather_wait: GATHER_WAIT,
        is_polling: false,
        last_poll: Instant::now(),
        polled_version: None,
        is_rescued: false,
    };
    loop {
        let batch = shared.queue.next_batch(writer.time_to_poll(), writer.expected_jobs, writer.gather_wait);
        let lease_lost = !batch.jobs.is_empty() && writer.process(batch.jobs);
        writer.rescue_if_replaced();
        if batch.is_last {
            return;
        }
        if batch.poll_requested || lease_lost || writer.time_to_poll() == Some(Duration::ZERO) {
            writer.poll(batch.poll_requested);
        }
    }
}

struct Writer<'c> {
    shared: &'c Arc<Shared>,
    connection: &'c Connection,
    /// Created with the first request, since that can fail.
    database: Option<WriteConnection<'c>>,
    /// Created with the first lease.
    holder: Option<Holder>,
    last_token: u64,
    /// The sessions that this store holds, so no other process can write them.
    leases: HashMap<SessionId, Token>,
    /// Releases of dropped leases that failed, to be tried again.
    unreleased: Vec<Job>,
    /// How many requests the next batch probably has: those of the last transaction, and those that arrived meanwhile.
    expected_jobs: usize,
    /// How long to wait for them.
    gather_wait: Duration,
    /// Whether somebody follows a session that other processes can write, or waits for the loss of a lease.
    is_polling: bool,
    last_poll: Instant,
    /// SQLite's `data_version` at the last poll.
    polled_version: Option<i64>,
    /// Whether the acknowledged events were rescued after the files were replaced.
    is_rescued: bool,
}

impl Writer<'_> {
    /// How long the thread may sleep until the next poll; `None` if it does not poll.
    fn time_to_poll(&self) -> Option<Duration> {
        self.is_polling.then(|| FOLLOW_INTERVAL.saturating_sub(self.last_poll.elapsed()))
    }

    /// Carries out all jobs, in one transaction if possible, and answers them. Returns whether this store gave up a
    /// session that other processes can write from now on.
    fn process(&mut self, new: Vec<Job>) -> bool {
        let mut jobs = std::mem::take(&mut self.unreleased);
        jobs.extend(new);
        let requests: Vec<&WriteRequest> = jobs.iter().map(|job| &job.request).collect();
        let started = Instant::now();
        let outcomes = match self.try_batch(&requests) {
            Ok(outcomes) => outcomes,
            Err(error) if requests.len() == 1 => vec![Err(error)],
            // One request broke the transaction. Each gets a transaction of its own, so that the others succeed.
            Err(_) => requests.iter().map(|request| self.try_batch(&[request]).and_then(single)).collect(),
        };
        self.expected_jobs = jobs.len() + self.shared.queue.len();
        self.gather_wait = (started.elapsed() / GATHER_DIVISOR).min(GATHER_WAIT);
        let mut lease_lost = false;
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            lease_lost |= self.finish(job, outcome);
        }
        // Nobody waits for this; on failure it is tried again after the next batch.
        let _ = self.database.as_mut().map(WriteConnection::move_fresh_if_many);
        lease_lost
    }

    /// Tries to apply all of `requests` in one transaction. A refused request does not affect the others; an error means
    /// that nothing was written.
    fn try_batch(&mut self, requests: &[&WriteRequest]) -> Result<Outcomes, LogError> {
        let outcomes = self.verify().and_then(|()| self.transact(requests));
        if let Err(error) = &outcomes {
            self.shared.open_files.note_error(error);
        }
        // Again: if the files were replaced meanwhile, the next start would not find these events.
        self.verify()?;
        outcomes
    }

    /// Fails if the files on the disk are not the open ones.
    fn verify(&mut self) -> Result<(), LogError> {
        let verified = self.shared.open_files.verify();
        self.rescue_if_replaced();
        verified
    }

    /// Once, rescues the events that were acknowledged before the files were replaced.
    fn rescue_if_replaced(&mut self) {
        if !self.is_rescued && self.shared.open_files.are_replaced() {
            self.is_rescued = true;
            rescue(self.connection, &self.shared.open_files, self.shared.clock.now());
        }
    }

    fn transact(&mut self, requests: &[&WriteRequest]) -> Result<Outcomes, LogError> {
        let wants_lease = requests.iter().any(|request| matches!(request, WriteRequest::Acquire { .. }));
        if wants_lease && self.holder.is_none() {
            self.holder = Some(Holder::create(&self.shared.files.holders, self.shared.announcement())?);
        }
        let failed = |error| db_error(&self.shared.files.database, error);
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(WriteConnection::new(self.connection).map_err(failed)?),
        };
        let outcomes = database.transact(requests, |number| RequestContext {
            holders: &self.shared.files.holders,
            // Without a holder this store has no lease, so no lease can match the empty name.
            holder_name: self.holder.as_ref().map_or("", Holder::name),
            now: self.shared.clock.now(),
            next_token: Token(self.last_token + number + 1),
        });
        let outcomes = outcomes.map_err(failed)?;
        self.last_token += requests.len() as u64;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }

    /// Answers a job that is durable or failed, and wakes followers. Returns whether a lease was lost.
    fn finish(&mut self, job: Job, outcome: Result<Applied, LogError>) -> bool {
        let mut lease_lost = false;
        let mut new_head = None;
        let reply = match outcome {
            Ok(Applied::Appended(session, head)) => {
                self.shared.appends.fetch_add(1, Ordering::Relaxed);
                new_head = Some((session, head));
                Ok(WriteReply::Appended(head))
            }
            Ok(Applied::PartialTextKept) => Ok(WriteReply::PartialTextKept),
            Ok(Applied::SnapshotKept) => Ok(WriteReply::SnapshotKept),
            Ok(Applied::Leased(session, token)) => {
                self.leases.insert(session.clone(), token);
                let releaser = Arc::<Shared>::clone(self.shared);
                // If the caller no longer waits, dropping the lease releases it.
                Ok(WriteReply::Leased(Lease::new(session, token, releaser)))
            }
            Ok(Applied::Released(session, token)) => {
                lease_lost = self.forget_lease(&session, token);
                Ok(WriteReply::Released)
            }
            Ok(Applied::Deleted(session)) => {
                let token = self.leases.remove(&session);
                lease_lost = token.is_some();
                token.into_iter().for_each(|token| self.shared.lost_leases.report(token));
                new_head = Some((session, Seq::START));
                Ok(WriteReply::Deleted)
            }
            Ok(Applied::Reclaimed(freed)) => Ok(WriteReply::Reclaimed(freed)),
            Err(error) => {
                if let (
                    LogError::NotHeld { session },
                    WriteRequest::Append { token, .. }
                    | WriteRequest::KeepPartialText { token, .. }
                    | WriteRequest::KeepSnapshot { token, .. },
                ) = (&error, &job.request)
                {
                    lease_lost = self.forget_lease(session, *token);
                }
                Err(error)
            }
        };
        match (job.reply_sender, reply) {
            // Fails if the caller dropped its future.
            (Some(sender), reply) => drop(sender.send(reply)),
            (None, Err(_)) => self.unreleased.push(Job { request: job.request, reply_sender: None }),
            (None, Ok(_)) => {}
        }
        // The appending caller is answered first, because followers have to read from the log before they continue.
        if let Some((session, head)) = new_head {
            self.shared.heads.publish(&session, head);
        }
        lease_lost
    }

    /// Removes a lease that is gone. Returns whether this store had it.
    fn forget_lease(&mut self, session: &SessionId, token: Token) -> bool {
        self.shared.lost_leases.report(token);
        let is_ours = self.leases.get(session) == Some(&token);
        if is_ours {
            self.leases.remove(session);
        }
        is_ours
    }

    /// Wakes followers of sessions that other processes appended to, and holders that lost their lease. If
    /// `has_new_waiters`, compares all heads and leases even if the database has not changed, because new followers know
    /// no head yet.
    fn poll(&mut self, has_new_waiters: bool) {
        let held = self.shared.lost_leases.watched();
        let mut foreign = self.shared.heads.followed();
        foreign.retain(|(session, _)| !self.leases.contains_key(session));
        self.is_polling = !foreign.is_empty() || !held.is_empty();
        self.last_poll = Instant::now();
        if self.is_polling {
            // On failure, the next poll compares again.
            self.polled_version = self.publish_changes(&foreign, &held, has_new_waiters).unwrap_or(None);
        }
    }

    fn publish_changes(
        &mut self,
        foreign: &[(SessionId, Seq)],
        held: &[(SessionId, Token)],
        has_new_waiters: bool,
    ) -> rusqlite::Result<Option<i64>> {
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(WriteConnection::new(self.connection)?),
        };
        // The version first, then the heads: a change in between is noticed at the next poll.
        let version = database.data_version()?;
        if !has_new_waiters && self.polled_version == Some(version) {
            return Ok(Some(version));
        }
        for (session, known) in foreign {
            let head = database.head(session)?;
            if head != *known {
                self.shared.heads.publish(session, head);
            }
        }
        let holder_name = self.holder.as_ref().map_or("", Holder::name);
        let mut lost = Vec::new();
        for (session, token) in held {
            if !database.has_lease(session, holder_name, *token)? {
                lost.push((session, *token));
            }
        }
        for (session, token) in lost {
            self.forget_lease(session, token);
        }
        Ok(Some(version))
    }
}

fn single(mut outcomes: Outcomes) -> Result<Applied, LogError> {
    outcomes.pop().expect("one request has one outcome")
}
