//! What is said to a session, and what comes back.

use std::sync::Arc;

use crate::common::{Talk, new_session, run_event, says, sessions_on, spoken};
use parlor_engine::SessionUpdate;
use parlor_log::{MemoryLog, SystemClock};
use parlor_vocab::{
    AgentChoice, AgentId, MessageEvent, NewSession, Role, RunEnding, RunEvent, RunId, Seq, SessionCommand,
    SessionId, SessionRefusal, SessionReply, UserInput, WhenBusy,
};

fn completed(seen: &[SessionUpdate], run: &RunId) -> Vec<String> {
    let events = seen.iter().filter_map(|seen| run_event(seen, run));
    events
        .filter_map(|(_, _, event)| {
            if let RunEvent::Message(MessageEvent::Completed { text, .. }) = event {
                Some(text.clone())
            } else {
                None
            }
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

    let session = talk.sessions.view(&talk.session).await.unwrap();
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
    talk.watcher = talk.sessions.watch(&talk.session, Seq::START).await;
    let (late, _) = talk.end_of(&run).await;
    let entries = |seen: &[SessionUpdate]| {
        seen.iter().filter(|seen| matches!(seen, SessionUpdate::Entry(_))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(entries(&live), entries(&late));
    assert_eq!(spoken(&live), spoken(&late));
}

#[tokio::test]
async fn a_stop_reaches_the_processes_of_a_tool() {
    let mut talk = Talk::begin().await;
    let run = talk.say("!echo pid=$$; exec sleep 300").await;
    let seen =
        talk.until(|seen| matches!(seen, SessionUpdate::Delta { text, .. } if text.contains("pid="))).await;
    let Some(SessionUpdate::Delta { text, .. }) = seen.last() else { unreachable!("just looked for") };
    let pid: u32 = text.trim().trim_start_matches("pid=").parse().unwrap();
    let stop = SessionCommand::Stop { run: Some(run.clone()), reason: Some("  enough ".to_owned()) };
    assert_eq!(talk.sessions.ask(&talk.session, stop).await, Ok(SessionReply::Stopping(run.clone())));
    let (seen, ended) = talk.end_of(&run).await;
    assert!(matches!(&ended, RunEnding::Stopped { cause, .. } if cause.reason() == "enough"), "{ended:?}");
    assert_eq!(completed(&seen, &run).last().unwrap(), "enough");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the process is gone before the run is");
    let again = talk.sessions.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await;
    assert_eq!(again, Err(SessionRefusal::NoActiveRun));
}

#[tokio::test]
async fn inputs_wait_join_or_are_turned_down() {
    let mut talk = Talk::begin().await;
    let first = talk.say("/wait 60").await;
    let busy = talk.sessions.ask(&talk.session, says("/say no", WhenBusy::Refuse)).await;
    assert_eq!(busy, Err(SessionRefusal::Busy { active: first.clone() }));
    let queued = talk.sessions.ask(&talk.session, says("/say second", WhenBusy::Enqueue)).await.unwrap();
    let SessionReply::Queued { run: second, waiting: 1 } = queued else { panic!("{queued:?}") };
    let steered = talk.sessions.ask(&talk.session, says("left please", WhenBusy::Steer)).await;
    assert_eq!(steered, Ok(SessionReply::Steered(first.clone())));
    talk.until(|seen| matches!(seen, SessionUpdate::Delta { text, .. } if text.contains("left please")))
        .await;
    let keyed = UserInput { text: "once".to_owned(), key: Some("k".to_owned()), ..UserInput::default() };
    let keyed = SessionCommand::Send { input: keyed, when_busy: WhenBusy::Steer };
    let steered = talk.sessions.ask(&talk.session, keyed.clone()).await;
    assert_eq!(steered, Ok(SessionReply::Steered(first.clone())));
    let head = talk.sessions.view(&talk.session).await.unwrap().head();
    let again = talk.sessions.ask(&talk.session, keyed).await;
    assert_eq!(again, Ok(SessionReply::Started(first.clone())), "a known key gives its run");
    assert_eq!(talk.sessions.view(&talk.session).await.unwrap().head(), head, "and says nothing twice");
    talk.sessions.ask(&talk.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let (_, ended) = talk.end_of(&first).await;
    assert!(matches!(ended, RunEnding::Stopped { .. }));
    let (seen, _) = talk.end_of(&second).await;
    assert_eq!(completed(&seen, &second), ["second"]);
}

#[tokio::test]
async fn a_key_gives_the_run_it_started_first_also_after_a_restart() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let sessions = sessions_on(&log);
    let session = sessions.create(None, new_session()).await.unwrap();
    let input = UserInput { text: "/say hi".to_owned(), key: Some("k".to_owned()), ..UserInput::default() };
    let send = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
    let first = sessions.ask(&session, send.clone()).await.unwrap();
    assert_eq!(sessions.ask(&session, send.clone()).await.unwrap(), first);
    sessions.close().await;
    let head = sessions.record(&session).await.unwrap().head;

    let sessions = sessions_on(&log);
    assert_eq!(sessions.ask(&session, send).await.unwrap(), first);
    assert_eq!(sessions.record(&session).await.unwrap().head, head, "nothing was started");
}

#[tokio::test]
async fn closing_ends_runs_and_lets_sessions_go() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let sessions = sessions_on(&log);
    let session = sessions.create(None, new_session()).await.unwrap();
    sessions.ask(&session, says("/wait 60", WhenBusy::Refuse)).await.unwrap();
    let other = sessions_on(&log);
    let held = other.view(&session).await.unwrap_err();
    assert!(matches!(held, SessionRefusal::SessionHeld { .. }), "{held}");
    sessions.close().await;
    let session = other.view(&session).await.unwrap();
    assert_eq!(session.active(), None, "the run was stopped and is recorded as such");
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_name() {
    let sessions = sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock))));
    let nowhere = SessionId::parse("nowhere").unwrap();
    assert_eq!(sessions.view(&nowhere).await.unwrap_err(), SessionRefusal::UnknownSession(nowhere));
    let nobody = AgentId::parse("nobody").unwrap();
    let choice = AgentChoice { agent: Some(nobody.clone()), ..AgentChoice::default() };
    let refused =
        sessions.create(None, NewSession { choice: choice.clone(), ..new_session() }).await.unwrap_err();
    assert_eq!(refused, SessionRefusal::UnknownAgent(nobody.clone()));
    let session = sessions.create(None, new_session()).await.unwrap();
    let input = UserInput { text: "x".to_owned(), choice, ..UserInput::default() };
    let sent = sessions.ask(&session, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await;
    assert_eq!(sent, Err(SessionRefusal::UnknownAgent(nobody)));
    assert_eq!(
        sessions.create(Some(session.clone()), new_session()).await,
        Err(SessionRefusal::SessionExists(session))
    );
}
