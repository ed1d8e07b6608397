//! Cases about following a session.

use std::sync::Arc;

use parlor_vocab::{Seq, SessionId};

use super::{LogFactory, acquire, new_entries, session, write_session};
use crate::{EventLog, LogError};

/// The number of events that these cases append.
const EVENTS: u64 = 300;

/// Reads from `cursor` on until the last event, as every reader does.
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

/// Appends events from `head` on, in portions of different sizes.
async fn append_the_rest(log: Arc<dyn EventLog>, of: SessionId, mut head: Seq) {
    let lease = log.acquire(&of).await.expect("nobody holds it");
    while head.0 < EVENTS {
        let size = (head.0 % 7 + 1).min(EVENTS - head.0);
        head = log.append(&lease, head, &new_entries(1..=size as i64)).await.expect("an append");
        tokio::task::yield_now().await;
    }
}

/// Readers with different speeds and cursors, in the writer's process and in another.
pub async fn replay_then_follow_gives_each_event_once_and_in_order(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(&*log, "s", &new_entries(1..=10)).await;
    let mut readers = Vec::new();
    for (from, max) in [(0, 1), (0, 10), (5, 1000), (10, 3), (150, 7)] {
        for log in [&log, &other] {
            let events = follow(Arc::clone(log), session("s"), Seq(from), max);
            readers.push((from, tokio::spawn(events)));
        }
    }
    append_the_rest(log, session("s"), Seq(10)).await;
    for (from, reader) in readers {
        assert_eq!(reader.await.expect("a reader"), (from + 1..=EVENTS).collect::<Vec<_>>());
    }
}

/// Such a follower sees the session from its first event.
pub async fn a_follower_may_subscribe_before_the_session_exists(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let readers =
        [&log, &other].map(|log| tokio::spawn(follow(Arc::clone(log), session("s"), Seq::START, 100)));
    append_the_rest(log, session("s"), Seq::START).await;
    for reader in readers {
        assert_eq!(reader.await.expect("a reader"), (1..=EVENTS).collect::<Vec<_>>());
    }
}

/// A follower reads again and learns that the session is gone.
pub async fn deleting_wakes_followers(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(&*log, "s", &new_entries(1..=1)).await;
    let mut heads = [log.head(&session("s")), other.head(&session("s"))];
    let lease = acquire(&*log, "s").await;
    log.delete(&lease).await.expect("a session to delete");
    for (head, log) in heads.iter_mut().zip([&log, &other]) {
        while !matches!(log.read(&session("s"), Seq(1), 1).await, Err(LogError::UnknownSession(_))) {
            head.changed().await.expect("the log lives");
        }
    }
}
