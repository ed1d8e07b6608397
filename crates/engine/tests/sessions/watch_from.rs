//! Tests of where a watch begins: now, after an event, or before the session exists.

use std::sync::Arc;

use parlor_engine::{OnDisconnect, SessionClient, Sessions};
use parlor_log::{MemoryLog, SystemClock};
use parlor_vocab::{
    Backend, Entry, EventId, MessageEvent, RegistryReply, RegistryRequest, RunEvent, Seq, SessionCommand,
    SessionEvent, SessionId, SessionUpdate, Ticket, Update, WatchFrom, WhenBusy,
};

use crate::common::{TIMEOUT, new_session, send_command, sessions_on};

fn sessions() -> Arc<Sessions> {
    Arc::new(sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock)))))
}

fn id() -> SessionId {
    SessionId::parse("watched").unwrap()
}

/// A client that watches the session, with the `seen` and `head` positions of the reply.
async fn watching(sessions: &Arc<Sessions>, after: WatchFrom) -> (SessionClient, Seq, Seq) {
    let mut client = SessionClient::new(Arc::clone(sessions), OnDisconnect::Keep);
    client.submit(Ticket(0), RegistryRequest::Watch { session: id(), after, deltas: true });
    match tokio::time::timeout(TIMEOUT, client.next()).await.expect("an update") {
        Some(Update::Answer(Ticket(0), Ok(RegistryReply::Watching { seen, head }))) => (client, seen, head),
        other => panic!("{other:?}"),
    }
}

async fn entry(client: &mut SessionClient) -> Arc<Entry> {
    loop {
        match tokio::time::timeout(TIMEOUT, client.next()).await.expect("an update") {
            Some(Update::Event(event)) => {
                if let SessionUpdate::Entry(entry) = event.update {
                    return entry;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The next events, up to the end of a run.
async fn entries_to_run_end(client: &mut SessionClient) -> Vec<Arc<Entry>> {
    let mut entries = vec![entry(client).await];
    while !matches!(entries.last().unwrap().event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }) {
        entries.push(entry(client).await);
    }
    entries
}

/// Creates the session, completes a first run, and starts a second with `text`.
async fn start_second_run(sessions: &Arc<Sessions>, text: &str) {
    let session = sessions.create(Some(id()), new_session()).await.unwrap();
    sessions.execute(&session, send_command("/say first", WhenBusy::Refuse)).await.unwrap();
    let mut watcher = sessions.watch(&session, Seq::START).await;
    let is_end = |seen: &SessionUpdate| matches!(seen, SessionUpdate::Entry(entry) if matches!(entry.event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }));
    while !is_end(&watcher.next().await.unwrap()) {}
    sessions.execute(&session, send_command(text, WhenBusy::Refuse)).await.unwrap();
    let is_message = |seen: &SessionUpdate| matches!(seen, SessionUpdate::Entry(entry) if matches!(entry.event, SessionEvent::Run { event: RunEvent::Message(MessageEvent::Started { .. }), .. }));
    while !is_message(&watcher.next().await.unwrap()) {}
}

#[tokio::test]
async fn a_watch_that_begins_during_a_run_gets_the_run_from_its_start() {
    let sessions = sessions();
    start_second_run(&sessions, "/wait 600").await;
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Now).await;
    assert_eq!(seen, head);
    let first = entry(&mut client).await;
    assert!(matches!(first.event, SessionEvent::Run { sequence: 1, event: RunEvent::Started { .. }, .. }));
    assert!(first.seq < seen);
    sessions.execute(&id(), SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let rest = entries_to_run_end(&mut client).await;
    assert!(rest.iter().any(|entry| entry.seq > seen) && rest[0].seq.0 == first.seq.0 + 1);
    // After the run has ended, a new watch gets only new events.
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Now).await;
    assert_eq!(seen, head);
    sessions.execute(&id(), send_command("/say more", WhenBusy::Refuse)).await.unwrap();
    assert_eq!(entry(&mut client).await.seq.0, head.0 + 1);
}

#[tokio::test]
async fn a_watch_after_an_event_gets_the_whole_run_of_that_event() {
    let sessions = sessions();
    start_second_run(&sessions, "/say second").await;
    let (mut client, ..) = watching(&sessions, WatchFrom::At(Seq::START)).await;
    let (first, second) = (entries_to_run_end(&mut client).await, entries_to_run_end(&mut client).await);
    let middle = &second[second.len() / 2];
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Event(middle.id.clone())).await;
    assert_eq!((seen, head), (middle.seq, second.last().unwrap().seq));
    assert_eq!(entries_to_run_end(&mut client).await, second, "the whole run");
    // After an event that ended a run, the watch begins with the next event.
    let (mut client, seen, _) = watching(&sessions, WatchFrom::Event(first.last().unwrap().id.clone())).await;
    assert_eq!(seen, first.last().unwrap().seq);
    assert_eq!(entries_to_run_end(&mut client).await, second);
    let unknown = EventId::parse("evt_of_somebody_else").unwrap();
    let (mut client, seen, _) = watching(&sessions, WatchFrom::Event(unknown)).await;
    assert_eq!((seen, entry(&mut client).await.seq), (Seq::START, Seq(1)));
}

#[tokio::test]
async fn a_watch_waits_for_a_session_and_continues_when_it_is_created_again() {
    let sessions = sessions();
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Now).await;
    assert_eq!((seen, head), (Seq::START, Seq::START));
    for _ in 0..2 {
        sessions.create(Some(id()), new_session()).await.unwrap();
        let created = entry(&mut client).await;
        assert!(matches!((created.seq, &created.event), (Seq(1), SessionEvent::Created(_))), "{created:?}");
        sessions.release(&id()).await.unwrap();
        sessions.delete(&id()).await.unwrap();
    }
}
