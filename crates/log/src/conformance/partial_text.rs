//! Cases about the text of messages that are not complete.

use parlor_vocab::{
    EventId, MessageEvent, MessageId, NewEntry, RunEnding, RunEvent, RunId, Seq, SessionEvent, Timestamp,
};

use super::{LogFactory, acquire, new_entries, seqs, session, write_session};
use crate::{EventLog, Lease, LogError, PartialMessage, PartialText};

fn message(name: &str) -> MessageId {
    MessageId::parse(name).expect("short")
}

async fn keep(log: &dyn EventLog, lease: &Lease, name: &str, start: usize, text: &str) {
    let part = PartialText { message: &message(name), start, text };
    log.keep_partial_text(lease, part).await.expect("the text is kept");
}

async fn kept(log: &dyn EventLog, name: &str) -> Option<(String, String)> {
    let partial = log.partial_message(&session(name)).await.expect("an answer");
    partial.map(|PartialMessage { message, text }| (message.to_string(), text))
}

fn some(message: &str, text: &str) -> Option<(String, String)> {
    Some((message.to_owned(), text.to_owned()))
}

fn run_event(event: RunEvent) -> NewEntry {
    let run = RunId::parse("r").expect("short");
    let event = SessionEvent::Run { run, sequence: 1, event };
    NewEntry { id: EventId::parse("evt").expect("short"), at: Timestamp(1), event }
}

fn completed(name: &str) -> NewEntry {
    let (message, text, media) = (message(name), "all".to_owned(), Vec::new());
    run_event(RunEvent::Message(MessageEvent::Completed { message, text, media }))
}

fn ended() -> NewEntry {
    run_event(RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 })
}

/// In every process. Neither the head nor the events change, and followers sleep on. A part may come twice.
pub async fn partial_text_grows_in_parts_and_is_no_event(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(&*log, "s", &new_entries(1..=2)).await;
    assert_eq!(kept(&*log, "s").await, None);
    assert_eq!(kept(&*log, "missing").await, None);
    let lease = acquire(&*log, "s").await;
    let mut head = log.head(&session("s"));
    head.mark_unchanged();
    keep(&*log, &lease, "m", 0, "one ").await;
    keep(&*log, &lease, "m", 4, "t\u{fc}r ").await;
    for log in [&log, &other] {
        assert_eq!(kept(&**log, "s").await, some("m", "one t\u{fc}r "));
    }
    // A caller that does not know whether a part was kept repeats it with what came since.
    keep(&*log, &lease, "m", 4, "t\u{fc}r three").await;
    assert_eq!(kept(&*other, "s").await, some("m", "one t\u{fc}r three"));
    // A part after a gap is of no use.
    keep(&*log, &lease, "m", 100, "lost").await;
    assert_eq!(kept(&*other, "s").await, some("m", "one t\u{fc}r three"));
    assert_eq!(seqs(&*log, "s").await, [1, 2]);
    assert_eq!(log.session(&session("s")).await.expect("a session").head, Seq(2));
    assert!(!head.has_changed().expect("the log is there"), "nobody is woken");
}

/// Other events leave it, such as a text of the user in between.
pub async fn partial_text_ends_with_its_message_and_with_its_run(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(&*log, "s", &new_entries(1..=1)).await;
    let lease = acquire(&*log, "s").await;
    for (head, last) in [(1, completed("m")), (3, ended())] {
        keep(&*log, &lease, "m", 0, "half").await;
        log.append(&lease, Seq(head), &new_entries(1..=1)).await.expect("an append");
        assert_eq!(kept(&*other, "s").await, some("m", "half"));
        log.append(&lease, Seq(head + 1), &[last]).await.expect("an append");
        assert_eq!(kept(&*other, "s").await, None);
    }
}

/// Wherever its text begins.
pub async fn another_message_replaces_partial_text(factory: &dyn LogFactory) {
    let log = factory.open();
    write_session(&*log, "s", &new_entries(1..=1)).await;
    write_session(&*log, "t", &new_entries(1..=1)).await;
    let (lease, lease_of_other) = (acquire(&*log, "s").await, acquire(&*log, "t").await);
    keep(&*log, &lease_of_other, "m", 0, "other session").await;
    keep(&*log, &lease, "m", 0, "long ").await;
    keep(&*log, &lease, "m", 5, "text").await;
    keep(&*log, &lease, "n", 0, "new").await;
    assert_eq!(kept(&*log, "s").await, some("n", "new"));
    keep(&*log, &lease, "o", 3, "its beginning is missing").await;
    assert_eq!(kept(&*log, "s").await, None);
    assert_eq!(kept(&*log, "t").await, some("m", "other session"));
}

/// A lease that was released, or that is of a session without events, keeps nothing. After the death of a holder the next
/// one finds the text.
pub async fn partial_text_needs_the_lease_and_goes_with_the_session(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let name = message("m");
    let part = PartialText { message: &name, start: 0, text: "half" };
    let lease = acquire(&*log, "s").await;
    let refused = log.keep_partial_text(&lease, part).await;
    assert!(matches!(refused, Err(LogError::UnknownSession(_))), "{refused:?}");
    log.append(&lease, Seq::START, &new_entries(1..=1)).await.expect("an append");
    log.keep_partial_text(&lease, part).await.expect("the text is kept");
    let refused = other.keep_partial_text(&lease, part).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    log.release(lease).await.expect("a release succeeds");
    let lease = acquire(&*other, "s").await;
    assert_eq!(kept(&*other, "s").await, some("m", "half"));
    other.delete(&lease).await.expect("a session to delete");
    assert_eq!(kept(&*other, "s").await, None);
    let refused = other.keep_partial_text(&lease, part).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    write_session(&*other, "s", &new_entries(1..=1)).await;
    assert_eq!(kept(&*log, "s").await, None);
}
