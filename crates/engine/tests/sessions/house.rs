//! What is said to a session, and what comes back.

use std::sync::Arc;

use crate::common::{Talk, birth, house_on, run_event, says, spoken};
use parlor_engine::Seen;
use parlor_log::{MemoryLog, SystemClock};
use parlor_vocab::{
    AgentId, Birth, Choice, Input, Refusal, Role, RunEnding, RunEvent, RunId, Seq, SessionCommand, SessionId,
    SessionReply, WhenBusy,
};

fn completed(seen: &[Seen], run: &RunId) -> Vec<String> {
    let events = seen.iter().filter_map(|seen| run_event(seen, run));
    events
        .filter_map(|(_, _, event)| {
            if let RunEvent::MessageCompleted { text, .. } = event { Some(text.clone()) } else { None }
        })
        .collect()
}

#[tokio::test]
async fn an_answer_is_its_deltas_and_a_run_counts_its_events() {
    let mut talk = Talk::begin().await;
    let run = talk.say("/say one two three").await;
    let (seen, ended) = talk.end_of(&run).await;
    assert!(matches!(ended, RunEnding::Completed { message: Some(_) }));
    assert_eq!(completed(&seen, &run), ["one two three"]);
    assert_eq!(spoken(&seen), "one two three");
    let sequences: Vec<u64> =
        seen.iter().filter_map(|seen| run_event(seen, &run)).map(|(_, n, _)| n).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());

    let session = talk.house.view(&talk.session).await.unwrap();
    let roles: Vec<Role> = session.messages().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant]);
    assert_eq!(session.active(), None);
    assert_eq!(session.title(), Some("/say one two three"), "nobody named it, so its first words do");
}

#[tokio::test]
async fn who_watches_late_sees_the_same() {
    let mut talk = Talk::begin().await;
    let run = talk.say("/say one two three").await;
    let (live, _) = talk.end_of(&run).await;
    talk.watcher = talk.house.watch(&talk.session, Seq::START).await;
    let (late, _) = talk.end_of(&run).await;
    let entries = |seen: &[Seen]| {
        seen.iter().filter(|seen| matches!(seen, Seen::Entry(_))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(entries(&live), entries(&late));
    assert_eq!(spoken(&live), spoken(&late));
}

#[tokio::test]
async fn a_stop_reaches_the_processes_of_a_tool() {
    let mut talk = Talk::begin().await;
    let run = talk.say("!echo pid=$$; exec sleep 300").await;
    let seen = talk.until(|seen| matches!(seen, Seen::Delta { text, .. } if text.contains("pid="))).await;
    let Some(Seen::Delta { text, .. }) = seen.last() else { unreachable!("just looked for") };
    let pid: u32 = text.trim().trim_start_matches("pid=").parse().unwrap();
    let stop = SessionCommand::Stop { run: Some(run.clone()), reason: Some("  enough ".to_owned()) };
    assert_eq!(talk.house.ask(&talk.session, stop).await, Ok(SessionReply::Stopping(run.clone())));
    let (seen, ended) = talk.end_of(&run).await;
    assert!(matches!(&ended, RunEnding::Stopped { reason, .. } if reason == "enough"), "{ended:?}");
    assert_eq!(completed(&seen, &run).last().unwrap(), "enough");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the process is gone before the run is");
    let again = talk.house.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await;
    assert_eq!(again, Err(Refusal::NoActiveRun));
}

#[tokio::test]
async fn inputs_wait_join_or_are_turned_down() {
    let mut talk = Talk::begin().await;
    let first = talk.say("/wait 60").await;
    let busy = talk.house.ask(&talk.session, says("/say no", WhenBusy::Refuse)).await;
    assert_eq!(busy, Err(Refusal::Busy { active: first.clone() }));
    let queued = talk.house.ask(&talk.session, says("/say second", WhenBusy::Enqueue)).await.unwrap();
    let SessionReply::Queued { run: second, waiting: 1 } = queued else { panic!("{queued:?}") };
    let steered = talk.house.ask(&talk.session, says("left please", WhenBusy::Steer)).await;
    assert_eq!(steered, Ok(SessionReply::Steered(first.clone())));
    talk.until(|seen| matches!(seen, Seen::Delta { text, .. } if text.contains("left please"))).await;
    let keyed = Input { text: "once".to_owned(), key: Some("k".to_owned()), ..Input::default() };
    let keyed = SessionCommand::Send { input: keyed, when_busy: WhenBusy::Steer };
    let steered = talk.house.ask(&talk.session, keyed.clone()).await;
    assert_eq!(steered, Ok(SessionReply::Steered(first.clone())));
    let head = talk.house.view(&talk.session).await.unwrap().head();
    let again = talk.house.ask(&talk.session, keyed).await;
    assert_eq!(again, Ok(SessionReply::Started(first.clone())), "a known key gives its run");
    assert_eq!(talk.house.view(&talk.session).await.unwrap().head(), head, "and says nothing twice");
    talk.house.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let (_, ended) = talk.end_of(&first).await;
    assert!(matches!(ended, RunEnding::Stopped { .. }));
    let (seen, _) = talk.end_of(&second).await;
    assert_eq!(completed(&seen, &second), ["second"]);
}

#[tokio::test]
async fn a_key_gives_the_run_it_started_first_also_after_a_restart() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let house = house_on(&log);
    let session = house.create(None, birth()).await.unwrap();
    let input = Input { text: "/say hi".to_owned(), key: Some("k".to_owned()), ..Input::default() };
    let send = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
    let first = house.ask(&session, send.clone()).await.unwrap();
    assert_eq!(house.ask(&session, send.clone()).await.unwrap(), first);
    house.close().await;
    let head = house.record(&session).await.unwrap().head;

    let house = house_on(&log);
    assert_eq!(house.ask(&session, send).await.unwrap(), first);
    assert_eq!(house.record(&session).await.unwrap().head, head, "nothing was started");
}

#[tokio::test]
async fn closing_ends_runs_and_lets_sessions_go() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let house = house_on(&log);
    let session = house.create(None, birth()).await.unwrap();
    house.ask(&session, says("/wait 60", WhenBusy::Refuse)).await.unwrap();
    let other = house_on(&log);
    let held = other.view(&session).await.unwrap_err();
    assert!(matches!(held, Refusal::SessionHeld { .. }), "{held}");
    house.close().await;
    let session = other.view(&session).await.unwrap();
    assert_eq!(session.active(), None, "the run was stopped and is recorded as such");
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_name() {
    let house = house_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock))));
    let nowhere = SessionId::parse("nowhere").unwrap();
    assert_eq!(house.view(&nowhere).await.unwrap_err(), Refusal::UnknownSession(nowhere));
    let nobody = AgentId::parse("nobody").unwrap();
    let choice = Choice { agent: Some(nobody.clone()), ..Choice::default() };
    let refused = house.create(None, Birth { choice: choice.clone(), ..birth() }).await.unwrap_err();
    assert_eq!(refused, Refusal::UnknownAgent(nobody.clone()));
    let session = house.create(None, birth()).await.unwrap();
    let input = Input { text: "x".to_owned(), choice, ..Input::default() };
    let sent = house.ask(&session, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await;
    assert_eq!(sent, Err(Refusal::UnknownAgent(nobody)));
    assert_eq!(house.create(Some(session.clone()), birth()).await, Err(Refusal::SessionExists(session)));
}
