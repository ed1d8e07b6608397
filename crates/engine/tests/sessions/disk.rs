//! A log that cannot be written for a while, or takes long to read one session.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use parlor_engine::Sessions;
use parlor_log::{
    Erased, EventLog, Lease, LeaseHolder, LogError, MemoryLog, Page, PageRequest, Reclaimed, SessionRecord,
    SystemClock, UsageLine,
};
use parlor_model::LocalAgent;
use parlor_vocab::{
    Entry, EventId, MediaId, NewEntry, RunEnding, Seq, SessionCommand, SessionId, SessionRefusal, WhenBusy,
};
use tokio::sync::{Semaphore, watch};

use crate::common::{Talk, deps, new_session, says};

/// A log in memory whose disk is full when it is told so.
struct Disk {
    log: MemoryLog,
    is_full: AtomicBool,
    /// The session that is read only when there is a permit.
    slow: Mutex<Option<SessionId>>,
    /// How many readings of the slow session have begun.
    readings: watch::Sender<usize>,
    permits: Semaphore,
}

impl Disk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            log: MemoryLog::new(Arc::new(SystemClock)),
            is_full: AtomicBool::new(false),
            slow: Mutex::default(),
            readings: watch::channel(0).0,
            permits: Semaphore::new(0),
        })
    }

    fn sessions(self: &Arc<Self>) -> Sessions {
        let memory = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let mut deps = deps(&memory, Arc::new(LocalAgent::default()), Arc::new(SystemClock));
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

    async fn read(&self, of: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        if self.slow.lock().unwrap().as_ref() == Some(of) {
            self.readings.send_modify(|readings| *readings += 1);
            let _permit = self.permits.acquire().await;
        }
        self.log.read(of, after, max).await
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
async fn an_end_that_cannot_be_recorded_is_tried_again_and_the_session_answers_meanwhile() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, Seq::START).await;
    let mut talk = Talk { sessions, session, watcher };
    let run = talk.say("/wait 600").await;
    talk.until(|seen| !crate::common::spoken(std::slice::from_ref(seen)).is_empty()).await;

    disk.is_full.store(true, Ordering::Relaxed);
    talk.sessions.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    // The end cannot be recorded, so the run is active; the session says so instead of hanging.
    let refused = talk.sessions.ask(&talk.session, says("/say x", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(SessionRefusal::Busy { active: run.clone() }));
    let refused = talk.sessions.ask(&talk.session, SessionCommand::Rename { title: "x".to_owned() }).await;
    assert!(matches!(refused, Err(SessionRefusal::LogUnavailable { .. })), "{refused:?}");
    assert!(talk.sessions.trouble(&talk.session).await.unwrap().is_some(), "who asks is told why");

    disk.is_full.store(false, Ordering::Relaxed);
    let (_, ending) = talk.end_of(&run).await;
    assert!(matches!(ending, RunEnding::Stopped { .. }));
    assert_eq!(talk.sessions.trouble(&talk.session).await, Ok(None));
    let run = talk.say("/say back again").await;
    talk.end_of(&run).await;
}

#[tokio::test]
async fn a_session_that_takes_long_to_open_delays_no_other_and_is_opened_once() {
    let disk = Disk::new();
    let sessions = Arc::new(disk.sessions());
    let long = sessions.create(None, new_session()).await.unwrap();
    let other = sessions.create(None, new_session()).await.unwrap();
    sessions.leave(&long).await.unwrap();
    *disk.slow.lock().unwrap() = Some(long.clone());
    let rename = |title: &str| SessionCommand::Rename { title: title.to_owned() };
    let opening = ["a", "b"].map(|title| {
        let (sessions, long, rename) = (Arc::clone(&sessions), long.clone(), rename(title));
        tokio::spawn(async move { sessions.ask(&long, rename).await })
    });
    disk.readings.subscribe().wait_for(|readings| *readings > 0).await.unwrap();

    sessions.ask(&other, rename("meanwhile")).await.unwrap();
    sessions.create(None, new_session()).await.unwrap();
    assert_eq!(*disk.readings.borrow(), 1, "nobody else loads it, too");

    disk.permits.add_permits(1);
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(sessions.record(&long).await.unwrap().head, Seq(3), "both titles are recorded");
    sessions.close().await;
}
