//! Returning space to the file system.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parlor_log::{EventLog, RECLAIM_PAGES, SqliteLog};
use parlor_vocab::Seq;

use common::{assert_intact, database, new_entry, open, session, texts};

/// The size of each session in these tests.
const BYTES: usize = 8 << 20;

async fn fill(log: &SqliteLog, name: &str) {
    let lease = log.acquire(&session(name)).await.unwrap();
    let new: Vec<_> = (0..BYTES / 4096).map(|_| new_entry("x".repeat(4096))).collect();
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
