//! Behaviour of the SQLite store beyond the contract of `EventLog`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod common;

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parlor_log::{EventLog, LogError};
use parlor_vocab::{Seq, SessionEvent};

use common::{database, new_entry, open, session, texts};

#[tokio::test]
async fn waiting_appends_share_a_transaction() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let mut leases = Vec::new();
    for number in 0..64 {
        leases.push(log.acquire(&session(&format!("s{number}"))).await.unwrap());
    }
    let before = log.counts();
    let new = [new_entry("x")];
    // While another connection has the database locked, the writer cannot begin a second transaction.
    let other = database(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut appends: Vec<_> = leases.iter().map(|lease| log.append(lease, Seq::START, &new)).collect();
    for append in &mut appends {
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(append.as_mut().poll(&mut context), Poll::Pending));
    }
    other.execute_batch("COMMIT").unwrap();
    for append in appends {
        assert_eq!(append.await.unwrap(), Seq(1));
    }
    let after = log.counts();
    assert_eq!(after.appends - before.appends, 64);
    // One transaction for the jobs that the writer had already taken, one for all others.
    assert!(after.commits - before.commits <= 2, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_refused_append_does_not_affect_others_in_its_transaction() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let (s, t) = (log.acquire(&session("s")).await.unwrap(), log.acquire(&session("t")).await.unwrap());
    let new = [new_entry("x")];
    let other = database(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (first, refused, second) =
        tokio::join!(log.append(&s, Seq::START, &new), log.append(&t, Seq(7), &new), async {
            other.execute_batch("COMMIT").unwrap();
            log.append(&t, Seq::START, &new).await
        });
    assert_eq!((first.unwrap(), second.unwrap()), (Seq(1), Seq(1)));
    assert!(matches!(refused, Err(LogError::Conflict { head: Seq(0 | 1) })), "{refused:?}");
}

#[tokio::test]
async fn an_append_that_breaks_the_transaction_does_not_affect_others_in_it() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let other = database(home.path());
    let mut leases = Vec::new();
    for name in ["before", "poison", "after"] {
        leases.push(log.acquire(&session(name)).await.unwrap());
    }
    // Like a full disk, this rolls back the whole transaction, not only the statement.
    let trigger = "CREATE TRIGGER t BEFORE INSERT ON fresh WHEN new.body LIKE '%poison%'
                   BEGIN SELECT RAISE(ROLLBACK, 'no'); END; BEGIN IMMEDIATE";
    other.execute_batch(trigger).unwrap();
    let new: Vec<_> = leases.iter().map(|lease| [new_entry(lease.session().as_str())]).collect();
    let pairs = leases.iter().zip(&new);
    let mut appends: Vec<_> = pairs.map(|(lease, new)| log.append(lease, Seq::START, new)).collect();
    // However the writer divides them into batches, the middle one shares a transaction.
    for append in &mut appends {
        assert!(append.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    other.execute_batch("COMMIT").unwrap();
    let mut results = Vec::new();
    for append in appends {
        results.push(append.await);
    }
    assert!(matches!(results[..], [Ok(Seq(1)), Err(LogError::Database { .. }), Ok(Seq(1))]), "{results:?}");
    for name in ["before", "after"] {
        assert_eq!(texts(&log, name).await, [name]);
    }
    assert!(matches!(log.session(&session("poison")).await, Err(LogError::UnknownSession(_))));
}

#[tokio::test]
async fn a_failed_release_is_tried_again_later() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let (dropped, other_lease) =
        (log.acquire(&session("s")).await.unwrap(), log.acquire(&session("t")).await.unwrap());
    let other = database(home.path());
    let trigger = "CREATE TRIGGER t BEFORE DELETE ON leases BEGIN SELECT RAISE(ABORT, 'no'); END";
    other.execute_batch(trigger).unwrap();
    drop(dropped);
    // The writer handles this after the failed release, and it succeeds.
    log.append(&other_lease, Seq::START, &[new_entry("a")]).await.unwrap();
    let refused = log.acquire(&session("s")).await;
    assert!(matches!(refused, Err(LogError::Held { .. })), "{refused:?}");
    other.execute_batch("DROP TRIGGER t").unwrap();
    log.append(&other_lease, Seq(1), &[new_entry("b")]).await.unwrap();
    open(home.path()).unwrap().acquire(&session("s")).await.unwrap();
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("a/b");
    let log = open(&folder).unwrap();
    let _lease = log.acquire(&session("s")).await.unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("holders"))), (0o700, 0o700));
    for folder in [folder.clone(), folder.join("holders")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.is_dir() || mode(&path) == 0o600, "{path:?}");
        }
    }
    drop((_lease, log));
    let file = folder.join("parlor.db");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    open(&folder).unwrap();
    assert_eq!(mode(&file), 0o600);
}

fn holder_files(home: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(home.join("holders")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_closed_store_leaves_no_lock_file() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("s")).await.unwrap();
    assert_eq!(holder_files(home.path()).len(), 2);
    drop(log);
    // The lease outlived its log and is not valid any more.
    let log = open(home.path()).unwrap();
    assert_eq!(holder_files(home.path()), ["door"]);
    log.acquire(&session("s")).await.unwrap();
    drop(lease);
}

#[tokio::test]
async fn a_store_that_lost_its_lock_file_is_refused_after_another_took_its_lease() {
    let home = tempfile::tempdir().unwrap();
    let (log, other) = (open(home.path()).unwrap(), open(home.path()).unwrap());
    let old = log.acquire(&session("s")).await.unwrap();
    log.append(&old, Seq::START, &[new_entry("a")]).await.unwrap();
    for name in holder_files(home.path()).iter().filter(|name| name.ends_with(".lock")) {
        std::fs::remove_file(home.path().join("holders").join(name)).unwrap();
    }
    let new = other.acquire(&session("s")).await.expect("its holder seems dead");
    let refused = log.append(&old, Seq(1), &[new_entry("b")]).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    log.release(old).await.unwrap();
    other.append(&new, Seq(1), &[new_entry("c")]).await.unwrap();
    assert_eq!(texts(&log, "s").await, ["a", "c"]);
}

#[tokio::test]
async fn an_acquire_whose_future_was_dropped_releases_the_lease() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let id = session("s");
    let other = database(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    {
        let mut acquire = pin!(log.acquire(&id));
        let mut context = Context::from_waker(Waker::noop());
        assert!(acquire.as_mut().poll(&mut context).is_pending());
    }
    other.execute_batch("COMMIT").unwrap();
    // The first attempts may come before the release.
    while log.acquire(&id).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// A database in format 1, byte for byte as that version of parlor wrote it.
const FORMAT_1: &str = "
    CREATE TABLE sessions (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT, door TEXT NOT NULL,
        agent TEXT, created INTEGER NOT NULL, updated INTEGER NOT NULL, head INTEGER NOT NULL,
        messages INTEGER NOT NULL, bytes INTEGER NOT NULL, running TEXT) STRICT;
    CREATE INDEX sessions_by_update ON sessions (updated, id);
    CREATE TABLE events (place INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL,
        version INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE fresh (number INTEGER PRIMARY KEY, place INTEGER NOT NULL UNIQUE, id TEXT NOT NULL,
        at INTEGER NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE media (session INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (session, id))
        STRICT, WITHOUT ROWID;
    CREATE TABLE leases (session TEXT PRIMARY KEY, holder TEXT NOT NULL, token INTEGER NOT NULL,
        pid INTEGER NOT NULL, since INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO sessions VALUES (3, 'old', 'T', 'supr', 'local', 10, 12, 3, 1, 170, 'run_1');
    INSERT INTO events VALUES
        (12884901889, 'evt_1', 10, 1, '{\"created\":{\"title\":\"T\",\"door\":\"supr\",\"folder\":\"/w\"}}'),
        (12884901890, 'evt_2', 11, 1, '\"cleared\"');
    INSERT INTO fresh VALUES (7, 12884901891, 'evt_3', 12, 1,
         '{\"run\":{\"run\":\"run_1\",\"sequence\":1,\"event\":{\"message_started\":{\"message\":\"m\"}}}}');
    INSERT INTO fresh VALUES
        (8, 17179869185, 'evt_4', 86400001, 1, '{\"run\":{\"run\":\"run_2\",\"sequence\":1,\"event\":{\"started\":{\"agent\":\"a\",\"input\":{\"text\":\"t\"},\"message\":\"m\"}}}}'),
        (9, 17179869186, 'evt_5', 86400002, 1, '{\"run\":{\"run\":\"run_3\",\"sequence\":1,\"event\":{\"started\":{\"parent\":\"run_2\",\"agent\":\"a\",\"input\":{\"text\":\"t\"},\"message\":\"m\"}}}}'),
        (10, 17179869187, 'evt_6', 86400003, 1, '{\"run\":{\"run\":\"run_3\",\"sequence\":2,\"event\":{\"consumed\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":2,\"cache_read_tokens\":3,\"cache_write_tokens\":4,\"cost_micros\":5},\"model\":\"m\"}}}}'),
        (11, 17179869188, 'evt_7', 86400004, 1, '{\"run\":{\"run\":\"run_3\",\"sequence\":3,\"event\":{\"ended\":{\"ending\":{\"failed\":{\"code\":\"X\",\"message\":\"\",\"retryable\":false}},\"duration_ms\":1}}}}'),
        (12, 17179869189, 'evt_8', 86400005, 1, '{\"run\":{\"run\":\"run_2\",\"sequence\":2,\"event\":{\"ended\":{\"ending\":{\"failed\":{\"code\":\"X\",\"message\":\"\",\"retryable\":false}},\"duration_ms\":1}}}}'),
        (13, 17179869190, 'evt_9', 86400006, 1, '{\"run\":{\"run\":\"run_2\",\"sequence\":9,\"event\":{\"started\":{ damaged');
    INSERT INTO media VALUES (3, 'ab');
    INSERT INTO leases VALUES ('old', 'of a dead process', 1, 1, 1);
    PRAGMA user_version = 1;";

#[tokio::test]
async fn a_database_of_format_1_is_migrated() {
    let home = tempfile::tempdir().unwrap();
    database(home.path()).execute_batch(FORMAT_1).unwrap();
    let log = open(home.path()).unwrap();
    let record = log.session(&session("old")).await.unwrap();
    assert_eq!((record.title.as_deref(), record.door.as_str(), record.messages), (Some("T"), "supr", 1));
    assert_eq!((record.running.unwrap().as_str(), record.bytes), ("run_1", 170));
    assert_eq!(log.referenced_media().await.unwrap().len(), 1);
    let entries = log.read(&session("old"), Seq::START, 10).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.at.0).collect::<Vec<_>>(), [10, 11, 12]);
    assert!(
        matches!(&entries[0].event, SessionEvent::Created(new_session) if new_session.folder.ends_with("w"))
    );
    assert_eq!(entries[1].event, SessionEvent::Cleared);
    // The migration counts the usage of existing events.
    let usage = log.usage(0).await.unwrap();
    let counted: Vec<_> = usage.iter().map(|line| (line.day, &*line.model, line.runs, line.failed)).collect();
    assert_eq!(counted, [(1, "", 1, 1), (1, "m", 0, 0)]);
    assert_eq!((usage[1].usage.input_tokens, usage[1].usage.cost_micros), (1, 5));
    let lease = log.acquire(&session("old")).await.unwrap();
    assert_eq!(log.append(&lease, Seq(3), &[new_entry("new")]).await.unwrap(), Seq(4));
    assert_eq!(log.read(&session("old"), Seq(3), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_database_of_a_later_format_is_refused() {
    let home = tempfile::tempdir().unwrap();
    database(home.path()).execute_batch("PRAGMA user_version = 99").unwrap();
    let error = open(home.path()).err().unwrap();
    assert!(matches!(error, LogError::Newer { found: 99, .. }), "{error:?}");
    assert!(error.to_string().contains("use a newer parlor"), "{error}");
}

#[tokio::test]
async fn an_unreadable_event_is_reported_and_can_be_skipped() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("s")).await.unwrap();
    log.append(&lease, Seq::START, &["a", "b", "c", "d"].map(new_entry)).await.unwrap();
    let other = database(home.path());
    other.execute("UPDATE fresh SET version = 9 WHERE place & 0xff = 2", []).unwrap();
    other.execute("UPDATE fresh SET body = '{' WHERE place & 0xff = 4", []).unwrap();
    assert_eq!(log.read(&session("s"), Seq::START, 10).await.unwrap().len(), 1);
    for (before, bad) in [(1, 2), (3, 4)] {
        let error = log.read(&session("s"), Seq(before), 10).await.unwrap_err();
        assert!(matches!(&error, LogError::Unreadable { seq, .. } if *seq == Seq(bad)), "{error:?}");
        assert!(
            error.to_string().starts_with(&format!("event {bad} of session s cannot be read")),
            "{error}"
        );
    }
    assert_eq!(log.read(&session("s"), Seq(2), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn large_events_are_read_in_portions() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("s")).await.unwrap();
    let new: Vec<_> = (0..6).map(|_| new_entry("x".repeat(parlor_log::READ_BYTES / 2))).collect();
    log.append(&lease, Seq::START, &new).await.unwrap();
    let mut cursor = Seq::START;
    let mut sizes = Vec::new();
    while cursor < Seq(6) {
        let entries = log.read(&session("s"), cursor, 100).await.unwrap();
        sizes.push(entries.len());
        cursor = entries.last().unwrap().seq;
    }
    assert_eq!(sizes, [2, 2, 2]);
}

#[tokio::test]
async fn no_query_sorts_or_scans_a_table() {
    let home = tempfile::tempdir().unwrap();
    drop(open(home.path()).unwrap());
    let plan = |sql: &str| {
        let connection = database(home.path());
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    for table in ["events", "fresh"] {
        let read = plan(&format!(
            "SELECT place, id, at, version, body FROM {table} WHERE place > 5 AND place <= 9 ORDER BY place"
        ));
        assert!(!read.contains("SCAN") && !read.contains("TEMP"), "{read}");
    }
    let page = plan(
        "SELECT * FROM sessions AS s WHERE (s.updated, s.id) < (1, 'x') ORDER BY s.updated DESC, s.id DESC LIMIT 9",
    );
    assert!(page.contains("sessions_by_update") && !page.contains("TEMP"), "{page}");
}
