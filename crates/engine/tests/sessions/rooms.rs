//! What can be done with whole sessions: copying, compacting, letting go, deleting; and how many
//! there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::{PATIENCE, Talk, birth, house_on, says, spoken};
use futures_util::FutureExt;
use parlor_engine::retention::{RECENT, Reason, Retention};
use parlor_engine::{House, MAX_ACTIVE_RUNS, MAX_OPEN_SESSIONS, Seen};
use parlor_log::{MemoryLog, PageRequest, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{
    Birth, Clock, Message, MessageId, Passage, Refusal, RunEnding, Seq, SessionCommand, SessionReply,
    Timestamp, WhenBusy,
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

fn house_at(log: &Arc<MemoryLog>, clock: &Arc<Hands>) -> House {
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
    let original = talk.house.view(&talk.session).await.unwrap();
    let second = original.messages().nth(1).unwrap().id.clone();
    let fork = talk.house.fork(None, &talk.session, Some(&second)).await.unwrap();
    let copy = talk.house.view(&fork).await.unwrap();
    assert_eq!(texts(copy.messages()), ["/say one", "one"]);
    let origin = copy.birth().unwrap().forked_from.clone().unwrap();
    assert_eq!((origin.session, origin.message), (talk.session.clone(), second));
    let ids = |session: &parlor_engine::session::Session| -> Vec<MessageId> {
        session.messages().map(|message| message.id.clone()).collect()
    };
    assert!(ids(&copy).iter().all(|id| !ids(&original).contains(id)), "ids are unique everywhere");

    let whole = talk.house.fork(None, &talk.session, None).await.unwrap();
    assert_eq!(texts(talk.house.view(&whole).await.unwrap().messages()), texts(original.messages()));
    talk.session = fork;
    talk.watcher = talk.house.watch(&talk.session, Seq::START).await;
    let run = talk.say("/say four").await;
    talk.end_of(&run).await;
    let head = talk.house.view(&talk.session).await.unwrap();
    assert_eq!(texts(head.messages()), ["/say one", "one", "/say four", "four"]);

    let nobody = MessageId::parse("msg_nobody").unwrap();
    let refused = talk.house.fork(None, &talk.session, Some(&nobody)).await;
    assert_eq!(refused, Err(Refusal::UnknownMessage(nobody)));
}

#[tokio::test]
async fn tool_uses_and_broken_runs_are_there_to_look_back_on() {
    let mut talk = talked().await;
    let run = talk.say("/fail no luck").await;
    talk.end_of(&run).await;
    let run = talk.say("/wait 60").await;
    talk.house.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    talk.end_of(&run).await;
    let session = talk.house.view(&talk.session).await.unwrap();
    let uses: Vec<_> = session
        .history()
        .iter()
        .filter_map(|passage| match passage {
            Passage::ToolUse(used) => Some((used.tool.as_str(), used.result.clone().unwrap().unwrap())),
            Passage::Message(_) | Passage::BrokenOff(_) => None,
        })
        .collect();
    assert_eq!(uses.len(), 1);
    assert!(uses[0].0 == "shell" && uses[0].1.contains("three"), "{uses:?}");
    let broken: Vec<_> = session
        .history()
        .iter()
        .filter_map(|passage| match passage {
            Passage::BrokenOff(ending) => Some(ending.clone()),
            Passage::Message(_) | Passage::ToolUse(_) => None,
        })
        .collect();
    assert!(matches!(&broken[..], [RunEnding::Failed(_), RunEnding::Stopped { .. }]), "{broken:?}");
    assert!(matches!(session.history().last(), Some(Passage::BrokenOff(_))));
}

#[tokio::test]
async fn compacting_puts_a_summary_in_the_place_of_older_messages() {
    let mut talk = talked().await;
    let empty = talk.house.create(None, birth()).await.unwrap();
    let refused = talk.house.ask(&empty, SessionCommand::Compact { keep: 0 }).await;
    assert!(matches!(refused, Err(Refusal::NotCompacted { .. })), "{refused:?}");

    let reply = talk.house.ask(&talk.session, SessionCommand::Compact { keep: 2 }).await.unwrap();
    let SessionReply::Compacted(summary) = reply else { panic!("{reply:?}") };
    assert!(summary.text.contains("User: /say one"), "{}", summary.text);
    let session = talk.house.view(&talk.session).await.unwrap();
    let messages = texts(session.messages());
    assert_eq!((messages.len(), messages[0], messages[1]), (3, summary.text.as_str(), "!echo three"));
    let run = talk.say("/say more").await;
    talk.end_of(&run).await;

    let again = talk.house.ask(&talk.session, SessionCommand::Compact { keep: 0 }).await.unwrap();
    assert!(matches!(again, SessionReply::Compacted(_)));
    assert_eq!(talk.house.view(&talk.session).await.unwrap().history().len(), 1);
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_a_busy_one_stays() {
    let mut talk = Talk::begin().await;
    let run = talk.say("/wait 60").await;
    let refused = talk.house.delete(&talk.session).await;
    assert_eq!(refused, Err(Refusal::Busy { active: run.clone() }));
    talk.house.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    talk.end_of(&run).await;
    talk.house.delete(&talk.session).await.unwrap();
    let gone = Refusal::UnknownSession(talk.session.clone());
    assert_eq!(talk.house.view(&talk.session).await.unwrap_err(), gone);
    assert_eq!(talk.house.delete(&talk.session).await, Err(gone));
    assert!(talk.house.list(PageRequest::first(10)).await.unwrap().records.is_empty());
    talk.house.create(Some(talk.session.clone()), birth()).await.unwrap();
}

#[tokio::test]
async fn a_session_with_a_process_in_the_background_is_not_let_go() {
    let mut talk = Talk::begin().await;
    let folder = tempfile::tempdir().unwrap();
    let call = r#"{ tool = "shell", args = { command = "exec sleep 300", background = true } }"#;
    let text = format!("otherwise.steps = [ {call} ]");
    let script = parlor_model::ScriptAgent::parse(&text, folder.path(), "Script").unwrap();
    talk.house = crate::common::house_with(&memory(), Arc::new(script));
    talk.session = talk.house.create(None, birth()).await.unwrap();
    talk.watcher = talk.house.watch(&talk.session, Seq::START).await;
    let run = talk.say("go").await;
    talk.end_of(&run).await;
    assert_eq!(talk.house.leave(&talk.session).await, Err(Refusal::BackgroundProcesses));
    talk.house.close().await;
}

#[tokio::test]
async fn who_is_let_go_can_be_opened_elsewhere() {
    let log = memory();
    let (house, other) = (house_on(&log), house_on(&log));
    let session = house.create(None, birth()).await.unwrap();
    assert!(matches!(other.view(&session).await, Err(Refusal::SessionHeld { .. })));
    house.leave(&session).await.unwrap();
    house.leave(&session).await.unwrap();
    other.view(&session).await.unwrap();
    assert!(matches!(house.view(&session).await, Err(Refusal::SessionHeld { .. })));
}

#[tokio::test]
async fn who_waits_for_a_session_sees_it_go_on_elsewhere() {
    let log = memory();
    let other = house_on(&log);
    let mut talk = Talk::begin().await;
    talk.house = house_on(&log);
    talk.session = talk.house.create(None, birth()).await.unwrap();
    talk.watcher = talk.house.watch(&talk.session, Seq::START).await;
    let run = talk.say("/say here").await;
    talk.end_of(&run).await;
    // It waits, all that was written here is seen, when others begin to write.
    let next = talk.watcher.next();
    tokio::pin!(next);
    assert!(next.as_mut().now_or_never().is_none());
    talk.house.leave(&talk.session).await.unwrap();
    other.ask(&talk.session, says("/say there", WhenBusy::Refuse)).await.unwrap();
    let seen = tokio::time::timeout(PATIENCE, next).await.expect("something to see").unwrap();
    assert!(matches!(seen, Seen::Entry(_)), "{seen:?}");
    other.close().await;
}

#[tokio::test]
async fn the_session_that_was_not_used_for_longest_makes_room() {
    let house = house_on(&memory());
    let mut sessions = Vec::new();
    for _ in 0..=MAX_OPEN_SESSIONS {
        sessions.push(house.create(None, birth()).await.unwrap());
    }
    // The first was let go, and is opened again when somebody needs it.
    assert_eq!(house.view(&sessions[0]).await.unwrap().head(), Seq(1));
    house.close().await;
}

#[tokio::test]
async fn beyond_the_limit_no_run_starts_until_another_has_ended() {
    let mut talk = Talk::begin().await;
    let last = talk.house.create(None, birth()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..MAX_ACTIVE_RUNS - 1 {
        let session = talk.house.create(None, birth()).await.unwrap();
        talk.house.ask(&session, says("/wait 600", WhenBusy::Refuse)).await.unwrap();
        sessions.push(session);
    }
    let run = talk.say("/wait 600").await;
    let refused = talk.house.ask(&last, says("/say x", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(Refusal::TooManyRuns { limit: MAX_ACTIVE_RUNS }));
    // What waits in a session that runs takes over the session's place.
    let queued = talk.house.ask(&talk.session, says("/say then", WhenBusy::Enqueue)).await.unwrap();
    let SessionReply::Queued { run: second, .. } = queued else { panic!("{queued:?}") };
    talk.house
        .ask(&talk.session, SessionCommand::Stop { run: Some(run.clone()), reason: None })
        .await
        .unwrap();
    talk.end_of(&second).await;
    talk.house.ask(&last, says("/say x", WhenBusy::Refuse)).await.unwrap();
    talk.house.close().await;
}

#[tokio::test]
async fn who_watched_before_the_session_was_opened_sees_it_live() {
    let log = memory();
    let house = house_on(&log);
    let session = house.create(None, birth()).await.unwrap();
    house.close().await;
    let house = house_on(&log);
    let watcher = house.watch(&session, Seq::START).await;
    let mut talk = Talk { house, session, watcher };
    talk.say("/wait 60").await;
    // A piece of a message whose run goes on: only a live text has it.
    let seen = talk.until(|seen| !spoken(std::slice::from_ref(seen)).is_empty()).await;
    assert!(!spoken(&seen).is_empty());
    talk.house.close().await;
}

#[tokio::test]
async fn a_session_whose_folder_is_gone_can_be_read_and_its_runs_fail_clearly() {
    let mut talk = Talk::begin().await;
    let folder = tempfile::tempdir().unwrap();
    let birth = Birth { folder: folder.path().to_owned(), ..birth() };
    talk.session = talk.house.create(None, birth).await.unwrap();
    talk.watcher = talk.house.watch(&talk.session, Seq::START).await;
    drop(folder);
    let run = talk.say("/say hi").await;
    let (_, ending) = talk.end_of(&run).await;
    let RunEnding::Failed(failure) = ending else { panic!("{ending:?}") };
    assert_eq!(failure.code, "FOLDER_UNUSABLE");
    assert!(failure.message.starts_with("The working folder cannot be used"), "{}", failure.message);
}

#[tokio::test]
async fn a_collection_deletes_what_is_old_and_nobody_uses() {
    let log = memory();
    let clock = Arc::new(Hands::default());
    let house = house_at(&log, &clock);
    let old = house.create(None, birth()).await.unwrap();
    let held = house.create(None, birth()).await.unwrap();
    house.leave(&old).await.unwrap();
    house.leave(&held).await.unwrap();
    let other = house_at(&log, &clock);
    other.view(&held).await.unwrap();
    clock.advance(RECENT * 3);
    let new = house.create(None, birth()).await.unwrap();

    let retention = Retention { max_age: Some(RECENT * 2), max_bytes: None };
    let mut told = Vec::new();
    let dry = house.collect(retention, true, |deleted| told.push(deleted.clone())).await.unwrap();
    assert_eq!((dry.looked_at, dry.deleted, dry.in_use), (3, 1, 1));
    assert_eq!(
        told.iter().map(|deleted| (&deleted.id, deleted.reason)).collect::<Vec<_>>(),
        [(&old, Reason::Age)]
    );
    assert_eq!(house.list(PageRequest::first(9)).await.unwrap().records.len(), 3, "nothing was done");

    let done = house.collect(retention, false, |_| {}).await.unwrap();
    assert_eq!((done.deleted, done.in_use), (1, 1));
    let left: Vec<_> = house.list(PageRequest::first(9)).await.unwrap().records;
    assert_eq!(left.iter().map(|record| &record.id).collect::<Vec<_>>(), [&new, &held]);
}
