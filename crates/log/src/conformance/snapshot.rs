//! Cases about snapshots.

use parlor_vocab::{
    AgentChoice, EventId, HistoryItem, Message, MessageCounter, MessageId, NewSession, Role, Seq, Usage,
};

use super::{LogFactory, acquire, new_entries, new_entry, seqs, session, write_session};
use crate::{EventLog, HistorySnapshot, LogError, MAX_SNAPSHOT_BYTES, SessionSnapshot};

/// A snapshot at the event `seq` of the range that [`new_entries`] makes.
fn snapshot_at(seq: i64, text: &str) -> SessionSnapshot {
    let message = Message {
        id: MessageId::parse("m").expect("short"),
        role: Role::User,
        text: text.to_owned(),
        media: Vec::new(),
    };
    SessionSnapshot {
        seq: Seq(seq as u64),
        event: new_entry(seq, seq.to_string()).id,
        new_session: NewSession {
            title: None,
            door: "test".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: Some("nul \0 is text".to_owned()),
            forked_from: None,
        },
        title: Some("T".to_owned()),
        choice: AgentChoice::default(),
        mode: None,
        history: HistorySnapshot {
            from: Seq::START,
            items: Some(vec![(HistoryItem::Message(message), Seq(1))]),
            messages: Some(MessageCounter::default()),
        },
        queue: Vec::new(),
        keys: Vec::new(),
        usage: Usage::default(),
        reported_missing: None,
        settled: Vec::new(),
        trust_answer: Some(false),
    }
}

async fn kept(log: &dyn EventLog, name: &str) -> Option<SessionSnapshot> {
    log.snapshot(&session(name)).await.expect("an answer")
}

/// In every process. Neither the head nor the events change, and followers sleep on.
pub async fn the_last_snapshot_is_kept_and_is_no_event(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(&*log, "s", &new_entries(1..=3)).await;
    assert_eq!(kept(&*log, "s").await, None);
    assert_eq!(kept(&*log, "missing").await, None);
    let lease = acquire(&*log, "s").await;
    let mut head = log.head(&session("s"));
    head.mark_unchanged();
    for snapshot in [snapshot_at(2, "two"), snapshot_at(3, "three")] {
        log.keep_snapshot(&lease, &snapshot).await.expect("it is kept");
        for log in [&log, &other] {
            assert_eq!(kept(&**log, "s").await.as_ref(), Some(&snapshot));
        }
    }
    assert_eq!(seqs(&*log, "s").await, [1, 2, 3]);
    assert_eq!(log.session(&session("s")).await.expect("a session").head, Seq(3));
    assert!(!head.has_changed().expect("the log is there"), "nobody is woken");
    log.append(&lease, Seq(3), &new_entries(4..=9)).await.expect("an append");
    assert_eq!(kept(&*other, "s").await, Some(snapshot_at(3, "three")), "later events leave it");
}

/// A session that was deleted may come again under the same id, with other events.
pub async fn a_snapshot_of_other_events_is_ignored(factory: &dyn LogFactory) {
    let log = factory.open();
    write_session(&*log, "s", &new_entries(1..=2)).await;
    let lease = acquire(&*log, "s").await;
    let other = SessionSnapshot { event: EventId::parse("other").expect("short"), ..snapshot_at(2, "") };
    for ignored in [other, snapshot_at(3, "after the end"), snapshot_at(0, "before the start")] {
        log.keep_snapshot(&lease, &ignored).await.expect("it is kept");
        assert_eq!(kept(&*log, "s").await, None);
    }
}

/// An earlier one stays.
pub async fn a_snapshot_that_is_too_large_is_not_kept(factory: &dyn LogFactory) {
    let log = factory.open();
    write_session(&*log, "s", &new_entries(1..=2)).await;
    let lease = acquire(&*log, "s").await;
    let large = snapshot_at(2, &"x".repeat(MAX_SNAPSHOT_BYTES));
    log.keep_snapshot(&lease, &large).await.expect("nothing is wrong");
    assert_eq!(kept(&*log, "s").await, None);
    log.keep_snapshot(&lease, &snapshot_at(1, "small")).await.expect("it is kept");
    log.keep_snapshot(&lease, &large).await.expect("nothing is wrong");
    assert_eq!(kept(&*log, "s").await, Some(snapshot_at(1, "small")), "the earlier one stays");
}

/// A lease that was released, or that is of a session without events, keeps nothing.
pub async fn a_snapshot_needs_the_lease_and_goes_with_the_session(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let lease = acquire(&*log, "s").await;
    let refused = log.keep_snapshot(&lease, &snapshot_at(1, "")).await;
    assert!(matches!(refused, Err(LogError::UnknownSession(_))), "{refused:?}");
    log.append(&lease, Seq::START, &new_entries(1..=1)).await.expect("an append");
    log.keep_snapshot(&lease, &snapshot_at(1, "one")).await.expect("it is kept");
    let refused = other.keep_snapshot(&lease, &snapshot_at(1, "")).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    log.release(lease).await.expect("a release succeeds");
    let lease = acquire(&*other, "s").await;
    assert_eq!(kept(&*other, "s").await, Some(snapshot_at(1, "one")));
    other.delete(&lease).await.expect("a session to delete");
    assert_eq!(kept(&*other, "s").await, None);
    let refused = other.keep_snapshot(&lease, &snapshot_at(1, "")).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    write_session(&*other, "s", &new_entries(1..=1)).await;
    assert_eq!(kept(&*log, "s").await, None, "also if the new session has the same event");
}
