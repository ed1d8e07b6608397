//! Tests of commands to sessions and of the updates that follow.

use std::sync::Arc;

use crate::common::{TestSession, message_text, new_session, run_event, send_command, sessions_on};
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
    let mut test = TestSession::start().await;
    let run = test.send("/say one two three").await;
    let (seen, ended) = test.end_of(&run).await;
    assert!(matches!(ended, RunEnding::Completed { message: Some(_) }));
    assert_eq!(completed(&seen, &run), ["one two three"]);
    assert_eq!(message_text(&seen), "one two three");
    let sequences: Vec<u64> =
        seen.iter().filter_map(|seen| run_event(seen, &run)).map(|(_, n, _)| n).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());

    let session = test.sessions.view(&test.session).await.unwrap();
    let roles: Vec<Role> = session.messages().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant]);
    assert_eq!(session.active(), None);
    assert_eq!(
        session.title(),
        Some("/say one two three"),
        "without a title, the first input becomes the title"
    );
}

#[tokio::test]
async fn a_late_watcher_gets_the_same_events() {
    let mut test = TestSession::start().await;
    let run = test.send("/say one two three").await;
    let (live, _) = test.end_of(&run).await;
    test.watcher = test.sessions.watch(&test.session, Seq::START).await;
    let (late, _) = test.end_of(&run).await;
    let entries = |seen: &[SessionUpdate]| {
        seen.iter().filter(|seen| matches!(seen, SessionUpdate::Entry(_))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(entries(&live), entries(&late));
    assert_eq!(message_text(&live), message_text(&late));
}

#[tokio::test]
async fn a_stop_reaches_the_processes_of_a_tool() {
    let mut test = TestSession::start().await;
    let run = test.send("!echo pid=$$; exec sleep 300").await;
    let seen =
        test.until(|seen| matches!(seen, SessionUpdate::Delta { text, .. } if text.contains("pid="))).await;
    let Some(SessionUpdate::Delta { text, .. }) = seen.last() else { unreachable!("until() ends with it") };
    let pid: u32 = text.trim().trim_start_matches("pid=").parse().unwrap();
    let stop = SessionCommand::Stop { run: Some(run.clone()), reason: Some("  enough ".to_owned()) };
    assert_eq!(test.sessions.execute(&test.session, stop).await, Ok(SessionReply::Stopping(run.clone())));
    let (seen, ended) = test.end_of(&run).await;
    assert!(matches!(&ended, RunEnding::Stopped { cause, .. } if cause.reason() == "enough"), "{ended:?}");
    assert_eq!(completed(&seen, &run).last().unwrap(), "enough");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the process is gone before the run is");
    let again = test.sessions.execute(&test.session, SessionCommand::Stop { run: None, reason: None }).await;
    assert_eq!(again, Err(SessionRefusal::NoActiveRun));
}

#[tokio::test]
async fn inputs_to_a_busy_session_are_queued_steer_it_or_are_refused() {
    let mut test = TestSession::start().await;
    let first = test.send("/wait 60").await;
    let busy = test.sessions.execute(&test.session, send_command("/say no", WhenBusy::Refuse)).await;
    assert_eq!(busy, Err(SessionRefusal::Busy { active: first.clone() }));
    let queued =
        test.sessions.execute(&test.session, send_command("/say second", WhenBusy::Enqueue)).await.unwrap();
    let SessionReply::Queued { run: second, waiting: 1 } = queued else { panic!("{queued:?}") };
    let steered = test.sessions.execute(&test.session, send_command("left please", WhenBusy::Steer)).await;
    assert_eq!(steered, Ok(SessionReply::Steered(first.clone())));
    test.until(|seen| matches!(seen, SessionUpdate::Delta { text, .. } if text.contains("left please")))
        .await;
    let keyed = UserInput { text: "once".to_owned(), key: Some("k".to_owned()), ..UserInput::default() };
    let keyed = SessionCommand::Send { input: keyed, when_busy: WhenBusy::Steer };
    let steered = test.sessions.execute(&test.session, keyed.clone()).await;
    assert_eq!(steered, Ok(SessionReply::Steered(first.clone())));
    let head = test.sessions.view(&test.session).await.unwrap().head();
    let again = test.sessions.execute(&test.session, keyed).await;
    assert_eq!(again, Ok(SessionReply::Started(first.clone())), "a known key gives its run");
    assert_eq!(test.sessions.view(&test.session).await.unwrap().head(), head, "and records nothing");
    test.sessions.execute(&test.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let (_, ended) = test.end_of(&first).await;
    assert!(matches!(ended, RunEnding::Stopped { .. }));
    let (seen, _) = test.end_of(&second).await;
    assert_eq!(completed(&seen, &second), ["second"]);
}

#[tokio::test]
async fn an_idempotency_key_gives_its_first_run_also_after_a_restart() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let sessions = sessions_on(&log);
    let session = sessions.create(None, new_session()).await.unwrap();
    let input = UserInput { text: "/say hi".to_owned(), key: Some("k".to_owned()), ..UserInput::default() };
    let send = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
    let first = sessions.execute(&session, send.clone()).await.unwrap();
    assert_eq!(sessions.execute(&session, send.clone()).await.unwrap(), first);
    sessions.close().await;
    let head = sessions.record(&session).await.unwrap().head;

    let sessions = sessions_on(&log);
    assert_eq!(sessions.execute(&session, send).await.unwrap(), first);
    assert_eq!(sessions.record(&session).await.unwrap().head, head, "nothing was started");
}

#[tokio::test]
async fn closing_stops_runs_and_releases_sessions() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let sessions = sessions_on(&log);
    let session = sessions.create(None, new_session()).await.unwrap();
    sessions.execute(&session, send_command("/wait 60", WhenBusy::Refuse)).await.unwrap();
    let other = sessions_on(&log);
    let held = other.view(&session).await.unwrap_err();
    assert!(matches!(held, SessionRefusal::SessionHeld { .. }), "{held}");
    sessions.close().await;
    let session = other.view(&session).await.unwrap();
    assert_eq!(session.active(), None, "the run was stopped and is recorded as such");
}

#[tokio::test]
async fn unknown_sessions_and_agents_are_refused_by_name() {
    let sessions = sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock))));
    let unknown_session = SessionId::parse("nowhere").unwrap();
    assert_eq!(
        sessions.view(&unknown_session).await.unwrap_err(),
        SessionRefusal::UnknownSession(unknown_session)
    );
    let unknown_agent = AgentId::parse("nobody").unwrap();
    let choice = AgentChoice { agent: Some(unknown_agent.clone()), ..AgentChoice::default() };
    let refused =
        sessions.create(None, NewSession { choice: choice.clone(), ..new_session() }).await.unwrap_err();
    assert_eq!(refused, SessionRefusal::UnknownAgent(unknown_agent.clone()));
    let session = sessions.create(None, new_session()).await.unwrap();
    let input = UserInput { text: "x".to_owned(), choice, ..UserInput::default() };
    let sent = sessions.execute(&session, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await;
    assert_eq!(sent, Err(SessionRefusal::UnknownAgent(unknown_agent)));
    assert_eq!(
        sessions.create(Some(session.clone()), new_session()).await,
        Err(SessionRefusal::SessionExists(session))
    );
}
