//! Appending and reading.

use parlor_vocab::Seq;

use super::{LogFactory, acquire, draft, drafts, places, session, written};
use crate::LogError;

/// Each append goes on where the one before ended, whatever its size.
pub async fn places_are_dense_and_begin_at_one(factory: &dyn LogFactory) {
    let log = factory.enter();
    let lease = acquire(&*log, "s").await;
    let mut head = Seq::START;
    for size in [1, 3, 1, 20] {
        let before = head;
        head = log.append(&lease, head, &drafts(1..=size)).await.expect("an append");
        assert_eq!(head.0, before.0 + size as u64);
    }
    assert_eq!(places(&*log, "s").await, (1..=25).collect::<Vec<_>>());
}

/// Id, time and content come back.
pub async fn what_is_read_is_what_was_appended(factory: &dyn LogFactory) {
    let log = factory.enter();
    let new = vec![draft(5, "ü\0\n\""), draft(-1, ""), draft(i64::MAX, "x".repeat(100_000))];
    written(&*log, "s", &new).await;
    let read = log.read(&session("s"), Seq::START, 10).await.expect("a session");
    let expected: Vec<_> = new.into_iter().zip(1..).map(|(draft, seq)| draft.with_seq(Seq(seq))).collect();
    assert_eq!(read, expected);
}

/// The head that the caller saw must be the head.
pub async fn an_append_after_another_head_writes_nothing(factory: &dyn LogFactory) {
    let log = factory.enter();
    let lease = acquire(&*log, "s").await;
    let refused = log.append(&lease, Seq(1), &drafts(1..=1)).await;
    assert!(matches!(refused, Err(LogError::Conflict { head: Seq(0) })), "{refused:?}");
    let unborn = log.session(&session("s")).await;
    assert!(matches!(unborn, Err(LogError::UnknownSession(_))), "{unborn:?}");
    log.append(&lease, Seq::START, &drafts(1..=2)).await.expect("an append");
    let record = log.session(&session("s")).await.expect("a session");
    for after in [0, 1, 3, u64::MAX] {
        let refused = log.append(&lease, Seq(after), &drafts(7..=9)).await;
        assert!(matches!(refused, Err(LogError::Conflict { head: Seq(2) })), "{refused:?}");
    }
    assert_eq!(places(&*log, "s").await, [1, 2]);
    assert_eq!(log.session(&session("s")).await.expect("a session"), record);
    assert_eq!(log.append(&lease, Seq(2), &drafts(3..=3)).await.expect("an append"), Seq(3));
}

/// Not even the session comes into being by it, but the head is compared.
pub async fn an_append_of_nothing_changes_nothing(factory: &dyn LogFactory) {
    let log = factory.enter();
    let lease = acquire(&*log, "s").await;
    assert_eq!(log.append(&lease, Seq::START, &[]).await.expect("an append"), Seq::START);
    assert!(matches!(log.session(&session("s")).await, Err(LogError::UnknownSession(_))));
    let refused = log.append(&lease, Seq(1), &[]).await;
    assert!(matches!(refused, Err(LogError::Conflict { head: Seq(0) })), "{refused:?}");
}

/// A process that was there before sees it, and one that comes later does.
pub async fn an_append_is_seen_by_all_when_it_returns(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    let lease = acquire(&*log, "s").await;
    for head in 0..20 {
        log.append(&lease, Seq(head), &drafts(1..=1)).await.expect("an append");
        let read = other.read(&session("s"), Seq(head), 10).await.expect("a session");
        assert_eq!(read.len(), 1);
        assert_eq!(other.session(&session("s")).await.expect("a session").head, Seq(head + 1));
    }
    drop(lease);
    drop(log);
    assert_eq!(places(&*factory.enter(), "s").await.len(), 20);
}

/// Every cursor is good, also those beyond the end.
pub async fn reading_begins_at_any_cursor_and_ends_at_the_maximum(factory: &dyn LogFactory) {
    let log = factory.enter();
    written(&*log, "s", &drafts(1..=10)).await;
    for after in [0, 1, 5, 9, 10, 11, u64::from(u32::MAX), u64::MAX] {
        for max in [0, 1, 3, 10, usize::MAX] {
            let entries = log.read(&session("s"), Seq(after), max).await.expect("a session");
            let read: Vec<u64> = entries.iter().map(|entry| entry.seq.0).collect();
            let expected: Vec<u64> = (1..=10).filter(|seq| *seq > after).take(max).collect();
            assert_eq!(read, expected, "after {after}, at most {max}");
        }
    }
}

/// Those that were just appended, those of long ago, large ones; and none of another session.
pub async fn an_event_is_found_by_its_id(factory: &dyn LogFactory) {
    let log = factory.enter();
    let mut new = drafts(1..=30);
    new[4] = draft(5, "x".repeat(100_000));
    written(&*log, "s", &new).await;
    written(&*log, "t", &drafts(40..=41)).await;
    for (draft, seq) in new.iter().zip(1..) {
        let found = log.find(&session("s"), &draft.id).await.expect("a log");
        assert_eq!(found, Some(Seq(seq)));
        assert_eq!(log.find(&session("t"), &draft.id).await.expect("a log"), None);
        assert_eq!(log.find(&session("unborn"), &draft.id).await.expect("a log"), None);
    }
}

/// No events is something else than no session.
pub async fn reading_an_unknown_session_says_so(factory: &dyn LogFactory) {
    let log = factory.enter();
    written(&*log, "s", &drafts(1..=1)).await;
    let unknown = log.read(&session("t"), Seq::START, 10).await;
    assert!(matches!(unknown, Err(LogError::UnknownSession(id)) if id == session("t")));
}

/// Two sessions that are written in turns, and one whose id begins like another's.
pub async fn sessions_do_not_mix(factory: &dyn LogFactory) {
    let log = factory.enter();
    let names = ["s", "t", "s ", "", "S"];
    let mut leases = Vec::new();
    for name in names {
        leases.push(acquire(&*log, name).await);
    }
    for round in 0..10 {
        for lease in &leases {
            let text = format!("{}/{round}", lease.session());
            log.append(lease, Seq(round), &[draft(1, text)]).await.expect("an append");
        }
    }
    for name in names {
        let entries = log.read(&session(name), Seq::START, 100).await.expect("a session");
        let expected: Vec<_> = (0..10).map(|round| draft(1, format!("{name}/{round}")).event).collect();
        assert_eq!(entries.into_iter().map(|entry| entry.event).collect::<Vec<_>>(), expected);
    }
}

/// Two processes with many sessions each, all writing at the same time.
pub async fn many_appenders_at_once_all_succeed(factory: &dyn LogFactory) {
    let logs = [factory.enter(), factory.enter()];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..32 {
        let log = std::sync::Arc::clone(&logs[number % 2]);
        tasks.spawn(async move {
            let lease = acquire(&*log, &format!("s{number}")).await;
            for round in 0..20 {
                let head = log.append(&lease, Seq(round * 2), &drafts(1..=2)).await.expect("an append");
                assert_eq!(head, Seq(round * 2 + 2));
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("an appender");
    }
    for number in 0..32 {
        assert_eq!(places(&*logs[0], &format!("s{number}")).await, (1..=40).collect::<Vec<_>>());
    }
}
