//! An idle store has at most one thread. Alone in its file, because it counts the threads of its process.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod common;

use parlor_log::{EventLog, LogError, PageRequest};
use parlor_vocab::Seq;

use common::{new_entry, open, session};

fn writer_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads.filter_map(|thread| name(thread.unwrap()).ok()).filter(|name| name == "parlor-log\n").count()
}

#[tokio::test]
async fn the_writer_thread_starts_with_the_first_write_and_ends_with_the_log() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    assert!(log.sessions(PageRequest::first(1)).await.unwrap().records.is_empty());
    assert!(matches!(log.session(&session("s")).await, Err(LogError::UnknownSession(_))));
    assert_eq!(writer_threads(), 0);
    let lease = log.acquire(&session("s")).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
    let _head = log.head(&session("s"));
    assert_eq!(writer_threads(), 1);
    drop(lease);
    drop(log);
    assert_eq!(writer_threads(), 0);
}
