//! What a store costs that does nothing. Alone in its file, since it counts the threads of its
//! process.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod common;

use parlor_log::{EventLog, LogError, PageRequest};
use parlor_vocab::Seq;

use common::{draft, open, session};

fn writers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads.filter_map(|thread| name(thread.unwrap()).ok()).filter(|name| name == "parlor-log\n").count()
}

#[tokio::test]
async fn one_thread_writes_and_it_starts_with_the_first_write() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    assert!(log.sessions(PageRequest::first(1)).await.unwrap().records.is_empty());
    assert!(matches!(log.session(&session("s")).await, Err(LogError::UnknownSession(_))));
    assert_eq!(writers(), 0);
    let lease = log.acquire(&session("s")).await.unwrap();
    log.append(&lease, Seq::START, &[draft("x")]).await.unwrap();
    let _head = log.head(&session("s"));
    assert_eq!(writers(), 1);
    drop(lease);
    drop(log);
    assert_eq!(writers(), 0);
}
