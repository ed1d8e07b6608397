//! What can be done with whole sessions: copying, compacting, letting go, deleting; and how many
//! there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::{PATIENCE, Talk, new_session, says, sessions_on, spoken};
use futures_util::FutureExt;
use parlor_engine::retention::{RECENT, Reason, Retention};
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

/// A clock that goes on when it is told to.
#[derive(Default)]
struct Hands(AtomicI64);

impl Hands {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

fn house_at(log: &Arc<MemoryLog>, clock: &Arc<Hands>) -> Sessions {
    crate::common::house_of(log, Arc::new(LocalAgent::default()), Arc::clone(clock) as _)
}

async fn talked() -> Talk {
    let mut talk = Talk::begin().await;
    for text in ["/say one", "/say two", "!echo three"] {
        let run = talk.say(text).await;
        talk.end_of(&run).await;
    }
    talk
}

#[tokio::test]
async fn a_fork_begins_with_the_messages_up_to_the_one_that_is_named() {
    let mut talk = talked().await;
    let original = talk.sessions.view(&talk.session).await.unwrap();
    let second = original.messages().nth(1).unwrap().id.clone();
    let fork = talk.sessions.fork(None, &talk.session, Some(&second)).await.unwrap();
    let copy = talk.sessions.view(&fork).await.unwrap();
    assert_eq!(texts(copy.messages()), ["/say one", "one"]);
    let origin = copy.new_session().unwrap().forked_from.clone().unwrap();
    assert_eq!((origin.session, origin.message), (talk.session.clone(), second));
    let ids = |session: &parlor_engine::session::Session| -> Vec<MessageId> {
        session.messages().map(|message| message.id.clone()).collect()
    };
    assert!(ids(&copy).iter().all(|id| !ids(&original).contains(id)), "ids are unique everywhere");

    let whole = talk.sessions.fork(None, &talk.session, None).await.unwrap();
    assert_eq!(texts(talk.sessions.view(&whole).await.unwrap().messages()), texts(original.messages()));
    talk.session = fork;
    talk.watcher = talk.sessions.watch(&talk.session, Seq::START).await;
    let run = talk.say("/say four").await;
    talk.end_of(&run).await;
    let head = talk.sessions.view(&talk.session).await.unwrap();
    assert_eq!(texts(head.messages()), ["/say one", "one", "/say four", "four"]);

    let nobody = MessageId::parse("msg_nobody").unwrap();
    let refused = talk.sessions.fork(None, &talk.session, Some(&nobody)).await;
    assert_eq!(refused, Err(SessionRefusal::UnknownMessage(nobody)));
}

#[tokio::test]
async fn tool_uses_and_broken_runs_are_there_to_look_back_on() {
    let mut talk = talked().await;
    let run = talk.say("/fail no luck").await;
    talk.end_of(&run).await;
    let run = talk.say("/wait 60").await;
    talk.sessions.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    talk.end_of(&run).await;
    let session = talk.sessions.view(&talk.session).await.unwrap();
    let uses: Vec<_> = session
        .history()
        .iter()
        .filter_map(|item| match item {
            HistoryItem::ToolUse(used) => Some((used.tool.as_str(), used.result.clone().unwrap().unwrap())),
            HistoryItem::Message(_) | HistoryItem::BrokenOff(_) => None,
        })
        .collect();
    assert_eq!(uses.len(), 1);
    assert!(uses[0].0 == "shell" && uses[0].1.contains("three"), "{uses:?}");
    let broken: Vec<_> = session
        .history()
        .iter()
        .filter_map(|item| match item {
            HistoryItem::BrokenOff(ending) => Some(ending.clone()),
            HistoryItem::Message(_) | HistoryItem::ToolUse(_) => None,
        })
        .collect();
    assert!(matches!(&broken[..], [RunEnding::Failed(_), RunEnding::Stopped { .. }]), "{broken:?}");
    assert!(matches!(session.history().last(), Some(HistoryItem::BrokenOff(_))));
}

#[tokio::test]
async fn compacting_puts_a_summary_in_the_place_of_older_messages() {
    let mut talk = talked().await;
    let empty = talk.sessions.create(None, new_session()).await.unwrap();
    let refused = talk.sessions.ask(&empty, SessionCommand::Compact { keep: 0 }).await;
    assert!(matches!(refused, Err(SessionRefusal::NotCompacted { .. })), "{refused:?}");

    let reply = talk.sessions.ask(&talk.session, SessionCommand::Compact { keep: 2 }).await.unwrap();
    let SessionReply::Compacted(summary) = reply else { panic!("{reply:?}") };
    assert!(summary.text.contains("User: /say one"), "{}", summary.text);
    let session = talk.sessions.view(&talk.session).await.unwrap();
    let messages = texts(session.messages());
    assert_eq!((messages.len(), messages[0], messages[1]), (3, summary.text.as_str(), "!echo three"));
    let run = talk.say("/say more").await;
    talk.end_of(&run).await;

    let again = talk.sessions.ask(&talk.session, SessionCommand::Compact { keep: 0 }).await.unwrap();
    assert!(matches!(again, SessionReply::Compacted(_)));
    assert_eq!(talk.sessions.view(&talk.session).await.unwrap().history().len(), 1);
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_a_busy_one_stays() {
    let mut talk = Talk::begin().await;
    let run = talk.say("/wait 60").await;
    let refused = talk.sessions.delete(&talk.session).await;
    assert_eq!(refused, Err(SessionRefusal::Busy { active: run.clone() }));
    talk.sessions.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    talk.end_of(&run).await;
    talk.sessions.delete(&talk.session).await.unwrap();
    let gone = SessionRefusal::UnknownSession(talk.session.clone());
    assert_eq!(talk.sessions.view(&talk.session).await.unwrap_err(), gone);
    assert_eq!(talk.sessions.delete(&talk.session).await, Err(gone));
    assert!(talk.sessions.list(PageRequest::first(10)).await.unwrap().records.is_empty());
    talk.sessions.create(Some(talk.session.clone()), new_session()).await.unwrap();
}

#[tokio::test]
async fn a_session_with_a_process_in_the_background_is_not_let_go() {
    let mut talk = Talk::begin().await;
    let folder = tempfile::tempdir().unwrap();
    let call = r#"{ tool = "shell", args = { command = "exec sleep 300", background = true } }"#;
    let text = format!("otherwise.steps = [ {call} ]");
    let script = parlor_model::ScriptAgent::parse(&text, folder.path(), "Script").unwrap();
    talk.sessions = crate::common::house_with(&memory(), Arc::new(script));
    talk.session = talk.sessions.create(None, new_session()).await.unwrap();
    talk.watcher = talk.sessions.watch(&talk.session, Seq::START).await;
    let run = talk.say("go").await;
    talk.end_of(&run).await;
    assert_eq!(talk.sessions.leave(&talk.session).await, Err(SessionRefusal::BackgroundProcesses));
    talk.sessions.close().await;
}

#[tokio::test]
async fn who_is_let_go_can_be_opened_elsewhere() {
    let log = memory();
    let (sessions, other) = (sessions_on(&log), sessions_on(&log));
    let session = sessions.create(None, new_session()).await.unwrap();
    assert!(matches!(other.view(&session).await, Err(SessionRefusal::SessionHeld { .. })));
    sessions.leave(&session).await.unwrap();
    sessions.leave(&session).await.unwrap();
    other.view(&session).await.unwrap();
    assert!(matches!(sessions.view(&session).await, Err(SessionRefusal::SessionHeld { .. })));
}

#[tokio::test]
async fn who_waits_for_a_session_sees_it_go_on_elsewhere() {
    let log = memory();
    let other = sessions_on(&log);
    let mut talk = Talk::begin().await;
    talk.sessions = sessions_on(&log);
    talk.session = talk.sessions.create(None, new_session()).await.unwrap();
    talk.watcher = talk.sessions.watch(&talk.session, Seq::START).await;
    let run = talk.say("/say here").await;
    talk.end_of(&run).await;
    // It waits, all that was written here is seen, when others begin to write.
    let next = talk.watcher.next();
    tokio::pin!(next);
    assert!(next.as_mut().now_or_never().is_none());
    talk.sessions.leave(&talk.session).await.unwrap();
    other.ask(&talk.session, says("/say there", WhenBusy::Refuse)).await.unwrap();
    let seen = tokio::time::timeout(PATIENCE, next).await.expect("something to see").unwrap();
    assert!(matches!(seen, SessionUpdate::Entry(_)), "{seen:?}");
    other.close().await;
}

#[tokio::test]
async fn the_session_that_was_not_used_for_longest_makes_room() {
    let sessions = sessions_on(&memory());
    let mut ids = Vec::new();
    for _ in 0..=MAX_OPEN_SESSIONS {
        ids.push(sessions.create(None, new_session()).await.unwrap());
    }
    // The first was let go, and is opened again when somebody needs it.
    assert_eq!(sessions.view(&ids[0]).await.unwrap().head(), Seq(1));
    sessions.close().await;
}

#[tokio::test]
async fn beyond_the_limit_no_run_starts_until_another_has_ended() {
    let mut talk = Talk::begin().await;
    let last = talk.sessions.create(None, new_session()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..MAX_ACTIVE_RUNS - 1 {
        let session = talk.sessions.create(None, new_session()).await.unwrap();
        talk.sessions.ask(&session, says("/wait 600", WhenBusy::Refuse)).await.unwrap();
        sessions.push(session);
    }
    let run = talk.say("/wait 600").await;
    let refused = talk.sessions.ask(&last, says("/say x", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(SessionRefusal::TooManyRuns { limit: MAX_ACTIVE_RUNS }));
    // What waits in a session that runs takes over the session's place.
    let queued = talk.sessions.ask(&talk.session, says("/say then", WhenBusy::Enqueue)).await.unwrap();
    let SessionReply::Queued { run: second, .. } = queued else { panic!("{queued:?}") };
    talk.sessions
        .ask(&talk.session, SessionCommand::Stop { run: Some(run.clone()), reason: None })
        .await
        .unwrap();
    talk.end_of(&second).await;
    talk.sessions.ask(&last, says("/say x", WhenBusy::Refuse)).await.unwrap();
    talk.sessions.close().await;
}

#[tokio::test]
async fn who_watched_before_the_session_was_opened_sees_it_live() {
    let log = memory();
    let sessions = sessions_on(&log);
    let session = sessions.create(None, new_session()).await.unwrap();
    sessions.close().await;
    let sessions = sessions_on(&log);
    let watcher = sessions.watch(&session, Seq::START).await;
    let mut talk = Talk { sessions, session, watcher };
    talk.say("/wait 60").await;
    // A piece of a message whose run goes on: only a live text has it.
    let seen = talk.until(|seen| !spoken(std::slice::from_ref(seen)).is_empty()).await;
    assert!(!spoken(&seen).is_empty());
    talk.sessions.close().await;
}

#[tokio::test]
async fn a_session_whose_folder_is_gone_can_be_read_and_its_runs_fail_clearly() {
    let mut talk = Talk::begin().await;
    let folder = tempfile::tempdir().unwrap();
    let new_session = NewSession { folder: folder.path().to_owned(), ..new_session() };
    talk.session = talk.sessions.create(None, new_session).await.unwrap();
    talk.watcher = talk.sessions.watch(&talk.session, Seq::START).await;
    drop(folder);
    let run = talk.say("/say hi").await;
    let (_, ending) = talk.end_of(&run).await;
    let RunEnding::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_eq!(failure.code.as_str(), "FOLDER_UNUSABLE");
    assert!(failure.message.starts_with("The working folder cannot be used"), "{}", failure.message);
}

#[tokio::test]
async fn a_collection_deletes_what_is_old_and_nobody_uses() {
    let log = memory();
    let clock = Arc::new(Hands::default());
    let sessions = house_at(&log, &clock);
    let old = sessions.create(None, new_session()).await.unwrap();
    let held = sessions.create(None, new_session()).await.unwrap();
    sessions.leave(&old).await.unwrap();
    sessions.leave(&held).await.unwrap();
    let other = house_at(&log, &clock);
    other.view(&held).await.unwrap();
    clock.advance(RECENT * 3);
    let new = sessions.create(None, new_session()).await.unwrap();

    let retention = Retention { max_age: Some(RECENT * 2), max_bytes: None };
    let mut told = Vec::new();
    let dry = sessions.collect(retention, true, |deleted| told.push(deleted.clone())).await.unwrap();
    assert_eq!((dry.looked_at, dry.deleted, dry.in_use), (3, 1, 1));
    assert_eq!(
        told.iter().map(|deleted| (&deleted.id, deleted.reason)).collect::<Vec<_>>(),
        [(&old, Reason::Age)]
    );
    assert_eq!(sessions.list(PageRequest::first(9)).await.unwrap().records.len(), 3, "nothing was done");

    let done = sessions.collect(retention, false, |_| {}).await.unwrap();
    assert_eq!((done.deleted, done.in_use), (1, 1));
    let left: Vec<_> = sessions.list(PageRequest::first(9)).await.unwrap().records;
    assert_eq!(left.iter().map(|record| &record.id).collect::<Vec<_>>(), [&new, &held]);
}
