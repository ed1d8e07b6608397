//! Copies between logs: what arrives, what is compared, and what is left alone.

use std::path::Path;
use std::sync::Arc;

use parlor_log::copy::{CopyError, CopyProgress, CopyReport, CopyableLog, SessionCopy, copy_log};
use parlor_log::{
    EventLog, LogError, PageRequest, PartialMessage, PartialText, PostgresLog, SqliteLog, SystemClock,
};
use parlor_vocab::{
    AgentId, EventId, Media, MediaId, MessageId, NewEntry, RunEnding, RunEvent, RunId, Seq, SessionEvent,
    SessionId, Timestamp, Usage, UserInput,
};

use super::{Database, session};

/// More than a copy reads at a time.
const LONG: u64 = 2500;

fn sqlite(folder: &Path) -> SqliteLog {
    SqliteLog::open(folder, Arc::new(SystemClock)).unwrap()
}

fn run_event(number: u64, event: RunEvent) -> NewEntry {
    let event = SessionEvent::Run { run: RunId::parse("run").unwrap(), sequence: number, event };
    NewEntry { id: EventId::parse(&format!("evt-{number}")).unwrap(), at: Timestamp(number as i64), event }
}

/// A run with usage, an attached file, and texts that a database could treat in a special way.
fn events(count: u64) -> Vec<NewEntry> {
    let message = MessageId::parse("m").unwrap();
    let media = Media {
        id: MediaId::parse(&"ab".repeat(32)).unwrap(),
        name: "n\0\u{1F600}'\\".to_owned(),
        mime: "text/plain".to_owned(),
        size: 3,
    };
    let input = UserInput { media: vec![media], ..UserInput::default() };
    let agent = AgentId::parse("local").unwrap();
    let started = RunEvent::Started { parent: None, agent, model: None, missing_agent: None, input, message };
    let usage = Usage { input_tokens: 7, output_tokens: 5, ..Usage::default() };
    let used = RunEvent::UsageAdded { usage, model: Some("model".to_owned()) };
    let ended = RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 };
    let mut events = vec![run_event(1, started), run_event(2, used), run_event(3, ended)];
    for number in 4..=count {
        let event = SessionEvent::Renamed { title: format!("title \0 {number} \u{10FFFF}") };
        let id = EventId::parse(&format!("evt-{number}")).unwrap();
        events.push(NewEntry { id, at: Timestamp(number as i64), event });
    }
    events.truncate(count as usize);
    events
}

async fn write(log: &dyn EventLog, name: &str, count: u64) {
    let lease = log.acquire(&session(name)).await.unwrap();
    log.append(&lease, Seq::START, &events(count)).await.unwrap();
    log.release(lease).await.unwrap();
}

async fn delete(log: &dyn EventLog, name: &str) {
    let lease = log.acquire(&session(name)).await.unwrap();
    log.delete(&lease).await.unwrap();
}

/// Copies, and returns the report with the outcome of each session.
async fn copy(
    source: &dyn CopyableLog,
    target: &dyn CopyableLog,
) -> Result<(CopyReport, Vec<(SessionId, SessionCopy)>), CopyError> {
    let mut outcomes = Vec::new();
    let report = copy_log(source, target, |progress| {
        if let CopyProgress::Session { id, outcome } = progress {
            outcomes.push((id.clone(), outcome.clone()));
        }
    })
    .await?;
    outcomes.sort_by(|left, right| left.0.cmp(&right.0));
    Ok((report, outcomes))
}

/// Everything that a reader can see.
async fn content(log: &dyn EventLog) -> impl PartialEq + std::fmt::Debug + use<> {
    let records = log.sessions(PageRequest::first(100)).await.unwrap().records;
    let mut sessions = Vec::new();
    for record in records {
        let mut events = Vec::new();
        while events.len() < record.head.0 as usize {
            events.extend(log.read(&record.id, Seq(events.len() as u64), 1000).await.unwrap());
        }
        let partial = log.partial_message(&record.id).await.unwrap();
        sessions.push((record, events, partial));
    }
    (sessions, log.usage(i64::MIN).await.unwrap(), log.referenced_media().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_copied_to_postgresql_and_back_is_the_same() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (first, last) = (sqlite(folders[0].path()), sqlite(folders[1].path()));
    write(&first, "long", LONG).await;
    write(&first, "odd \u{1F600} name", 2).await;
    // Its usage stays.
    write(&first, "deleted", 3).await;
    delete(&first, "deleted").await;
    let message = MessageId::parse("partial").unwrap();
    let lease = first.acquire(&session("long")).await.unwrap();
    let part = PartialText { message: &message, start: 0, text: "so far \0" };
    first.keep_partial_text(&lease, part).await.unwrap();
    first.release(lease).await.unwrap();

    let database = Database::create().await;
    let middle = database.log().await;
    let (report, outcomes) = copy(&first, &middle).await.unwrap();
    let expected = CopyReport {
        sessions: 2,
        copied_sessions: 2,
        copied_events: LONG + 2,
        compared_events: LONG + 2,
        incomplete_sessions: 0,
    };
    assert_eq!(report, expected);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_complete()), "{outcomes:?}");
    let partial = middle.partial_message(&session("long")).await.unwrap();
    assert_eq!(partial, Some(PartialMessage { message, text: "so far \0".to_owned() }));
    assert_eq!(middle.usage(i64::MIN).await.unwrap().iter().map(|line| line.runs).sum::<u64>(), 3);

    copy(&middle, &last).await.unwrap();
    assert_eq!(content(&first).await, content(&last).await);
    // A second copy compares everything and writes nothing, also the usage.
    let (report, _) = copy(&first, &middle).await.unwrap();
    assert_eq!(report, CopyReport { copied_sessions: 0, copied_events: 0, ..expected });
    copy(&last, &first).await.unwrap();
    assert_eq!(content(&first).await, content(&middle).await);
    assert_eq!(content(&first).await, content(&last).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_continues_where_it_ended_and_follows_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let source = sqlite(folder.path());
    write(&source, "a", 10).await;
    let database = Database::create().await;
    let target = database.log().await;
    // As a copy leaves it that was killed after the fourth event.
    let lease = target.acquire(&session("a")).await.unwrap();
    target.append(&lease, Seq::START, &events(4)).await.unwrap();
    target.release(lease).await.unwrap();
    let (report, outcomes) = copy(&source, &target).await.unwrap();
    assert_eq!((report.copied_events, report.compared_events), (6, 10));
    assert_eq!(outcomes[0].1, SessionCopy::Complete { new_events: 6, target_only: 0 });
    // The session goes on in the target, which the next copy leaves alone.
    let lease = target.acquire(&session("a")).await.unwrap();
    target.append(&lease, Seq(10), &events(12)[10..]).await.unwrap();
    target.release(lease).await.unwrap();
    let (_, outcomes) = copy(&source, &target).await.unwrap();
    assert_eq!(outcomes[0].1, SessionCopy::Complete { new_events: 0, target_only: 2 });
    assert_eq!(content(&target).await, {
        copy(&target, &source).await.unwrap();
        content(&source).await
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_target_is_found_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let source = sqlite(folder.path());
    let names = ["body", "gap", "id", "record", "short", "time"];
    for name in names {
        write(&source, name, 1100).await;
    }
    let database = Database::create().await;
    let target = database.log().await;
    copy(&source, &target).await.unwrap();
    let damage = [
        "UPDATE events SET body = replace(body, '1077', '1078') WHERE session = 'body' AND seq = 1077",
        "DELETE FROM events WHERE session = 'gap' AND seq = 30",
        "UPDATE events SET id = 'other' WHERE session = 'id' AND seq = 1",
        "UPDATE sessions SET messages = messages + 1 WHERE id = 'record'",
        "DELETE FROM events WHERE session = 'short' AND seq = 1100",
        "UPDATE events SET at = at + 1 WHERE session = 'time' AND seq = 1024",
    ];
    database.server.execute(&database.name, &damage.join(";")).await;
    let before = content_of_tables(&database).await;
    let (report, outcomes) = copy(&source, &target).await.unwrap();
    let differs = |seq| SessionCopy::Differs { seq: Seq(seq) };
    let expected =
        [differs(1077), differs(30), differs(1), SessionCopy::RecordDiffers, differs(1100), differs(1024)];
    let expected: Vec<_> = names.iter().map(|name| session(name)).zip(expected).collect();
    assert_eq!(outcomes, expected);
    assert_eq!((report.incomplete_sessions, report.copied_events), (6, 0));
    assert_eq!(content_of_tables(&database).await, before);
}

async fn content_of_tables(database: &Database) -> String {
    let client = database.server.client(&database.name).await;
    let sql =
        "SELECT md5(string_agg(e::text, '' ORDER BY session, seq)) || (SELECT md5(string_agg(s::text, ''
        ORDER BY id)) FROM sessions AS s) FROM events AS e";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_another_process_uses_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = sqlite(folder.path());
    let database = Database::create().await;
    let (source, other) = (database.log().await, database.log().await);
    let refused = copy(&source, &target).await.unwrap_err();
    assert!(matches!(&refused, CopyError::SourceInUse { user } if user.contains("on node a")), "{refused}");
    other.close().await;
    copy(&source, &target).await.unwrap();
    // This process counts too, before it opens the log itself.
    drop(target);
    SqliteLog::refuse_if_used(folder.path()).unwrap();
}

/// A source to which somebody appends while it is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changes_meanwhile_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let source = Arc::new(sqlite(folder.path()));
    write(&*source, "a", 5).await;
    let database = Database::create().await;
    let target = database.log().await;
    let (late, runtime) = (Arc::clone(&source), tokio::runtime::Handle::current());
    let changed = copy_log(&*source, &target, move |progress| {
        if let CopyProgress::Session { .. } = progress {
            tokio::task::block_in_place(|| runtime.block_on(write(&*late, "b", 1)));
        }
    })
    .await;
    assert!(matches!(changed, Err(CopyError::SourceChanged)), "{changed:?}");
    assert_eq!(copy(&*source, &target).await.unwrap().0.copied_events, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_in_use_in_the_target_or_unreadable_in_the_source_is_named() {
    let folder = tempfile::tempdir().unwrap();
    {
        let source = sqlite(folder.path());
        write(&source, "held", 5).await;
        write(&source, "newer", 5).await;
        write(&source, "fine", 5).await;
    }
    let database = rusqlite::Connection::open(folder.path().join("parlor.db")).unwrap();
    database
        .execute("UPDATE fresh SET version = 99 WHERE id = 'evt-3' AND place / 4294967296 = 2", [])
        .unwrap();
    drop(database);
    let source = sqlite(folder.path());
    let database = Database::create().await;
    let (target, other): (PostgresLog, PostgresLog) = (database.log().await, database.log().await);
    let lease = other.acquire(&session("held")).await.unwrap();
    let (report, outcomes) = copy(&source, &target).await.unwrap();
    assert_eq!(report.incomplete_sessions, 2);
    assert!(outcomes[0].1.is_complete());
    assert!(matches!(&outcomes[1].1, SessionCopy::Held { by } if by.node.as_deref() == Some("a")));
    assert!(
        matches!(&outcomes[2].1, SessionCopy::Unreadable { seq: Seq(3), reason } if reason.contains("99"))
    );
    let missing = target.session(&session("newer")).await;
    assert!(matches!(missing, Err(LogError::UnknownSession(_))), "{missing:?}");
    other.release(lease).await.unwrap();
}
