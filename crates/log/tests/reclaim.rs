//! Returning space to the file system.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parlor_log::{Erased, EventLog, HistorySnapshot, RECLAIM_PAGES, SessionSnapshot, SqliteLog};
use parlor_vocab::{AgentChoice, EventId, NewSession, Seq, Usage};

use common::{assert_intact, database, new_entry, noise, open, session, texts};

/// The size of each session in these tests.
const BYTES: usize = 8 << 20;

async fn fill(log: &SqliteLog, name: &str) {
    let lease = log.acquire(&session(name)).await.unwrap();
    let text = noise(4096);
    let new: Vec<_> = (0..BYTES / 4096).map(|_| new_entry(text.as_str())).collect();
    log.append(&lease, Seq::START, &new).await.unwrap();
    log.release(lease).await.unwrap();
}

async fn delete(log: &SqliteLog, name: &str) {
    let lease = log.acquire(&session(name)).await.unwrap();
    log.delete(&lease).await.unwrap();
}

#[tokio::test]
async fn a_new_database_uses_incremental_vacuum() {
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()).unwrap());
    let mode: i64 = database(home.path()).pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap();
    assert_eq!(mode, 2, "incremental");
}

#[tokio::test]
async fn the_space_of_deleted_sessions_is_returned() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    for name in ["kept", "a", "b"] {
        fill(&log, name).await;
    }
    delete(&log, "a").await;
    delete(&log, "b").await;
    let before = log.size().await.unwrap();
    let reclaimed = log.reclaim().await.unwrap();
    let after = log.size().await.unwrap();
    assert!(reclaimed.bytes > 2 * BYTES as u64, "{reclaimed:?}");
    assert!(after < 2 * BYTES as u64 && after + reclaimed.bytes <= before, "{before} {after} {reclaimed:?}");
    let file = home.path().join("parlor.db").metadata().unwrap().len();
    assert_eq!((file, home.path().join("parlor.db-wal").metadata().unwrap().len()), (after, 0));
    assert!(!texts(&log, "kept").await.is_empty());
    assert_eq!(log.session(&session("kept")).await.unwrap().head, Seq(BYTES as u64 / 4096));
    assert_eq!(log.reclaim().await.unwrap().bytes, 0);
    assert_eq!(log.size().await.unwrap(), after);
    drop(log);
    assert_intact(home.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_succeed_while_space_is_returned() {
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(open(home.path()).unwrap());
    for name in ["a", "b", "c"] {
        fill(&log, name).await;
    }
    for name in ["a", "b", "c"] {
        delete(&log, name).await;
    }
    let before = log.counts();
    let (other, stop) = (Arc::clone(&log), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let lease = log.acquire(&session("s")).await.unwrap();
    let appending = tokio::spawn(async move {
        let mut head = Seq::START;
        while !stopped.load(Ordering::Relaxed) {
            head = other.append(&lease, head, &[new_entry("x")]).await.unwrap();
        }
        head
    });
    let reclaimed = log.reclaim().await.unwrap();
    let during = log.counts();
    stop.store(true, Ordering::Relaxed);
    let head = appending.await.unwrap();
    // There are many steps, and an append waits for at most one of them.
    let steps = reclaimed.bytes / 4096 / RECLAIM_PAGES;
    assert!(steps > 20 && during.appends - before.appends >= steps / 8, "{steps} {before:?} {during:?}");
    assert!(log.size().await.unwrap() < BYTES as u64);
    assert_eq!(texts(&log, "s").await.len() as u64, head.0);
    drop(log);
    assert_intact(home.path());
}

#[tokio::test]
async fn a_reader_of_an_older_state_delays_only_the_shrinking() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    fill(&log, "a").await;
    delete(&log, "a").await;
    let reader = database(home.path());
    reader.execute_batch("BEGIN; SELECT * FROM sessions").unwrap();
    let before = log.size().await.unwrap();
    log.reclaim().await.unwrap();
    assert!(log.size().await.unwrap() >= before);
    reader.execute_batch("COMMIT").unwrap();
    log.reclaim().await.unwrap();
    assert!(log.size().await.unwrap() < BYTES as u64 / 4);
}

/// A snapshot of a session of one event, with this title.
fn snapshot(title: String) -> SessionSnapshot {
    SessionSnapshot {
        seq: Seq(1),
        event: EventId::parse("evt").unwrap(),
        new_session: NewSession {
            title: None,
            door: "test".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        },
        title: Some(title),
        choice: AgentChoice::default(),
        mode: None,
        history: HistorySnapshot { from: Seq::START, items: None, messages: None },
        queue: Vec::new(),
        keys: Vec::new(),
        usage: Usage::default(),
        reported_missing: None,
        settled: Vec::new(),
        trust_answer: None,
    }
}

#[tokio::test]
async fn the_text_of_replaced_and_deleted_snapshots_is_in_no_file() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("s")).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
    for (marker, size) in [("first-marker", 40_000), ("second-marker", 10), ("third-marker", 9000)] {
        log.keep_snapshot(&lease, &snapshot(marker.repeat(size / marker.len() + 1))).await.unwrap();
    }
    assert_eq!(log.erase().await.unwrap(), Erased::Yes);
    let snapshots = || -> i64 {
        database(home.path()).query_row("SELECT count(*) FROM snapshots", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(snapshots(), 1);
    log.delete(&lease).await.unwrap();
    assert_eq!((snapshots(), log.erase().await.unwrap()), (0, Erased::Yes));
    drop((lease, log));
    for file in std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() {
            let bytes = std::fs::read(&file).unwrap();
            assert!(!bytes.windows(7).any(|bytes| bytes == b"-marker"), "{file:?}");
        }
    }
    assert_intact(home.path());
}
