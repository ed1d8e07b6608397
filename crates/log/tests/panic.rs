//! After a panic of the writer thread, the log refuses all requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parlor_log::{EventLog, LogError, PageRequest, SqliteLog, SystemClock};
use parlor_vocab::{Clock, EventId, NewEntry, Seq, SessionEvent, SessionId, Timestamp};

/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A clock that panics after `breaks` was set.
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

fn new_entry(number: u64) -> NewEntry {
    let id = EventId::parse(&format!("e{number}")).expect("short");
    NewEntry { id, at: Timestamp(0), event: SessionEvent::Renamed { title: format!("title {number}") } }
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("an answer")
}

#[tokio::test]
async fn a_panic_of_the_writer_fails_waiting_and_later_requests_and_loses_nothing() {
    let (home, clock) = (tempfile::tempdir().expect("a folder"), Arc::new(BreakingClock::default()));
    let log = open(home.path(), &clock);
    let session = SessionId::parse("s").expect("short");
    let lease = log.acquire(&session).await.expect("nobody holds it");
    let head = log.append(&lease, Seq::START, &[new_entry(1)]).await.expect("an append");
    log.check().await.unwrap();

    clock.breaks.store(true, Ordering::SeqCst);
    let new_entries = [new_entry(2)];
    let (lost, also_lost) = with_timeout(async {
        tokio::join!(log.append(&lease, head, &new_entries), log.append(&lease, head, &new_entries))
    })
    .await;
    for lost in [lost, also_lost] {
        assert!(matches!(lost, Err(LogError::Closed)), "{lost:?}");
    }
    clock.breaks.store(false, Ordering::SeqCst);
    let later = with_timeout(log.append(&lease, head, &new_entries)).await;
    assert!(matches!(later, Err(LogError::Closed)), "the log stays closed: {later:?}");
    assert!(with_timeout(log.check()).await.is_err());
    let other = SessionId::parse("t").expect("short");
    assert!(matches!(with_timeout(log.acquire(&other)).await, Err(LogError::Closed)));
    let page = with_timeout(log.sessions(PageRequest::first(10))).await.expect("reading still works");
    assert_eq!(page.records.len(), 1);
    drop(lease);
    drop(log);

    let log = open(home.path(), &clock);
    assert_eq!(log.read(&session, Seq::START, 10).await.expect("the log is intact").len(), 1);
    let lease = log.acquire(&session).await.expect("the former holder is gone");
    log.append(&lease, head, &new_entries).await.expect("an append");
}
