//! The writer task: one connection, and one transaction for all requests that wait at the same time.
//!
//! Requests that arrive during a commit share the next transaction. A request fails when this process has to give up its
//! leases ([`node`](super::node)); until then the task reconnects and repeats what is not certain to be stored.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::append::WriteOrigin;
use super::connect::{Backoff, Connection};
use super::db_error::{DbError, Failure, classify, describe};
use super::group::Interrupted;
use super::leases::{self, Acquired, Deletion, LeaseRequest};
use super::node::CLOSED;
use super::queue::Job;
use super::record_cache::RecordCache;
use super::request::{WriteReply, WriteRequest};
use crate::LogError;
use crate::lease::{Lease, Token};
use parlor_vocab::{Seq, SessionId};

/// The writer's statements touch few rows of large tables. A plan that was made while the tables were small must not read
/// all of them later.
const WRITER_SETTINGS: &str = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";

/// How often a request is repeated that the server rolled back because of others.
pub(super) const MAX_ROLLBACKS: usize = 10;

/// How often a request is repeated whose connection was lost. A server that is away does not count: this is for requests
/// that end their connection each time, for example because the server has too little memory.
pub(super) const MAX_DISCONNECTS: usize = 8;

/// The failed attempts to carry out a request.
#[derive(Default)]
pub(super) struct Failures {
    rollbacks: usize,
    disconnects: usize,
    backoff: Backoff,
}

/// The workspace of the sessions that are created on a connection; see `format_3_nodes.sql`.
const WORKSPACE_SETTING: &str = "SELECT set_config('parlor.workspace', $1, false)";

/// Connects for writing.
pub(super) async fn connect(shared: &Shared) -> Result<Connection, DbError> {
    let mut connection = shared.connector.connect().await?;
    connection.client_mut().batch_execute(WRITER_SETTINGS).await?;
    let workspace = shared.options.workspace.as_deref().unwrap_or_default();
    connection.query(WORKSPACE_SETTING, &[&workspace]).await?;
    Ok(connection)
}

/// Carries out requests until the queue is closed and empty. Then others can take the leases of this process.
pub(super) async fn run(shared: Arc<Shared>, connection: Connection) {
    // Runs also if the writer panics: otherwise callers would wait for their replies forever, and the heartbeat would keep
    // the leases.
    let _end = EndOnDrop(&shared);
    let mut writer = Writer {
        shared: &shared,
        connection: Some(connection),
        records: RecordCache::default(),
        unreleased: Vec::new(),
        pause: Duration::ZERO,
    };
    let mut expected = 0;
    loop {
        let next_group = shared.queue.next_group(expected);
        let jobs = if writer.unreleased.is_empty() {
            next_group.await
        } else {
            // Releases that failed are tried again, also if nobody writes.
            timeout(shared.options.heartbeat_interval, next_group).await.unwrap_or(Some(Vec::new()))
        };
        let Some(jobs) = jobs else { break };
        let count = jobs.len();
        writer.process(jobs).await;
        // Those of the last transaction, and those that arrived meanwhile.
        expected = count + shared.queue.len();
    }
    // The heartbeat has to end first; it would register this process again.
    shared.closed.send_replace(true);
    if let Ok(connection) = writer.connected().await {
        let left = timeout(shared.options.renew_limit, shared.leave(connection)).await;
        tracing::debug!(?left, "the log is closed");
    }
}

struct EndOnDrop<'s>(&'s Shared);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.queue.abandon();
        self.0.closed.send_replace(true);
        self.0.give_up(CLOSED);
    }
}

/// The requests of one kind share a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Change,
    Snapshot,
    Release,
    Acquire,
    Delete,
}

impl Kind {
    /// Releases come before acquires: a release that failed earlier is tried again first.
    const ALL: [Self; 5] = [Self::Change, Self::Snapshot, Self::Release, Self::Acquire, Self::Delete];

    fn of(request: &WriteRequest) -> Self {
        match request {
            WriteRequest::Append { .. } | WriteRequest::KeepPartialText { .. } => Self::Change,
            WriteRequest::KeepSnapshot { .. } => Self::Snapshot,
            WriteRequest::Release { .. } => Self::Release,
            WriteRequest::Acquire { .. } => Self::Acquire,
            WriteRequest::Delete { .. } => Self::Delete,
        }
    }
}

pub(super) type Replies = Vec<Result<WriteReply, LogError>>;

pub(super) struct Writer<'s> {
    pub(super) shared: &'s Arc<Shared>,
    pub(super) connection: Option<Connection>,
    pub(super) records: RecordCache,
    /// Releases of dropped leases that failed, to be tried again.
    unreleased: Vec<Job>,
    /// How long to wait before the next attempt to connect.
    pause: Duration,
}

impl Writer<'_> {
    /// Carries out all jobs and answers them.
    async fn process(&mut self, mut jobs: Vec<Job>) {
        jobs.append(&mut self.unreleased);
        for kind in Kind::ALL {
            let of_kind: Vec<Job> = jobs.extract_if(.., |job| Kind::of(&job.request) == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            let replies = self.carry_out(kind, &of_kind).await;
            for (job, reply) in of_kind.into_iter().zip(replies) {
                self.finish(job, reply);
            }
        }
    }

    /// Carries out jobs of one kind. They fail if this process gives up its leases meanwhile.
    async fn carry_out(&mut self, kind: Kind, jobs: &[Job]) -> Replies {
        let shared = self.shared;
        let mut gave_up = shared.gave_up.subscribe();
        let Some(incarnation) = shared.incarnation() else {
            self.records.clear();
            return jobs.iter().map(|job| refuse_without_incarnation(shared, &job.request)).collect();
        };
        let carried_out = async {
            match kind {
                Kind::Change => self.write_changes(jobs, incarnation).await,
                Kind::Snapshot => self.keep_snapshots(jobs).await,
                Kind::Release => self.release(jobs).await,
                Kind::Acquire => self.acquire(jobs, incarnation).await,
                Kind::Delete => self.delete(jobs, incarnation).await,
            }
        };
        tokio::select! {
            replies = carried_out => return replies,
            _ = gave_up.changed() => {}
        }
        // What was sent may still be committed, now or later.
        self.records.clear();
        self.connection.take().into_iter().for_each(Connection::abandon);
        let failed = || Err(shared.unavailable("no heartbeat succeeded in time"));
        // The leases are lost, which is all that a release asks for.
        let reply = |_| if kind == Kind::Release { Ok(WriteReply::Released) } else { failed() };
        jobs.iter().map(reply).collect()
    }

    /// The connection, which is opened if necessary. Fails if that does not succeed within the limit.
    pub(super) async fn connected(&mut self) -> Result<&mut Connection, LogError> {
        let deadline = Instant::now() + self.shared.options.renew_limit;
        let mut backoff = Backoff::default();
        // Even a sleep of no time lasts until the next tick of the timer, which is longer than an append.
        if !self.pause.is_zero() {
            sleep(std::mem::take(&mut self.pause)).await;
        }
        while self.connection.as_ref().is_none_or(Connection::is_closed) {
            match connect(self.shared).await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.shared.note_reconnect();
                }
                Err(error) if Instant::now() >= deadline => return Err(self.shared.log_error(error)),
                Err(error) => {
                    tracing::debug!(error = describe(&error), "cannot connect to the database for writing");
                    sleep(backoff.next_pause()).await;
                }
            }
        }
        Ok(self.connection.as_mut().expect("the loop ends with a connection"))
    }

    /// Drops a connection that failed. Returns whether to try again.
    pub(super) fn may_repeat(&mut self, error: &DbError, failures: &mut Failures) -> bool {
        match classify(error) {
            Failure::Disconnected => {
                self.connection = None;
                failures.disconnects += 1;
                if failures.disconnects > 1 {
                    self.pause = failures.backoff.next_pause();
                }
                failures.disconnects <= MAX_DISCONNECTS
            }
            Failure::RolledBack => {
                failures.rollbacks += 1;
                failures.rollbacks <= MAX_ROLLBACKS
            }
            Failure::Refused => false,
        }
    }

    async fn release(&mut self, jobs: &[Job]) -> Replies {
        let (mut finished, mut abandoned) = (Vec::new(), Vec::new());
        for job in jobs {
            if let WriteRequest::Release { session, token, has_work } = &job.request {
                if *has_work { &mut abandoned } else { &mut finished }.push((session, *token));
            }
        }
        // From now on no append uses them, whatever becomes of the release.
        for (session, token) in finished.iter().chain(&abandoned) {
            self.shared.membership.remove_lease(session, *token);
            self.records.remove(session);
        }
        let mut failures = Failures::default();
        let error = loop {
            let connection = match self.connected().await {
                Ok(connection) => connection,
                Err(error) => break error,
            };
            match leases::release(connection, &finished, &abandoned).await {
                Ok(()) => return jobs.iter().map(|_| Ok(WriteReply::Released)).collect(),
                Err(error) if self.may_repeat(&error, &mut failures) => {}
                Err(error) => break self.shared.log_error(error),
            }
        };
        jobs.iter().map(|_| Err(self.shared.unavailable(&error.to_string()))).collect()
    }

    async fn acquire(&mut self, jobs: &[Job], incarnation: i64) -> Replies {
        let sessions: Vec<&SessionId> = jobs.iter().map(|job| job.request.session()).collect();
        let request = LeaseRequest {
            incarnation,
            pid: std::process::id(),
            now: self.shared.clock.now(),
            lease_wait: self.shared.options.lease_wait,
        };
        let mut replies: Vec<Option<Result<WriteReply, LogError>>> = jobs.iter().map(|_| None).collect();
        let mut failures = Failures::default();
        let error = loop {
            let missing: Vec<usize> = (0..jobs.len()).filter(|number| replies[*number].is_none()).collect();
            if missing.is_empty() {
                return replies.into_iter().flatten().collect();
            }
            let asked: Vec<&SessionId> = missing.iter().map(|number| sessions[*number]).collect();
            let connection = match self.connected().await {
                Ok(connection) => connection,
                Err(error) => break error,
            };
            match leases::acquire(connection, &asked, &request).await {
                Ok(Ok(acquired)) => {
                    for (number, acquired) in missing.into_iter().zip(acquired) {
                        replies[number] = self.acquired(sessions[number], acquired, incarnation);
                    }
                }
                Ok(Err(error)) => break self.shared.stored::<()>(Err(error)).expect_err("it is an error"),
                Err(error) if self.may_repeat(&error, &mut failures) => {}
                Err(error) => break self.shared.log_error(error),
            }
        };
        let fail = || Err(self.shared.unavailable(&error.to_string()));
        replies.into_iter().map(|reply| reply.unwrap_or_else(fail)).collect()
    }

    /// The reply to a request for a lease. `None` if it has to be sent again.
    fn acquired(
        &mut self,
        session: &SessionId,
        acquired: Acquired,
        incarnation: i64,
    ) -> Option<Result<WriteReply, LogError>> {
        let membership = &self.shared.membership;
        let token = match acquired {
            Acquired::Taken(token) => token,
            // A lease of our own that we do not know: the answer to an earlier request was lost.
            Acquired::Held { token, incarnation: holder, .. }
                if holder == incarnation && !membership.holds_any(session) =>
            {
                self.unreleased.retain(
                    |job| !matches!(&job.request, WriteRequest::Release { token: old, .. } if *old == token),
                );
                token
            }
            Acquired::Held { holder, .. } => {
                return Some(Err(LogError::Held { session: session.clone(), by: holder }));
            }
            Acquired::OtherWorkspace(workspace) => {
                return Some(Err(LogError::OtherWorkspace { session: session.clone(), workspace }));
            }
            Acquired::Raced => return None,
            Acquired::RequesterExpired => {
                return Some(Err(self.shared.unavailable("the heartbeat of this process is too old")));
            }
        };
        if !membership.add_lease(incarnation, session, token) {
            return Some(Err(self.shared.unavailable("no heartbeat succeeded in time")));
        }
        let releaser = Arc::<Shared>::clone(self.shared);
        // If the caller no longer waits, dropping the lease releases it.
        Some(Ok(WriteReply::Leased(Lease::new(session.clone(), token, releaser))))
    }

    async fn delete(&mut self, jobs: &[Job], incarnation: i64) -> Replies {
        let mut replies = Vec::new();
        for job in jobs {
            if let WriteRequest::Delete { session, token } = &job.request {
                let deleted = self.delete_session(session, *token, incarnation).await;
                replies.push(deleted.map(|()| WriteReply::Deleted));
            }
        }
        replies
    }

    async fn delete_session(
        &mut self,
        session: &SessionId,
        token: Token,
        incarnation: i64,
    ) -> Result<(), LogError> {
        let shared = self.shared;
        if !shared.membership.holds(session, token) {
            return Err(LogError::NotHeld { session: session.clone() });
        }
        self.records.remove(session);
        let (mut failures, mut is_unsure) = (Failures::default(), false);
        loop {
            match self.try_to_delete(session, token, incarnation, is_unsure).await {
                Ok(()) => return Ok(()),
                Err(Interrupted::Database(error)) if self.may_repeat(&error, &mut failures) => {
                    is_unsure = true;
                }
                Err(Interrupted::Database(error)) => return Err(shared.log_error(error)),
                Err(Interrupted::Failed(error)) => return Err(error),
            }
        }
    }

    /// Deletes a session. If the outcome of an earlier attempt is not known, the session may be gone already.
    async fn try_to_delete(
        &mut self,
        session: &SessionId,
        token: Token,
        incarnation: i64,
        is_unsure: bool,
    ) -> Result<(), Interrupted> {
        let shared = self.shared;
        let origin = shared.write_origin(incarnation);
        let connection = self.connected().await?;
        let deletion = leases::delete(connection, session, token, &origin).await?;
        let mut needs_probe = connection.take_sync_wait_cancelled();
        match deletion {
            Deletion::Done => {}
            Deletion::UnknownSession => Err(LogError::UnknownSession(session.clone()))?,
            // The lease goes with the session, so the earlier attempt may have succeeded.
            Deletion::NotHeld if is_unsure => match shared.record(session).await {
                Err(LogError::UnknownSession(_)) => needs_probe = true,
                Ok(_) => Err(LogError::NotHeld { session: session.clone() })?,
                Err(error) => Err(error)?,
            },
            Deletion::NotHeld => Err(LogError::NotHeld { session: session.clone() })?,
        }
        if needs_probe {
            self.probe().await?;
        }
        Ok(())
    }

    /// Answers a job that is durable or failed, and wakes followers.
    fn finish(&mut self, job: Job, reply: Result<WriteReply, LogError>) {
        let shared = self.shared;
        let mut new_head = None;
        match (&job.request, &reply) {
            (WriteRequest::Append { session, new, .. }, Ok(WriteReply::Appended(head)))
                if !new.is_empty() =>
            {
                new_head = Some((session.clone(), *head));
            }
            (WriteRequest::Delete { session, token }, Ok(_)) => {
                shared.membership.remove_lease(session, *token);
                shared.lost_leases.report(*token);
                new_head = Some((session.clone(), Seq::START));
            }
            (
                WriteRequest::Append { session, token, .. }
                | WriteRequest::KeepPartialText { session, token, .. }
                | WriteRequest::KeepSnapshot { session, token, .. }
                | WriteRequest::Delete { session, token },
                Err(LogError::NotHeld { .. }),
            ) => {
                shared.membership.remove_lease(session, *token);
                shared.lost_leases.report(*token);
                self.records.remove(session);
            }
            (WriteRequest::Release { token, .. }, _) => shared.lost_leases.report(*token),
            _ => {}
        }
        if job.reply_sender.is_none() && reply.is_err() {
            self.unreleased.push(job);
        } else {
            // The appending caller is answered first, because followers have to read from the log before they continue.
            job.reply(reply);
        }
        if let Some((session, head)) = new_head {
            shared.heads.publish(&session, head);
        }
    }
}

/// Leases of an earlier incarnation are lost, and there is no new one yet.
fn refuse_without_incarnation(shared: &Shared, request: &WriteRequest) -> Result<WriteReply, LogError> {
    match request {
        WriteRequest::Append { session, .. }
        | WriteRequest::KeepPartialText { session, .. }
        | WriteRequest::KeepSnapshot { session, .. }
        | WriteRequest::Delete { session, .. } => Err(LogError::NotHeld { session: session.clone() }),
        WriteRequest::Release { .. } => Ok(WriteReply::Released),
        WriteRequest::Acquire { .. } => Err(shared.unavailable("no heartbeat succeeded in time")),
    }
}

impl Shared {
    /// This process as the origin of a write.
    pub(super) fn write_origin(&self, incarnation: i64) -> WriteOrigin<'_> {
        WriteOrigin { node: &self.options.node, incarnation, channel: &self.channel }
    }
}
