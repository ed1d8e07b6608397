//! A log that cannot be written for a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parlor_engine::House;
use parlor_log::{
    Erased, EventLog, Holder, Lease, LogError, MemoryLog, Page, PageRequest, Reclaimed, SessionRecord,
    SystemClock, UsageLine,
};
use parlor_model::LocalAgent;
use parlor_vocab::{
    Draft, Entry, EventId, MediaId, Refusal, RunEnding, Seq, SessionCommand, SessionId, WhenBusy,
};
use tokio::sync::watch;

use crate::common::{Talk, birth, means, says};

/// A log in memory whose disk is full when it is told so.
struct Disk {
    log: MemoryLog,
    is_full: AtomicBool,
}

#[async_trait]
impl EventLog for Disk {
    async fn append(&self, lease: &Lease, after: Seq, new: &[Draft]) -> Result<Seq, LogError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(LogError::Busy);
        }
        self.log.append(lease, after, new).await
    }

    async fn read(&self, of: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
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

    async fn holder(&self, of: &SessionId) -> Result<Option<Holder>, LogError> {
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
    let disk = Arc::new(Disk { log: MemoryLog::new(Arc::new(SystemClock)), is_full: AtomicBool::new(false) });
    let memory = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let mut means = means(&memory, Arc::new(LocalAgent::default()), Arc::new(SystemClock));
    means.log = Arc::clone(&disk) as _;
    let house = House::new(means);
    let session = house.create(None, birth()).await.unwrap();
    let watcher = house.watch(&session, Seq::START).await;
    let mut talk = Talk { house, session, watcher };
    let run = talk.say("/wait 600").await;
    talk.until(|seen| !crate::common::spoken(std::slice::from_ref(seen)).is_empty()).await;

    disk.is_full.store(true, Ordering::Relaxed);
    talk.house.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    // The end cannot be recorded, so the run is active; the session says so instead of hanging.
    let refused = talk.house.ask(&talk.session, says("/say x", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(Refusal::Busy { active: run.clone() }));
    let refused = talk.house.ask(&talk.session, SessionCommand::Rename { title: "x".to_owned() }).await;
    assert!(matches!(refused, Err(Refusal::LogUnavailable { .. })), "{refused:?}");
    assert!(talk.house.trouble(&talk.session).await.unwrap().is_some(), "who asks is told why");

    disk.is_full.store(false, Ordering::Relaxed);
    let (_, ending) = talk.end_of(&run).await;
    assert!(matches!(ending, RunEnding::Stopped { .. }));
    assert_eq!(talk.house.trouble(&talk.session).await, Ok(None));
    let run = talk.say("/say back again").await;
    talk.end_of(&run).await;
}
