//! Cases about records, the list of sessions and deletion.

use parlor_vocab::{Seq, Timestamp};

use super::{LogFactory, acquire, new_entries, new_entry, new_session, seqs, session, write_session};
use crate::{EventLog, LogError, PageCursor, PageRequest, SessionRecord};

/// After each append, in every process.
pub async fn a_record_reflects_the_events(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let lease = acquire(&*log, "s").await;
    log.append(&lease, Seq::START, &[new_session(10, "supr"), new_entry(11, "a")]).await.expect("an append");
    log.append(&lease, Seq(2), &[new_entry(12, "b")]).await.expect("an append");
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

/// Not by age or name.
pub async fn sessions_are_listed_by_their_last_update(factory: &dyn LogFactory) {
    let log = factory.open();
    assert_eq!(names(&*log, None, 10).await, (Vec::new(), None));
    for (name, at) in [("b", 3), ("a", 1), ("c", 2)] {
        write_session(&*log, name, &[new_session(at, "chat")]).await;
    }
    assert_eq!(names(&*log, None, 10).await.0, ["b", "c", "a"]);
    let lease = acquire(&*log, "a").await;
    log.append(&lease, Seq(1), &[new_entry(4, "x")]).await.expect("an append");
    assert_eq!(names(&*log, None, 10).await.0, ["a", "b", "c"]);
}

/// For pages of all sizes, and for sessions that were updated at the same time.
pub async fn paging_lists_each_session_once(factory: &dyn LogFactory) {
    let log = factory.open();
    for number in 0..23 {
        write_session(&*log, &format!("s{number:02}"), &[new_session(number / 5, "chat")]).await;
    }
    let all = names(&*log, None, 100).await;
    assert_eq!((all.0.len(), all.1), (23, None));
    for limit in [0, 1, 5, 22, 23, 24] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (names, next) = names(&*log, after, limit).await;
            assert!(!names.is_empty() && names.len() <= limit.max(1));
            listed.extend(names);
            // Doors send cursors as text.
            let Some(next) = next else { break };
            after = Some(PageCursor::parse(&next.to_string()).expect("a cursor"));
        }
        assert_eq!(listed, all.0, "{limit} on a page");
    }
}

/// A session that is updated between two pages moves to the front; the others are listed as usual.
pub async fn paging_goes_on_while_sessions_are_updated(factory: &dyn LogFactory) {
    let log = factory.open();
    for (name, at) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)] {
        write_session(&*log, name, &[new_session(at, "chat")]).await;
    }
    let (first, next) = names(&*log, None, 2).await;
    assert_eq!(first, ["e", "d"]);
    for (name, at) in [("d", 6), ("b", 7)] {
        let lease = acquire(&*log, name).await;
        log.append(&lease, Seq(1), &[new_entry(at, "x")]).await.expect("an append");
    }
    assert_eq!(names(&*log, next, 10).await, (vec!["c".to_owned(), "a".to_owned()], None));
    assert_eq!(names(&*log, None, 10).await.0, ["b", "d", "e", "c", "a"]);
}

/// Its events, record and lease are gone; other sessions are unchanged.
pub async fn a_deleted_session_is_gone_and_its_id_is_free(factory: &dyn LogFactory) {
    let log = factory.open();
    for name in ["a", "s", "z"] {
        write_session(&*log, name, &new_entries(1..=5)).await;
    }
    let lease = acquire(&*log, "s").await;
    log.delete(&lease).await.expect("a session to delete");
    assert!(matches!(log.session(&session("s")).await, Err(LogError::UnknownSession(_))));
    assert!(matches!(log.read(&session("s"), Seq::START, 1).await, Err(LogError::UnknownSession(_))));
    assert_eq!(names(&*log, None, 10).await.0, ["z", "a"]);
    for name in ["a", "z"] {
        assert_eq!(seqs(&*log, name).await, [1, 2, 3, 4, 5]);
    }
    write_session(&*log, "s", &new_entries(1..=2)).await;
    assert_eq!(seqs(&*log, "s").await, [1, 2]);
    let missing = acquire(&*log, "missing").await;
    assert!(matches!(log.delete(&missing).await, Err(LogError::UnknownSession(_))));
}
