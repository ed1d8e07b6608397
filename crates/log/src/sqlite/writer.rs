//! The thread that writes.
//!
//! While it waits for the disk, others queue up; all of them go into its next transaction. It also
//! looks for what other processes have appended, as long as somebody follows a session that is
//! not held here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parlor_vocab::{Seq, SessionId};
use rusqlite::Connection;

use super::fault::fault;
use super::holder::Presence;
use super::ledger::{Ledger, Outcomes};
use super::queue::Job;
use super::save::save;
use super::work::{Done, Work, WriteRequester, Written};
use super::{FOLLOW_INTERVAL, GATHER_SHARE, GATHER_WAIT, Shared};
use crate::LogError;
use crate::lease::{Lease, Token};

/// Works until the queue is closed and empty.
pub(super) fn run(shared: &Arc<Shared>, connection: &Connection) {
    let mut writer = Writer {
        shared,
        connection,
        ledger: None,
        presence: None,
        tokens: 0,
        held: HashMap::new(),
        unreleased: Vec::new(),
        expected: 0,
        moment: GATHER_WAIT,
        following: false,
        looked: Instant::now(),
        seen: None,
        is_saved: false,
    };
    loop {
        let taken = shared.queue.take(writer.patience(), writer.expected, writer.moment);
        let lost = !taken.jobs.is_empty() && writer.work_off(taken.jobs);
        writer.save_if_replaced();
        if taken.last {
            return;
        }
        if taken.look || lost || writer.patience() == Some(Duration::ZERO) {
            writer.look(taken.look);
        }
    }
}

struct Writer<'c> {
    shared: &'c Arc<Shared>,
    connection: &'c Connection,
    /// Made with the first work, since that can fail.
    ledger: Option<Ledger<'c>>,
    /// Made with the first lease.
    presence: Option<Presence>,
    tokens: u64,
    /// What nobody else can write.
    held: HashMap<SessionId, Token>,
    /// Leases that were dropped when the database could not be written.
    unreleased: Vec<Job>,
    /// How many seem to append all the time: those of the last transaction, and those who waited
    /// for its end.
    expected: usize,
    /// How long they are waited for.
    moment: Duration,
    /// Whether somebody follows a session that others can write.
    following: bool,
    /// When it was last looked for appends of others.
    looked: Instant,
    /// What SQLite calls the state of the database at that time.
    seen: Option<i64>,
    /// Whether what can be done for acknowledged events was done, after the files were replaced.
    is_saved: bool,
}

impl Writer<'_> {
    /// How long it may sleep.
    fn patience(&self) -> Option<Duration> {
        self.following.then(|| FOLLOW_INTERVAL.saturating_sub(self.looked.elapsed()))
    }

    /// Does all jobs, in one transaction if possible, and answers them. Returns whether a session
    /// was given up that others can write from now on.
    fn work_off(&mut self, new: Vec<Job>) -> bool {
        let mut jobs = std::mem::take(&mut self.unreleased);
        jobs.extend(new);
        let works: Vec<&Work> = jobs.iter().map(|job| &job.work).collect();
        let begun = Instant::now();
        let outcomes = match self.attempt(&works) {
            Ok(outcomes) => outcomes,
            Err(error) if works.len() == 1 => vec![Err(error)],
            // Who is to blame is found out by trying each alone; the others shall not suffer.
            Err(_) => works.iter().map(|work| self.attempt(&[work]).and_then(only)).collect(),
        };
        self.expected = jobs.len() + self.shared.queue.len();
        self.moment = (begun.elapsed() / GATHER_SHARE).min(GATHER_WAIT);
        let mut lost = false;
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            lost |= self.settle(job, outcome);
        }
        // Nobody waits for this; what fails is tried again after the next work.
        let _ = self.ledger.as_mut().map(Ledger::tidy);
        lost
    }

    /// Tries to do all of `works` in one transaction. Each can be refused without harm to the
    /// others; an error means that nothing was written.
    fn attempt(&mut self, works: &[&Work]) -> Result<Outcomes, LogError> {
        let outcomes = self.verify().and_then(|()| self.transact(works));
        if let Err(error) = &outcomes {
            self.shared.open_files.heard_of(error);
        }
        // Again, since nobody may be told of what nobody will find.
        self.verify()?;
        outcomes
    }

    /// Fails if the files are not those that are open.
    fn verify(&mut self) -> Result<(), LogError> {
        let verified = self.shared.open_files.verify();
        self.save_if_replaced();
        verified
    }

    /// Keeps what was acknowledged before the files were replaced.
    fn save_if_replaced(&mut self) {
        if !self.is_saved && self.shared.open_files.are_replaced() {
            self.is_saved = true;
            save(self.connection, &self.shared.open_files, self.shared.clock.now());
        }
    }

    fn transact(&mut self, works: &[&Work]) -> Result<Outcomes, LogError> {
        let wants_lease = works.iter().any(|work| matches!(work, Work::Acquire { .. }));
        if wants_lease && self.presence.is_none() {
            self.presence = Some(Presence::create(&self.shared.files.holders)?);
        }
        let failed = |error| fault(&self.shared.files.database, error);
        let ledger = match &mut self.ledger {
            Some(ledger) => ledger,
            none => none.insert(Ledger::new(self.connection).map_err(failed)?),
        };
        let outcomes = ledger.transact(works, |number| WriteRequester {
            holders: &self.shared.files.holders,
            // Without leases there is no lease to be checked that a name could fit.
            name: self.presence.as_ref().map_or("", Presence::name),
            now: self.shared.clock.now(),
            next_token: Token(self.tokens + number + 1),
        });
        let outcomes = outcomes.map_err(failed)?;
        self.tokens += works.len() as u64;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }

    /// The job is durable or refused: tells all who are concerned. Returns whether a lease is gone.
    fn settle(&mut self, job: Job, outcome: Result<Written, LogError>) -> bool {
        let mut lost = false;
        let mut moved = None;
        let done = match outcome {
            Ok(Written::Appended(session, head)) => {
                self.shared.appends.fetch_add(1, Ordering::Relaxed);
                moved = Some((session, head));
                Ok(Done::Appended(head))
            }
            Ok(Written::Leased(session, token)) => {
                self.held.insert(session.clone(), token);
                let keeper = Arc::<Shared>::clone(self.shared);
                // If nobody waits for it any more, dropping it gives it back.
                Ok(Done::Leased(Lease::new(session, token, keeper)))
            }
            Ok(Written::Released(session, token)) => {
                lost = self.forget(&session, token);
                Ok(Done::Released)
            }
            Ok(Written::Deleted(session)) => {
                lost = self.held.remove(&session).is_some();
                moved = Some((session, Seq::START));
                Ok(Done::Deleted)
            }
            Ok(Written::Reclaimed(freed)) => Ok(Done::Reclaimed(freed)),
            Err(error) => {
                if let (LogError::NotHeld { session }, Work::Append { token, .. }) = (&error, &job.work) {
                    lost = self.forget(session, *token);
                }
                Err(error)
            }
        };
        match (job.answer, done) {
            // Whoever dropped the future does not want to know.
            (Some(answer), done) => drop(answer.send(done)),
            (None, Err(_)) => self.unreleased.push(Job { work: job.work, answer: None }),
            (None, Ok(_)) => {}
        }
        // Whoever wrote it knows first: it has at hand what those who wait would have to read.
        if let Some((session, head)) = moved {
            self.shared.heads.moved(&session, head);
        }
        lost
    }

    /// Others can write the session from now on.
    fn forget(&mut self, session: &SessionId, token: Token) -> bool {
        let ours = self.held.get(session) == Some(&token);
        if ours {
            self.held.remove(session);
        }
        ours
    }

    /// Wakes those who follow sessions that others have appended to. `newcomers` have not heard of
    /// any head yet.
    fn look(&mut self, newcomers: bool) {
        let mut foreign = self.shared.heads.followed();
        foreign.retain(|(session, _)| !self.held.contains_key(session));
        self.following = !foreign.is_empty();
        self.looked = Instant::now();
        if self.following {
            // Whatever fails here is tried again at the next look.
            self.seen = self.compare(&foreign, newcomers).unwrap_or(None);
        }
    }

    fn compare(&mut self, foreign: &[(SessionId, Seq)], newcomers: bool) -> rusqlite::Result<Option<i64>> {
        let ledger = match &mut self.ledger {
            Some(ledger) => ledger,
            none => none.insert(Ledger::new(self.connection)?),
        };
        // First the state, then the heads: what comes in between is seen as a change next time.
        let state = ledger.data_version()?;
        if newcomers || self.seen != Some(state) {
            for (session, known) in foreign {
                let head = ledger.head(session)?;
                if head != *known {
                    self.shared.heads.moved(session, head);
                }
            }
        }
        Ok(Some(state))
    }
}

fn only(mut outcomes: Outcomes) -> Result<Written, LogError> {
    outcomes.pop().expect("one work has one outcome")
}
