//! Helpers of the tests of the SQLite store.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use parlor_log::{EventLog, LogError, SqliteLog, SystemClock};
use parlor_vocab::{EventId, NewEntry, Seq, SessionEvent, SessionId, Timestamp};
use rusqlite::Connection;

pub fn open(home: &Path) -> Result<SqliteLog, LogError> {
    SqliteLog::open(home, Arc::new(SystemClock))
}

pub fn session(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

pub fn new_entry(text: impl Into<String>) -> NewEntry {
    let event = SessionEvent::Renamed { title: text.into() };
    NewEntry { id: EventId::parse("evt").unwrap(), at: Timestamp(1), event }
}

/// A text of this length that cannot be deflated.
pub fn noise(bytes: usize) -> String {
    let mut state = bytes as u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'#' + ((state >> 33) % 92) as u8)
    };
    // In JSON, a backslash takes two bytes.
    std::iter::repeat_with(next).filter(|letter| *letter != '\\').take(bytes).collect()
}

/// The texts of a session's events. Checks that their numbers have no gaps.
pub async fn texts(log: &SqliteLog, name: &str) -> Vec<String> {
    let entries = log.read(&session(name), Seq::START, usize::MAX).await.unwrap();
    let seqs: Vec<u64> = entries.iter().map(|entry| entry.seq.0).collect();
    assert_eq!(seqs, (1..=entries.len() as u64).collect::<Vec<_>>(), "dense");
    let text = |event| {
        let SessionEvent::Renamed { title } = event else { panic!("{event:?}") };
        title
    };
    entries.into_iter().map(|entry| text(entry.event)).collect()
}

/// A direct connection to the database.
pub fn database(home: &Path) -> Connection {
    Connection::open(home.join("parlor.db")).unwrap()
}

pub fn assert_intact(home: &Path) {
    let found: String = database(home).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}
