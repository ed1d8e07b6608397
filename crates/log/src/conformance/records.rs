//! Records, the list of sessions, and deleting.

use parlor_vocab::{Seq, Timestamp};

use super::{LogFactory, acquire, draft, drafts, new_session, places, session, written};
use crate::{EventLog, LogError, PageCursor, PageRequest, SessionRecord};

/// After each append, and for the other processes as well.
pub async fn a_record_tells_what_the_events_say(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    let lease = acquire(&*log, "s").await;
    log.append(&lease, Seq::START, &[new_session(10, "supr"), draft(11, "a")]).await.expect("an append");
    log.append(&lease, Seq(2), &[draft(12, "b")]).await.expect("an append");
    let expected = SessionRecord {
        title: Some("b".to_owned()),
        door: "supr".to_owned(),
        created: Timestamp(10),
        updated: Timestamp(12),
        head: Seq(3),
        bytes: 114,
        ..SessionRecord::new(session("s"))
    };
    for log in [&log, &other] {
        assert_eq!(log.session(&session("s")).await.expect("a session"), expected);
    }
    assert!(matches!(log.session(&session("t")).await, Err(LogError::UnknownSession(_))));
}

async fn names(
    log: &dyn EventLog,
    after: Option<PageCursor>,
    limit: usize,
) -> (Vec<String>, Option<PageCursor>) {
    let page = log.sessions(PageRequest { after, limit }).await.expect("a page");
    (page.records.iter().map(|record| record.id.to_string()).collect(), page.next)
}

/// Not by their age, and not by their names.
pub async fn sessions_are_listed_by_their_last_update(factory: &dyn LogFactory) {
    let log = factory.enter();
    assert_eq!(names(&*log, None, 10).await, (Vec::new(), None));
    for (name, at) in [("b", 3), ("a", 1), ("c", 2)] {
        written(&*log, name, &[new_session(at, "chat")]).await;
    }
    assert_eq!(names(&*log, None, 10).await.0, ["b", "c", "a"]);
    let lease = acquire(&*log, "a").await;
    log.append(&lease, Seq(1), &[draft(4, "x")]).await.expect("an append");
    assert_eq!(names(&*log, None, 10).await.0, ["a", "b", "c"]);
}

/// Also those that were updated at the same moment, and whatever the size of a page.
pub async fn paging_lists_each_session_once(factory: &dyn LogFactory) {
    let log = factory.enter();
    for number in 0..23 {
        written(&*log, &format!("s{number:02}"), &[new_session(number / 5, "chat")]).await;
    }
    let all = names(&*log, None, 100).await;
    assert_eq!((all.0.len(), all.1), (23, None));
    for limit in [0, 1, 5, 22, 23, 24] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (names, next) = names(&*log, after, limit).await;
            assert!(!names.is_empty() && names.len() <= limit.max(1));
            listed.extend(names);
            // Doors write cursors down.
            let Some(next) = next else { break };
            after = Some(PageCursor::parse(&next.to_string()).expect("a cursor"));
        }
        assert_eq!(listed, all.0, "{limit} on a page");
    }
}

/// What is updated between two pages moves to the front; the rest is listed as if nothing happened.
pub async fn paging_goes_on_while_sessions_are_updated(factory: &dyn LogFactory) {
    let log = factory.enter();
    for (name, at) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)] {
        written(&*log, name, &[new_session(at, "chat")]).await;
    }
    let (first, next) = names(&*log, None, 2).await;
    assert_eq!(first, ["e", "d"]);
    for (name, at) in [("d", 6), ("b", 7)] {
        let lease = acquire(&*log, name).await;
        log.append(&lease, Seq(1), &[draft(at, "x")]).await.expect("an append");
    }
    assert_eq!(names(&*log, next, 10).await, (vec!["c".to_owned(), "a".to_owned()], None));
    assert_eq!(names(&*log, None, 10).await.0, ["b", "d", "e", "c", "a"]);
}

/// With its events, its record and its lease, and without harm to its neighbours.
pub async fn a_deleted_session_is_gone_and_its_id_is_free(factory: &dyn LogFactory) {
    let log = factory.enter();
    for name in ["a", "s", "z"] {
        written(&*log, name, &drafts(1..=5)).await;
    }
    let lease = acquire(&*log, "s").await;
    log.delete(&lease).await.expect("a session to delete");
    assert!(matches!(log.session(&session("s")).await, Err(LogError::UnknownSession(_))));
    assert!(matches!(log.read(&session("s"), Seq::START, 1).await, Err(LogError::UnknownSession(_))));
    assert_eq!(names(&*log, None, 10).await.0, ["z", "a"]);
    for name in ["a", "z"] {
        assert_eq!(places(&*log, name).await, [1, 2, 3, 4, 5]);
    }
    written(&*log, "s", &drafts(1..=2)).await;
    assert_eq!(places(&*log, "s").await, [1, 2]);
    let unborn = acquire(&*log, "unborn").await;
    assert!(matches!(log.delete(&unborn).await, Err(LogError::UnknownSession(_))));
}
