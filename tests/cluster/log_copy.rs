//! `parlor log copy` between SQLite and PostgreSQL: kills, damage, refusals, and what it prints.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, PageRequest, PostgresLog, PostgresOptions, SqliteLog, SystemClock};
use parlor_vocab::{EventId, NewEntry, Seq, SessionEvent, SessionId, Timestamp};

use crate::TIMEOUT;
use crate::client::Client;
use crate::node::{Database, NodeHome};
use crate::server::PARLOR;

const SESSIONS: u64 = 12;
const EVENTS: u64 = 400;

/// A session that is neither copied first nor last.
const MIDDLE: &str = "session-5";

fn session(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

/// A state folder with sessions.
async fn filled_home() -> NodeHome {
    let home = NodeHome::new("");
    let log = SqliteLog::open(home.path(), Arc::new(SystemClock)).unwrap();
    for number in 0..SESSIONS {
        let lease = log.acquire(&session(&format!("session-{number}"))).await.unwrap();
        let entry = |event: u64| NewEntry {
            id: EventId::parse(&format!("evt-{number}-{event}")).unwrap(),
            at: Timestamp((1000 * number + event) as i64),
            event: SessionEvent::Renamed { title: format!("{event}{}", "x".repeat(200)) },
        };
        let events: Vec<NewEntry> = (1..=EVENTS).map(entry).collect();
        log.append(&lease, Seq::START, &events).await.unwrap();
        log.release(lease).await.unwrap();
    }
    home
}

fn sqlite(folder: &Path) -> String {
    format!("sqlite:{}", folder.display())
}

fn copy(home: &NodeHome, from: &str, to: &str) -> Output {
    home.run(&["log", "copy", "--from", from, "--to", to, "--json"])
}

/// The last line of a copy.
fn summary(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn spawn_copy(home: &NodeHome, from: &str, to: &str) -> Child {
    Command::new(PARLOR)
        .args(["log", "copy", "--from", from, "--to", to])
        .env("PARLOR_HOME", home.path())
        .env_remove("PGPASSWORD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a copy when `is_reached` says so. Fails if the copy ends before.
async fn kill_when(mut child: Child, mut is_reached: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_reached().await {
            assert_eq!(child.try_wait().unwrap(), None, "the copy ended before it was killed");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, wait).await;
    // SIGKILL.
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed in the middle");
    waited.unwrap();
}

/// All events of a log, by session.
async fn content(log: &dyn EventLog) -> Vec<(parlor_log::SessionRecord, Vec<parlor_vocab::Entry>)> {
    let mut sessions = Vec::new();
    for record in log.sessions(PageRequest::first(100)).await.unwrap().records {
        let events = log.read(&record.id, Seq::START, usize::MAX).await.unwrap();
        sessions.push((record, events));
    }
    sessions
}

async fn open_postgres(database: &Database) -> PostgresLog {
    let options = PostgresOptions::new(&database.url, "test");
    PostgresLog::open(options, Arc::new(SystemClock)).await.unwrap()
}

fn open_sqlite(folder: &Path) -> SqliteLog {
    SqliteLog::open(folder, Arc::new(SystemClock)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_to_postgresql_continues_after_it_was_killed_while_it_appends() {
    let home = filled_home().await;
    let name = TestServer::shared().new_database().await;
    let database = Database { url: TestServer::shared().url(&name) };
    // Creates the tables.
    open_postgres(&database).await.close().await;
    // The first append waits for this lock, and is killed while it waits. The server may commit it afterwards.
    let locker = TestServer::shared().client(&name).await;
    let watcher = TestServer::shared().client(&name).await;
    locker.batch_execute("BEGIN; LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%Appends events%'";
    let child = spawn_copy(&home, &sqlite(home.path()), &database.url);
    kill_when(child, async || watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
    locker.batch_execute("ROLLBACK").await.unwrap();
    // The next one is killed while it waits for a later session, which somebody uses.
    let user = open_postgres(&database).await;
    let lease = user.acquire(&session(MIDDLE)).await.unwrap();
    let some = "SELECT count(*) FROM sessions";
    let child = spawn_copy(&home, &sqlite(home.path()), &database.url);
    kill_when(child, async || watcher.query_one(some, &[]).await.unwrap().get::<_, i64>(0) >= 2).await;
    user.release(lease).await.unwrap();
    user.close().await;
    let output = copy(&home, &sqlite(home.path()), &database.url);
    let copied = summary(&output);
    assert!(output.status.success(), "{copied}");
    assert_eq!(copied["compared_events"], SESSIONS * EVENTS, "{copied}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "no progress bar in a pipe");
    let (source, target) = (open_sqlite(home.path()), open_postgres(&database).await);
    assert_eq!(content(&source).await, content(&target).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_to_sqlite_continues_after_it_was_killed() {
    let home = filled_home().await;
    let target = NodeHome::new("");
    let (from, to) = (sqlite(home.path()), sqlite(target.path()));
    let user = open_sqlite(target.path());
    let lease = user.acquire(&session(MIDDLE)).await.unwrap();
    let child = spawn_copy(&home, &from, &to);
    let first = PageRequest::first(100);
    kill_when(child, async || user.sessions(first.clone()).await.unwrap().records.len() >= 2).await;
    user.release(lease).await.unwrap();
    drop(user);
    let output = copy(&home, &from, &to);
    assert!(output.status.success());
    assert_eq!(summary(&output)["compared_events"], SESSIONS * EVENTS);
    assert_eq!(content(&open_sqlite(home.path())).await, content(&open_sqlite(target.path())).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_files_and_usage_is_copied_to_postgresql_and_back() {
    let (home, back) = (NodeHome::new(""), NodeHome::new(""));
    let mut server = home.serve(&[]);
    let bytes: Vec<u8> = (0..600_000_u32).map(|number| (number / 5) as u8).collect();
    let mut client = Client::open(&server, "with-file").await;
    client.send_file(&bytes, "/say thanks").await;
    let started = client.event("run.started").await;
    client.event("run.completed").await;
    let database = Database::new().await;
    // The server uses the log.
    let refused = copy(&home, "sqlite:", &database.url);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("; end it and try again"), "{text}");
    assert!(server.stop().success());
    let copied = summary(&copy(&home, "sqlite:", &database.url));
    assert_eq!((&copied["complete"], &copied["compared_files"]), (&true.into(), &1.into()), "{copied}");
    let to = sqlite(back.path());
    let copied = summary(&copy(&home, &database.url, &to));
    assert_eq!((&copied["complete"], &copied["compared_files"]), (&true.into(), &1.into()), "{copied}");
    let id = started.data["input"]["media"][0]["id"].as_str().unwrap();
    assert_eq!(std::fs::read(back.path().join("media").join(id)).unwrap(), bytes);
    let (first, last) = (open_sqlite(home.path()), open_sqlite(back.path()));
    assert_eq!(content(&first).await, content(&last).await);
    assert_eq!(first.usage(0).await.unwrap(), last.usage(0).await.unwrap());
    drop((first, last));
    assert!(back.prints(&["replay", "with-file"]).contains("completed after"));
    // A file that is missing in the source is named; one that is damaged makes the copy fail.
    let file = back.path().join("media").join(id);
    std::fs::write(&file, "damaged").unwrap();
    let elsewhere = NodeHome::new("");
    let damaged = copy(&home, &to, &sqlite(elsewhere.path()));
    assert!(!damaged.status.success());
    assert_eq!(summary(&damaged)["damaged_files"], 1);
    std::fs::remove_file(&file).unwrap();
    let missing = copy(&home, &to, &sqlite(elsewhere.path()));
    assert!(missing.status.success());
    assert_eq!(summary(&missing)["missing_files"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_differs_is_named_and_left_alone() {
    let home = filled_home().await;
    let other = NodeHome::new("");
    let (from, to) = (sqlite(home.path()), sqlite(other.path()));
    assert!(copy(&home, &from, &to).status.success());
    let database = rusqlite::Connection::open(other.path().join("parlor.db")).unwrap();
    let damage = "UPDATE events SET body = replace(body, 'x', 'y') WHERE id = 'evt-3-77'";
    assert_eq!(database.execute(damage, []).unwrap(), 1);
    drop(database);
    let before = content(&open_sqlite(other.path())).await;
    let output = home.run(&["log", "copy", "--from", &from, "--to", &to]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("session session-3: event 77 of the target is not that of the source"), "{text}");
    assert!(text.contains("Copied: 0 events in 0 of 12 sessions."), "{text}");
    assert!(text.contains("Not complete: 1 sessions"), "{text}");
    assert_eq!(content(&open_sqlite(other.path())).await, before);
}

#[test]
fn addresses_that_cannot_be_used_are_refused_in_words() {
    let home = NodeHome::new("");
    let own = sqlite(home.path());
    let refused = |from: &str, to: &str| {
        let output = copy(&home, from, to);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused("sqlite:", &own).contains("name the same log"));
    assert!(refused("mysql://x", &own).contains("--from cannot be used"));
    let missing = refused("sqlite:", "postgres://u:pa55word@127.0.0.1:1/x");
    assert!(missing.contains("there is no database parlor.db in"), "{missing}");
    drop(open_sqlite(home.path()));
    let away = refused("sqlite:", "postgres://u:pa55word@127.0.0.1:1/x");
    assert!(away.contains("cannot open postgres://127.0.0.1:1/x; start the database"), "{away}");
    assert!(!away.contains("pa55word"), "{away}");
}
