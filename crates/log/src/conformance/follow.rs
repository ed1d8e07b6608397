//! Following.

use std::sync::Arc;

use parlor_vocab::{Seq, SessionId};

use super::{LogFactory, acquire, drafts, session, written};
use crate::{EventLog, LogError};

/// How many events the writer of these cases appends.
const EVENTS: u64 = 300;

/// Reads from `cursor` on, as every reader is meant to, until the last event.
async fn follow(log: Arc<dyn EventLog>, of: SessionId, mut cursor: Seq, max: usize) -> Vec<u64> {
    let mut head = log.head(&of);
    let mut seen = Vec::new();
    while cursor.0 < EVENTS {
        match log.read(&of, cursor, max).await {
            Ok(entries) if !entries.is_empty() => {
                seen.extend(entries.iter().map(|entry| entry.seq.0));
                cursor = entries.last().expect("not empty").seq;
            }
            Ok(_) | Err(LogError::UnknownSession(_)) => head.changed().await.expect("the log lives"),
            Err(error) => panic!("{error}"),
        }
    }
    seen
}

/// Appends the events from `head` on, in portions of different sizes.
async fn append_the_rest(log: Arc<dyn EventLog>, of: SessionId, mut head: Seq) {
    let lease = log.acquire(&of).await.expect("nobody has it");
    while head.0 < EVENTS {
        let size = (head.0 % 7 + 1).min(EVENTS - head.0);
        head = log.append(&lease, head, &drafts(1..=size as i64)).await.expect("an append");
        tokio::task::yield_now().await;
    }
}

/// Readers of all speeds, from all cursors, in the writer's process and in another.
pub async fn replay_then_follow_gives_each_event_once_and_in_order(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    written(&*log, "s", &drafts(1..=10)).await;
    let mut readers = Vec::new();
    for (from, max) in [(0, 1), (0, 10), (5, 1000), (10, 3), (150, 7)] {
        for log in [&log, &other] {
            let reading = follow(Arc::clone(log), session("s"), Seq(from), max);
            readers.push((from, tokio::spawn(reading)));
        }
    }
    append_the_rest(log, session("s"), Seq(10)).await;
    for (from, reader) in readers {
        assert_eq!(reader.await.expect("a reader"), (from + 1..=EVENTS).collect::<Vec<_>>());
    }
}

/// Whoever waits for a session that does not exist yet sees it from its first event.
pub async fn a_follower_may_be_there_before_the_session(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    let readers =
        [&log, &other].map(|log| tokio::spawn(follow(Arc::clone(log), session("s"), Seq::START, 100)));
    append_the_rest(log, session("s"), Seq::START).await;
    for reader in readers {
        assert_eq!(reader.await.expect("a reader"), (1..=EVENTS).collect::<Vec<_>>());
    }
}

/// They read on and learn that the session is gone.
pub async fn deleting_wakes_those_who_follow(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    written(&*log, "s", &drafts(1..=1)).await;
    let mut heads = [log.head(&session("s")), other.head(&session("s"))];
    let lease = acquire(&*log, "s").await;
    log.delete(&lease).await.expect("a session to delete");
    for (head, log) in heads.iter_mut().zip([&log, &other]) {
        while !matches!(log.read(&session("s"), Seq(1), 1).await, Err(LogError::UnknownSession(_))) {
            head.changed().await.expect("the log lives");
        }
    }
}
