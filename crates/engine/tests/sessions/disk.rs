//! Tests with a log that cannot be written for a while, or that reads one session slowly. It counts the events that are read.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use parlor_engine::Sessions;
use parlor_log::{
    Erased, EventLog, Lease, LeaseHolder, LogError, MemoryLog, Page, PageRequest, PartialMessage,
    PartialText, Reclaimed, SessionRecord, SessionSnapshot, SystemClock, UsageLine,
};
use parlor_model::{Agent, AgentContext, LocalAgent, Turn, TurnError};
use parlor_vocab::{
    Entry, EventId, MediaId, NewEntry, RunEnding, Seq, SessionCommand, SessionId, SessionRefusal,
    SessionReply, WhenBusy,
};
use tokio::sync::{Notify, Semaphore, watch};

use crate::common::{TestSession, deps, new_session, send_command};

/// A log in memory that can simulate a full disk, a slow read and lost snapshots, and that counts the events that are read.
pub(crate) struct Disk {
    log: MemoryLog,
    /// How many events were read.
    pub(crate) events_read: AtomicUsize,
    /// Whether snapshots cannot be kept, and those that were kept are not found.
    pub(crate) loses_snapshots: AtomicBool,
    is_full: AtomicBool,
    /// Reads of this session wait for a permit.
    slow: Mutex<Option<SessionId>>,
    /// How many reads of the slow session have started.
    slow_reads: watch::Sender<usize>,
    permits: Semaphore,
}

impl Disk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            log: MemoryLog::new(Arc::new(SystemClock)),
            events_read: AtomicUsize::new(0),
            loses_snapshots: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            slow: Mutex::default(),
            slow_reads: watch::channel(0).0,
            permits: Semaphore::new(0),
        })
    }

    pub(crate) fn sessions(self: &Arc<Self>) -> Sessions {
        self.sessions_with(Arc::new(LocalAgent::default()))
    }

    fn sessions_with(self: &Arc<Self>, agent: Arc<dyn Agent>) -> Sessions {
        let memory = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let mut deps = deps(&memory, agent, Arc::new(SystemClock));
        deps.log = Arc::clone(self) as _;
        Sessions::new(deps)
    }
}

#[async_trait]
impl EventLog for Disk {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(LogError::Busy);
        }
        self.log.append(lease, after, new).await
    }

    async fn keep_partial_text(&self, lease: &Lease, part: PartialText<'_>) -> Result<(), LogError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(LogError::Busy);
        }
        self.log.keep_partial_text(lease, part).await
    }

    async fn partial_message(&self, of: &SessionId) -> Result<Option<PartialMessage>, LogError> {
        self.log.partial_message(of).await
    }

    async fn keep_snapshot(&self, lease: &Lease, snapshot: &SessionSnapshot) -> Result<(), LogError> {
        if self.is_full.load(Ordering::Relaxed) || self.loses_snapshots.load(Ordering::Relaxed) {
            return Err(LogError::Busy);
        }
        self.log.keep_snapshot(lease, snapshot).await
    }

    async fn snapshot(&self, of: &SessionId) -> Result<Option<SessionSnapshot>, LogError> {
        match self.loses_snapshots.load(Ordering::Relaxed) {
            true => Ok(None),
            false => self.log.snapshot(of).await,
        }
    }

    async fn read(&self, of: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        if self.slow.lock().unwrap().as_ref() == Some(of) {
            self.slow_reads.send_modify(|slow_reads| *slow_reads += 1);
            let _permit = self.permits.acquire().await;
        }
        let entries = self.log.read(of, after, max).await?;
        self.events_read.fetch_add(entries.len(), Ordering::Relaxed);
        Ok(entries)
    }

    async fn find(&self, of: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        self.log.find(of, event).await
    }

    fn head(&self, of: &SessionId) -> watch::Receiver<Seq> {
        self.log.head(of)
    }

    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError> {
        self.log.sessions(page).await
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError> {
        self.log.session(id).await
    }

    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError> {
        self.log.acquire(session).await
    }

    fn lost(&self, lease: &Lease) -> watch::Receiver<bool> {
        self.log.lost(lease)
    }

    async fn holder(&self, of: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        self.log.holder(of).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        self.log.release(lease).await
    }

    async fn delete(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.delete(lease).await
    }

    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        self.log.referenced_media().await
    }

    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        self.log.usage(since).await
    }

    async fn erase(&self) -> Result<Erased, LogError> {
        self.log.erase().await
    }

    async fn check(&self) -> Result<(), LogError> {
        self.log.check().await
    }

    async fn size(&self) -> Result<u64, LogError> {
        self.log.size().await
    }

    async fn reclaim(&self) -> Result<Reclaimed, LogError> {
        self.log.reclaim().await
    }
}

#[tokio::test]
async fn recording_the_end_of_a_run_is_retried_and_the_session_answers_meanwhile() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, Seq::START).await;
    let mut test = TestSession { sessions, session, watcher };
    let run = test.send("/wait 600").await;
    test.until(|seen| !crate::common::message_text(std::slice::from_ref(seen)).is_empty()).await;

    disk.is_full.store(true, Ordering::Relaxed);
    test.sessions.execute(&test.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    // The end cannot be recorded, so the run counts as active; the session answers so instead of hanging.
    let refused = test.sessions.execute(&test.session, send_command("/say x", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(SessionRefusal::Busy { active: run.clone() }));
    let refused =
        test.sessions.execute(&test.session, SessionCommand::Rename { title: "x".to_owned() }).await;
    assert!(matches!(refused, Err(SessionRefusal::LogUnavailable { .. })), "{refused:?}");
    assert!(test.sessions.recording_error(&test.session).await.unwrap().is_some(), "the reason is available");

    disk.is_full.store(false, Ordering::Relaxed);
    let (_, ending) = test.end_of(&run).await;
    assert!(matches!(ending, RunEnding::Stopped { .. }));
    assert_eq!(test.sessions.recording_error(&test.session).await, Ok(None));
    let run = test.send("/say back again").await;
    test.end_of(&run).await;
}

/// Says something, and completes when it is notified.
#[derive(Default)]
struct CompletesWhenTold(Notify);

#[async_trait]
impl Agent for CompletesWhenTold {
    fn name(&self) -> &str {
        "Test"
    }

    async fn answer(&self, _turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        context.write_text("so far").await?;
        self.0.notified().await;
        Ok(())
    }
}

#[tokio::test]
async fn a_stop_that_is_accepted_cancels_a_run_whose_end_is_not_recorded_yet() {
    let (disk, agent) = (Disk::new(), Arc::new(CompletesWhenTold::default()));
    let sessions = disk.sessions_with(Arc::clone(&agent) as _);
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, Seq::START).await;
    let mut test = TestSession { sessions, session, watcher };
    let run = test.send("begin").await;
    test.until(|seen| !crate::common::message_text(std::slice::from_ref(seen)).is_empty()).await;
    disk.is_full.store(true, Ordering::Relaxed);
    agent.0.notify_one();
    while test.sessions.recording_error(&test.session).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let stop = SessionCommand::Stop { run: Some(run.clone()), reason: None };
    assert_eq!(test.sessions.execute(&test.session, stop).await, Ok(SessionReply::Stopping(run.clone())));
    disk.is_full.store(false, Ordering::Relaxed);
    let (_, ending) = test.end_of(&run).await;
    assert!(matches!(ending, RunEnding::Stopped { .. }), "{ending:?}");
    let stop = SessionCommand::Stop { run: None, reason: None };
    assert_eq!(test.sessions.execute(&test.session, stop).await, Err(SessionRefusal::NoActiveRun));
}

#[tokio::test]
async fn a_session_that_takes_long_to_open_delays_no_other_and_is_opened_once() {
    let disk = Disk::new();
    let sessions = Arc::new(disk.sessions());
    let long = sessions.create(None, new_session()).await.unwrap();
    let other = sessions.create(None, new_session()).await.unwrap();
    sessions.release(&long).await.unwrap();
    *disk.slow.lock().unwrap() = Some(long.clone());
    let rename = |title: &str| SessionCommand::Rename { title: title.to_owned() };
    let opening = ["a", "b"].map(|title| {
        let (sessions, long, rename) = (Arc::clone(&sessions), long.clone(), rename(title));
        tokio::spawn(async move { sessions.execute(&long, rename).await })
    });
    disk.slow_reads.subscribe().wait_for(|slow_reads| *slow_reads > 0).await.unwrap();

    sessions.execute(&other, rename("meanwhile")).await.unwrap();
    sessions.create(None, new_session()).await.unwrap();
    assert_eq!(*disk.slow_reads.borrow(), 1, "the session is loaded only once");

    disk.permits.add_permits(1);
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(sessions.record(&long).await.unwrap().head, Seq(3), "both titles are recorded");
    sessions.close().await;
}
