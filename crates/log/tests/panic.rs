//! A panic of the thread that writes: the log says that it is closed, and pretends nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parlor_log::{EventLog, LogError, PageRequest, SqliteLog, SystemClock};
use parlor_vocab::{Clock, EventId, NewEntry, Seq, SessionEvent, SessionId, Timestamp};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Panics instead of telling the time, once it is told to.
#[derive(Default)]
struct BreakingClock {
    breaks: AtomicBool,
}

impl Clock for BreakingClock {
    fn now(&self) -> Timestamp {
        assert!(!self.breaks.load(Ordering::SeqCst), "the clock is broken");
        SystemClock.now()
    }
}

fn open(home: &Path, clock: &Arc<BreakingClock>) -> SqliteLog {
    SqliteLog::open(home, Arc::clone(clock) as _).expect("a log")
}

fn draft(number: u64) -> NewEntry {
    let id = EventId::parse(&format!("e{number}")).expect("short");
    NewEntry { id, at: Timestamp(0), event: SessionEvent::Renamed { title: format!("title {number}") } }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("an answer")
}

#[tokio::test]
async fn a_panic_of_the_writer_fails_what_waits_and_all_that_comes_and_loses_nothing() {
    let (home, clock) = (tempfile::tempdir().expect("a folder"), Arc::new(BreakingClock::default()));
    let log = open(home.path(), &clock);
    let session = SessionId::parse("s").expect("short");
    let lease = log.acquire(&session).await.expect("nobody has it");
    let head = log.append(&lease, Seq::START, &[draft(1)]).await.expect("it is written");
    log.check().await.unwrap();

    clock.breaks.store(true, Ordering::SeqCst);
    let drafts = [draft(2)];
    let (lost, also_lost) =
        soon(async { tokio::join!(log.append(&lease, head, &drafts), log.append(&lease, head, &drafts)) })
            .await;
    for lost in [lost, also_lost] {
        assert!(matches!(lost, Err(LogError::Closed)), "{lost:?}");
    }
    clock.breaks.store(false, Ordering::SeqCst);
    let later = soon(log.append(&lease, head, &drafts)).await;
    assert!(matches!(later, Err(LogError::Closed)), "it does not come back by itself: {later:?}");
    assert!(soon(log.check()).await.is_err());
    let other = SessionId::parse("t").expect("short");
    assert!(matches!(soon(log.acquire(&other)).await, Err(LogError::Closed)));
    let page = soon(log.sessions(PageRequest::first(10))).await.expect("what is there can be read");
    assert_eq!(page.records.len(), 1);
    drop(lease);
    drop(log);

    let log = open(home.path(), &clock);
    assert_eq!(log.read(&session, Seq::START, 10).await.expect("it is whole").len(), 1);
    let lease = log.acquire(&session).await.expect("who had it is gone");
    log.append(&lease, head, &drafts).await.expect("it is written");
}
