//! Events in the table `fresh`: their number is bounded, and readers see no difference.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod common;

use std::path::Path;
use std::sync::Arc;

use parlor_log::{EventLog, FRESH_BYTES, FRESH_EVENTS, MAX_BATCH, SqliteLog};
use parlor_vocab::Seq;

use common::{database, new_entry, noise, open, session, texts};

fn count(home: &Path, table: &str) -> usize {
    let sql = format!("SELECT count(*) FROM {table}");
    database(home).query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap() as usize
}

fn numbered_entries(range: std::ops::Range<usize>) -> Vec<parlor_vocab::NewEntry> {
    range.map(|number| new_entry(number.to_string())).collect()
}

/// Appends events in small portions, up to `end`.
async fn grow(log: &SqliteLog, name: &str, portion: usize, end: usize) {
    let lease = log.acquire(&session(name)).await.unwrap();
    let mut head = 0;
    while head < end {
        let next = (head + portion).min(end);
        log.append(&lease, Seq(head as u64), &numbered_entries(head..next)).await.unwrap();
        head = next;
    }
    log.release(lease).await.unwrap();
}

#[tokio::test]
async fn fresh_events_are_moved_when_there_are_many() {
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(open(home.path()).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    let (sessions, each) = (8, FRESH_EVENTS / 2);
    for number in 0..sessions {
        let log = Arc::clone(&log);
        tasks.spawn(async move { grow(&log, &format!("s{number}"), 16, each).await });
    }
    tasks.join_all().await;
    // The last move happens after the last reply; this request waits for it.
    log.acquire(&session("after")).await.unwrap();
    let fresh = count(home.path(), "fresh");
    assert!(fresh < FRESH_EVENTS + 16 * MAX_BATCH, "{fresh}");
    assert_eq!(fresh + count(home.path(), "events"), sessions * each);
    assert!(count(home.path(), "events") >= sessions * each - FRESH_EVENTS - 16 * MAX_BATCH);
    for number in 0..sessions {
        let texts = texts(&log, &format!("s{number}")).await;
        assert!(texts.iter().zip(0..each).all(|(text, number)| *text == number.to_string()));
        assert_eq!(texts.len(), each);
    }
}

#[tokio::test]
async fn a_large_append_goes_to_the_events_table_after_the_earlier_events() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let (s, t) = (log.acquire(&session("s")).await.unwrap(), log.acquire(&session("t")).await.unwrap());
    let large = new_entry(noise(FRESH_BYTES));
    for (lease, after, new, moved_events) in [
        (&s, 0, new_entry("a"), 0),
        (&t, 0, new_entry("b"), 0),
        (&s, 1, large.clone(), 2),
        (&s, 2, new_entry("c"), 2),
        (&t, 1, new_entry("d"), 2),
        (&s, 3, large.clone(), 4),
    ] {
        log.append(lease, Seq(after), &[new]).await.unwrap();
        assert_eq!(count(home.path(), "events"), moved_events);
    }
    let lengths = |texts: Vec<String>| texts.iter().map(String::len).collect::<Vec<_>>();
    assert_eq!(lengths(texts(&log, "s").await), [1, FRESH_BYTES, 1, FRESH_BYTES]);
    assert_eq!(texts(&log, "t").await, ["b", "d"]);
}

#[tokio::test]
async fn a_read_continues_from_one_table_to_the_other_at_any_event() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("s")).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry(noise(FRESH_BYTES)), new_entry("b")]).await.unwrap();
    log.append(&lease, Seq(2), &numbered_entries(2..5)).await.unwrap();
    assert_eq!((count(home.path(), "events"), count(home.path(), "fresh")), (2, 3));
    for after in 0..7 {
        for max in 0..7 {
            let read = log.read(&session("s"), Seq(after), max).await.unwrap();
            let seqs: Vec<u64> = read.iter().map(|entry| entry.seq.0).collect();
            assert_eq!(seqs, (after + 1..=5).take(max).collect::<Vec<_>>());
        }
    }
    log.delete(&lease).await.unwrap();
    assert_eq!((count(home.path(), "events"), count(home.path(), "fresh")), (0, 0));
}

/// Long enough for two reading threads, in pages of different sizes, while another session is read as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_session_is_read_whole_and_in_order() {
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(open(home.path()).unwrap());
    let end = 3 * FRESH_EVENTS + 77;
    grow(&log, "long", 999, end).await;
    grow(&log, "other", 7, 70).await;
    for page in [1000, 1024, 1025, 5000, usize::MAX] {
        let other = Arc::clone(&log);
        let other_read = tokio::spawn(async move { texts(&other, "other").await.len() });
        let (mut cursor, mut read) = (Seq::START, Vec::new());
        loop {
            let entries = log.read(&session("long"), cursor, page).await.unwrap();
            let Some(last) = entries.last() else { break };
            assert!(entries.len() <= page);
            cursor = last.seq;
            read.extend(entries.into_iter().map(|entry| (entry.seq.0 as usize, entry.event)));
        }
        let expected: Vec<_> =
            numbered_entries(0..end).into_iter().map(|new_entry| new_entry.event).zip(1..).collect();
        assert!(read.into_iter().eq(expected.into_iter().map(|(event, seq)| (seq, event))), "{page}");
        assert_eq!(other_read.await.unwrap(), 70);
    }
}

#[tokio::test]
async fn a_long_read_ends_before_an_unreadable_event() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let end = 3 * FRESH_EVENTS;
    grow(&log, "long", end, end).await;
    let bad = 2 * FRESH_EVENTS as u64;
    let sql = format!("UPDATE events SET version = 9 WHERE place & 0xffffffff = {bad}");
    assert_eq!(database(home.path()).execute(&sql, []).unwrap(), 1);
    let entries = log.read(&session("long"), Seq::START, usize::MAX).await.unwrap();
    assert_eq!(entries.last().unwrap().seq, Seq(bad - 1));
    assert_eq!(entries.len() as u64, bad - 1);
    assert!(log.read(&session("long"), Seq(bad - 1), usize::MAX).await.is_err());
    assert_eq!(
        log.read(&session("long"), Seq(bad), usize::MAX).await.unwrap().len() as u64,
        end as u64 - bad
    );
}
