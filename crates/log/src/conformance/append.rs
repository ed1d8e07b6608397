//! Cases about appending and reading.

use parlor_vocab::Seq;

use super::{LogFactory, acquire, new_entries, new_entry, seqs, session, write_session};
use crate::LogError;

/// Each append continues where the one before ended, whatever its size.
pub async fn event_numbers_are_dense_and_begin_at_one(factory: &dyn LogFactory) {
    let log = factory.open();
    let lease = acquire(&*log, "s").await;
    let mut head = Seq::START;
    for size in [1, 3, 1, 20] {
        let before = head;
        head = log.append(&lease, head, &new_entries(1..=size)).await.expect("an append");
        assert_eq!(head.0, before.0 + size as u64);
    }
    assert_eq!(seqs(&*log, "s").await, (1..=25).collect::<Vec<_>>());
}

/// Id, time and content.
pub async fn read_returns_what_was_appended(factory: &dyn LogFactory) {
    let log = factory.open();
    let new = vec![new_entry(5, "ü\0\n\""), new_entry(-1, ""), new_entry(i64::MAX, "x".repeat(100_000))];
    write_session(&*log, "s", &new).await;
    let read = log.read(&session("s"), Seq::START, 10).await.expect("a session");
    let expected: Vec<_> =
        new.into_iter().zip(1..).map(|(new_entry, seq)| new_entry.with_seq(Seq(seq))).collect();
    assert_eq!(read, expected);
}

/// `after` must be the present head.
pub async fn an_append_after_a_stale_head_writes_nothing(factory: &dyn LogFactory) {
    let log = factory.open();
    let lease = acquire(&*log, "s").await;
    let refused = log.append(&lease, Seq(1), &new_entries(1..=1)).await;
    assert!(matches!(refused, Err(LogError::Conflict { head: Seq(0) })), "{refused:?}");
    let missing = log.session(&session("s")).await;
    assert!(matches!(missing, Err(LogError::UnknownSession(_))), "{missing:?}");
    log.append(&lease, Seq::START, &new_entries(1..=2)).await.expect("an append");
    let record = log.session(&session("s")).await.expect("a session");
    for after in [0, 1, 3, u64::MAX] {
        let refused = log.append(&lease, Seq(after), &new_entries(7..=9)).await;
        assert!(matches!(refused, Err(LogError::Conflict { head: Seq(2) })), "{refused:?}");
    }
    assert_eq!(seqs(&*log, "s").await, [1, 2]);
    assert_eq!(log.session(&session("s")).await.expect("a session"), record);
    assert_eq!(log.append(&lease, Seq(2), &new_entries(3..=3)).await.expect("an append"), Seq(3));
}

/// It does not even create the session, but compares the head.
pub async fn an_empty_append_changes_nothing(factory: &dyn LogFactory) {
    let log = factory.open();
    let lease = acquire(&*log, "s").await;
    assert_eq!(log.append(&lease, Seq::START, &[]).await.expect("an append"), Seq::START);
    assert!(matches!(log.session(&session("s")).await, Err(LogError::UnknownSession(_))));
    let refused = log.append(&lease, Seq(1), &[]).await;
    assert!(matches!(refused, Err(LogError::Conflict { head: Seq(0) })), "{refused:?}");
}

/// Processes that were there before, and those that come later.
pub async fn every_process_sees_an_append_when_it_returns(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let lease = acquire(&*log, "s").await;
    for head in 0..20 {
        log.append(&lease, Seq(head), &new_entries(1..=1)).await.expect("an append");
        let read = other.read(&session("s"), Seq(head), 10).await.expect("a session");
        assert_eq!(read.len(), 1);
        assert_eq!(other.session(&session("s")).await.expect("a session").head, Seq(head + 1));
    }
    drop(lease);
    drop(log);
    assert_eq!(seqs(&*factory.open(), "s").await.len(), 20);
}

/// Any cursor is valid, even beyond the end.
pub async fn reading_begins_at_any_cursor_and_ends_at_the_maximum(factory: &dyn LogFactory) {
    let log = factory.open();
    write_session(&*log, "s", &new_entries(1..=10)).await;
    for after in [0, 1, 5, 9, 10, 11, u64::from(u32::MAX), u64::MAX] {
        for max in [0, 1, 3, 10, usize::MAX] {
            let entries = log.read(&session("s"), Seq(after), max).await.expect("a session");
            let read: Vec<u64> = entries.iter().map(|entry| entry.seq.0).collect();
            let expected: Vec<u64> = (1..=10).filter(|seq| *seq > after).take(max).collect();
            assert_eq!(read, expected, "after {after}, at most {max}");
        }
    }
}

/// Recent events, old ones and large ones; and not those of another session.
pub async fn an_event_is_found_by_its_id(factory: &dyn LogFactory) {
    let log = factory.open();
    let mut new = new_entries(1..=30);
    new[4] = new_entry(5, "x".repeat(100_000));
    write_session(&*log, "s", &new).await;
    write_session(&*log, "t", &new_entries(40..=41)).await;
    for (new_entry, seq) in new.iter().zip(1..) {
        let found = log.find(&session("s"), &new_entry.id).await.expect("a log");
        assert_eq!(found, Some(Seq(seq)));
        assert_eq!(log.find(&session("t"), &new_entry.id).await.expect("a log"), None);
        assert_eq!(log.find(&session("missing"), &new_entry.id).await.expect("a log"), None);
    }
}

/// An empty result would mean an empty session.
pub async fn reading_an_unknown_session_fails(factory: &dyn LogFactory) {
    let log = factory.open();
    write_session(&*log, "s", &new_entries(1..=1)).await;
    let unknown = log.read(&session("t"), Seq::START, 10).await;
    assert!(matches!(unknown, Err(LogError::UnknownSession(id)) if id == session("t")));
}

/// Sessions that are written in turns, with similar ids.
pub async fn sessions_do_not_mix(factory: &dyn LogFactory) {
    let log = factory.open();
    let names = ["s", "t", "s ", "", "S"];
    let mut leases = Vec::new();
    for name in names {
        leases.push(acquire(&*log, name).await);
    }
    for round in 0..10 {
        for lease in &leases {
            let text = format!("{}/{round}", lease.session());
            log.append(lease, Seq(round), &[new_entry(1, text)]).await.expect("an append");
        }
    }
    for name in names {
        let entries = log.read(&session(name), Seq::START, 100).await.expect("a session");
        let expected: Vec<_> = (0..10).map(|round| new_entry(1, format!("{name}/{round}")).event).collect();
        assert_eq!(entries.into_iter().map(|entry| entry.event).collect::<Vec<_>>(), expected);
    }
}

/// Two processes with many sessions each, all writing at once.
pub async fn concurrent_appends_all_succeed(factory: &dyn LogFactory) {
    let logs = [factory.open(), factory.open()];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..32 {
        let log = std::sync::Arc::clone(&logs[number % 2]);
        tasks.spawn(async move {
            let lease = acquire(&*log, &format!("s{number}")).await;
            for round in 0..20 {
                let head = log.append(&lease, Seq(round * 2), &new_entries(1..=2)).await.expect("an append");
                assert_eq!(head, Seq(round * 2 + 2));
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("an appender");
    }
    for number in 0..32 {
        assert_eq!(seqs(&*logs[0], &format!("s{number}")).await, (1..=40).collect::<Vec<_>>());
    }
}
