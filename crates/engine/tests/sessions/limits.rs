//! Tests of operations on whole sessions: forking, compacting, releasing, deleting, collecting; and of their limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::{TIMEOUT, TestSession, message_text, new_session, send_command, sessions_on};
use futures_util::FutureExt;
use parlor_engine::retention::{DeletionReason, RECENTLY_USED, Retention};
use parlor_engine::{MAX_ACTIVE_RUNS, MAX_OPEN_SESSIONS, SessionUpdate, Sessions};
use parlor_log::{MemoryLog, PageRequest, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{
    Clock, HistoryItem, Message, MessageId, NewSession, RunEnding, Seq, SessionCommand, SessionRefusal,
    SessionReply, Timestamp, WhenBusy,
};

fn memory() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new(Arc::new(SystemClock)))
}

fn texts<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<&'a str> {
    messages.map(|message| message.text.as_str()).collect()
}

/// A clock that the test advances.
#[derive(Default)]
struct ManualClock(AtomicI64);

impl ManualClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

fn sessions_at(log: &Arc<MemoryLog>, clock: &Arc<ManualClock>) -> Sessions {
    crate::common::sessions_with_clock(log, Arc::new(LocalAgent::default()), Arc::clone(clock) as _)
}

/// A session with three finished runs.
async fn session_with_runs() -> TestSession {
    let mut test = TestSession::start().await;
    for text in ["/say one", "/say two", "!echo three"] {
        let run = test.send(text).await;
        test.end_of(&run).await;
    }
    test
}

#[tokio::test]
async fn a_fork_begins_with_the_messages_up_to_the_given_one() {
    let mut test = session_with_runs().await;
    let original = test.sessions.view(&test.session).await.unwrap();
    let second = original.messages().nth(1).unwrap().id.clone();
    let fork = test.sessions.fork(None, &test.session, Some(&second)).await.unwrap();
    let copy = test.sessions.view(&fork).await.unwrap();
    assert_eq!(texts(copy.messages()), ["/say one", "one"]);
    let origin = copy.new_session().unwrap().forked_from.clone().unwrap();
    assert_eq!((origin.session, origin.message), (test.session.clone(), second));
    let ids = |session: &parlor_engine::session::Session| -> Vec<MessageId> {
        session.messages().map(|message| message.id.clone()).collect()
    };
    assert!(ids(&copy).iter().all(|id| !ids(&original).contains(id)), "ids are unique everywhere");

    let whole = test.sessions.fork(None, &test.session, None).await.unwrap();
    assert_eq!(texts(test.sessions.view(&whole).await.unwrap().messages()), texts(original.messages()));
    test.session = fork;
    test.watcher = test.sessions.watch(&test.session, Seq::START).await;
    let run = test.send("/say four").await;
    test.end_of(&run).await;
    let head = test.sessions.view(&test.session).await.unwrap();
    assert_eq!(texts(head.messages()), ["/say one", "one", "/say four", "four"]);

    let unknown = MessageId::parse("msg_nobody").unwrap();
    let refused = test.sessions.fork(None, &test.session, Some(&unknown)).await;
    assert_eq!(refused, Err(SessionRefusal::UnknownMessage(unknown)));
}

#[tokio::test]
async fn the_history_has_tool_uses_and_unfinished_runs() {
    let mut test = session_with_runs().await;
    let run = test.send("/fail no luck").await;
    test.end_of(&run).await;
    let run = test.send("/wait 60").await;
    test.sessions.execute(&test.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    test.end_of(&run).await;
    let session = test.sessions.view(&test.session).await.unwrap();
    let uses: Vec<_> = session
        .history()
        .iter()
        .filter_map(|item| match item {
            HistoryItem::ToolUse(used) => Some((used.tool.as_str(), used.result.clone().unwrap().unwrap())),
            HistoryItem::Message(_) | HistoryItem::UnfinishedRun { .. } => None,
        })
        .collect();
    assert_eq!(uses.len(), 1);
    assert!(uses[0].0 == "shell" && uses[0].1.contains("three"), "{uses:?}");
    let broken: Vec<_> = session
        .history()
        .iter()
        .filter_map(|item| match item {
            HistoryItem::UnfinishedRun { ending, .. } => Some(ending.clone()),
            HistoryItem::Message(_) | HistoryItem::ToolUse(_) => None,
        })
        .collect();
    assert!(matches!(&broken[..], [RunEnding::Failed(_), RunEnding::Stopped { .. }]), "{broken:?}");
    assert!(matches!(session.history().last(), Some(HistoryItem::UnfinishedRun { .. })));
}

#[tokio::test]
async fn compacting_replaces_older_messages_with_a_summary() {
    let mut test = session_with_runs().await;
    let empty = test.sessions.create(None, new_session()).await.unwrap();
    let refused = test.sessions.execute(&empty, SessionCommand::Compact { keep: 0 }).await;
    assert!(matches!(refused, Err(SessionRefusal::NotCompacted { .. })), "{refused:?}");

    let reply = test.sessions.execute(&test.session, SessionCommand::Compact { keep: 2 }).await.unwrap();
    let SessionReply::Compacted(summary) = reply else { panic!("{reply:?}") };
    assert!(summary.text.contains("User: /say one"), "{}", summary.text);
    let session = test.sessions.view(&test.session).await.unwrap();
    let messages = texts(session.messages());
    assert_eq!((messages.len(), messages[0], messages[1]), (3, summary.text.as_str(), "!echo three"));
    let run = test.send("/say more").await;
    test.end_of(&run).await;

    let again = test.sessions.execute(&test.session, SessionCommand::Compact { keep: 0 }).await.unwrap();
    assert!(matches!(again, SessionReply::Compacted(_)));
    assert_eq!(test.sessions.view(&test.session).await.unwrap().history().len(), 1);
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_a_busy_one_stays() {
    let mut test = TestSession::start().await;
    let run = test.send("/wait 60").await;
    let refused = test.sessions.delete(&test.session).await;
    assert_eq!(refused, Err(SessionRefusal::Busy { active: run.clone() }));
    test.sessions.execute(&test.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    test.end_of(&run).await;
    test.sessions.delete(&test.session).await.unwrap();
    let gone = SessionRefusal::UnknownSession(test.session.clone());
    assert_eq!(test.sessions.view(&test.session).await.unwrap_err(), gone);
    assert_eq!(test.sessions.delete(&test.session).await, Err(gone));
    assert!(test.sessions.list(PageRequest::first(10)).await.unwrap().records.is_empty());
    test.sessions.create(Some(test.session.clone()), new_session()).await.unwrap();
}

#[tokio::test]
async fn a_session_with_a_background_process_is_not_released() {
    let mut test = TestSession::start().await;
    let folder = tempfile::tempdir().unwrap();
    let call = r#"{ tool = "shell", args = { command = "exec sleep 300", background = true } }"#;
    let text = format!("otherwise.steps = [ {call} ]");
    let script = parlor_model::ScriptAgent::parse(&text, folder.path(), "Script").unwrap();
    test.sessions = crate::common::sessions_with_agent(&memory(), Arc::new(script));
    test.session = test.sessions.create(None, new_session()).await.unwrap();
    test.watcher = test.sessions.watch(&test.session, Seq::START).await;
    let run = test.send("go").await;
    test.end_of(&run).await;
    assert_eq!(test.sessions.release(&test.session).await, Err(SessionRefusal::BackgroundProcesses));
    test.sessions.close().await;
}

#[tokio::test]
async fn a_released_session_can_be_opened_by_another_registry() {
    let log = memory();
    let (sessions, other) = (sessions_on(&log), sessions_on(&log));
    let session = sessions.create(None, new_session()).await.unwrap();
    assert!(matches!(other.view(&session).await, Err(SessionRefusal::SessionHeld { .. })));
    sessions.release(&session).await.unwrap();
    sessions.release(&session).await.unwrap();
    other.view(&session).await.unwrap();
    assert!(matches!(sessions.view(&session).await, Err(SessionRefusal::SessionHeld { .. })));
}

#[tokio::test]
async fn a_watcher_sees_events_of_another_registry() {
    let log = memory();
    let other = sessions_on(&log);
    let mut test = TestSession::start().await;
    test.sessions = sessions_on(&log);
    test.session = test.sessions.create(None, new_session()).await.unwrap();
    test.watcher = test.sessions.watch(&test.session, Seq::START).await;
    let run = test.send("/say here").await;
    test.end_of(&run).await;
    // The watcher has seen all events of this registry and waits, when the other one begins to write.
    let next = test.watcher.next();
    tokio::pin!(next);
    assert!(next.as_mut().now_or_never().is_none());
    test.sessions.release(&test.session).await.unwrap();
    other.execute(&test.session, send_command("/say there", WhenBusy::Refuse)).await.unwrap();
    let seen = tokio::time::timeout(TIMEOUT, next).await.expect("an update").unwrap();
    assert!(matches!(seen, SessionUpdate::Entry(_)), "{seen:?}");
    other.close().await;
}

#[tokio::test]
async fn the_least_recently_used_session_is_closed_to_make_room() {
    let sessions = sessions_on(&memory());
    let mut ids = Vec::new();
    for _ in 0..=MAX_OPEN_SESSIONS {
        ids.push(sessions.create(None, new_session()).await.unwrap());
    }
    // The first session was closed, and using it opens it again.
    assert_eq!(sessions.view(&ids[0]).await.unwrap().head(), Seq(1));
    sessions.close().await;
}

#[tokio::test]
async fn runs_beyond_the_limit_are_refused_until_another_has_ended() {
    let mut test = TestSession::start().await;
    let last = test.sessions.create(None, new_session()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..MAX_ACTIVE_RUNS - 1 {
        let session = test.sessions.create(None, new_session()).await.unwrap();
        test.sessions.execute(&session, send_command("/wait 600", WhenBusy::Refuse)).await.unwrap();
        sessions.push(session);
    }
    let run = test.send("/wait 600").await;
    let refused = test.sessions.execute(&last, send_command("/say x", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(SessionRefusal::TooManyRuns { limit: MAX_ACTIVE_RUNS }));
    // A queued input takes over the slot of its session's active run.
    let queued =
        test.sessions.execute(&test.session, send_command("/say then", WhenBusy::Enqueue)).await.unwrap();
    let SessionReply::Queued { run: second, .. } = queued else { panic!("{queued:?}") };
    test.sessions
        .execute(&test.session, SessionCommand::Stop { run: Some(run.clone()), reason: None })
        .await
        .unwrap();
    test.end_of(&second).await;
    test.sessions.execute(&last, send_command("/say x", WhenBusy::Refuse)).await.unwrap();
    test.sessions.close().await;
}

#[tokio::test]
async fn a_watch_that_began_before_the_session_was_opened_gets_live_text() {
    let log = memory();
    let sessions = sessions_on(&log);
    let session = sessions.create(None, new_session()).await.unwrap();
    sessions.close().await;
    let sessions = sessions_on(&log);
    let watcher = sessions.watch(&session, Seq::START).await;
    let mut test = TestSession { sessions, session, watcher };
    test.send("/wait 60").await;
    // A piece of a message whose run has not ended, which only the live text has.
    let seen = test.until(|seen| !message_text(std::slice::from_ref(seen)).is_empty()).await;
    assert!(!message_text(&seen).is_empty());
    test.sessions.close().await;
}

#[tokio::test]
async fn runs_of_a_session_whose_folder_is_missing_fail_with_a_clear_error() {
    let mut test = TestSession::start().await;
    let folder = tempfile::tempdir().unwrap();
    let new_session = NewSession { folder: folder.path().to_owned(), ..new_session() };
    test.session = test.sessions.create(None, new_session).await.unwrap();
    test.watcher = test.sessions.watch(&test.session, Seq::START).await;
    drop(folder);
    let run = test.send("/say hi").await;
    let (_, ending) = test.end_of(&run).await;
    let RunEnding::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_eq!(failure.code.as_str(), "FOLDER_UNUSABLE");
    assert!(failure.message.starts_with("The working folder cannot be used"), "{}", failure.message);
}

#[tokio::test]
async fn a_collection_deletes_old_sessions_that_are_not_in_use() {
    let log = memory();
    let clock = Arc::new(ManualClock::default());
    let sessions = sessions_at(&log, &clock);
    let old = sessions.create(None, new_session()).await.unwrap();
    let held = sessions.create(None, new_session()).await.unwrap();
    sessions.release(&old).await.unwrap();
    sessions.release(&held).await.unwrap();
    let other = sessions_at(&log, &clock);
    other.view(&held).await.unwrap();
    clock.advance(RECENTLY_USED * 3);
    let new = sessions.create(None, new_session()).await.unwrap();

    let retention = Retention { max_age: Some(RECENTLY_USED * 2), max_bytes: None };
    let mut deleted = Vec::new();
    let dry = sessions.collect(retention, true, |session| deleted.push(session.clone())).await.unwrap();
    assert_eq!((dry.checked, dry.deleted, dry.in_use), (3, 1, 1));
    assert_eq!(
        deleted.iter().map(|session| (&session.id, session.reason)).collect::<Vec<_>>(),
        [(&old, DeletionReason::Age)]
    );
    assert_eq!(
        sessions.list(PageRequest::first(9)).await.unwrap().records.len(),
        3,
        "a dry run deletes nothing"
    );

    let done = sessions.collect(retention, false, |_| {}).await.unwrap();
    assert_eq!((done.deleted, done.in_use), (1, 1));
    let left: Vec<_> = sessions.list(PageRequest::first(9)).await.unwrap().records;
    assert_eq!(left.iter().map(|record| &record.id).collect::<Vec<_>>(), [&new, &held]);
}
