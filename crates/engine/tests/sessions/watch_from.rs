//! Where a watch begins: now, after an event, or before there is anything to watch.

use std::sync::Arc;

use parlor_engine::{OnDisconnect, SessionClient, Sessions};
use parlor_log::{MemoryLog, SystemClock};
use parlor_vocab::{
    Backend, Entry, EventId, MessageEvent, RegistryReply, RegistryRequest, RunEvent, Seq, SessionCommand,
    SessionEvent, SessionId, SessionUpdate, Ticket, Update, WatchFrom, WhenBusy,
};

use crate::common::{PATIENCE, new_session, says, sessions_on};

fn sessions() -> Arc<Sessions> {
    Arc::new(sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock)))))
}

fn id() -> SessionId {
    SessionId::parse("watched").unwrap()
}

/// A client that watches, and what it was told of the beginning.
async fn watching(sessions: &Arc<Sessions>, after: WatchFrom) -> (SessionClient, Seq, Seq) {
    let mut client = SessionClient::new(Arc::clone(sessions), OnDisconnect::Keep);
    client.submit(Ticket(0), RegistryRequest::Watch { session: id(), after });
    match tokio::time::timeout(PATIENCE, client.next()).await.expect("a word") {
        Some(Update::Answer(Ticket(0), Ok(RegistryReply::Watching { seen, head }))) => (client, seen, head),
        other => panic!("{other:?}"),
    }
}

async fn entry(client: &mut SessionClient) -> Arc<Entry> {
    loop {
        match tokio::time::timeout(PATIENCE, client.next()).await.expect("a word") {
            Some(Update::Event(event)) => {
                if let SessionUpdate::Entry(entry) = event.seen {
                    return entry;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What is told up to the end of the run that is told first.
async fn told(client: &mut SessionClient) -> Vec<Arc<Entry>> {
    let mut told = vec![entry(client).await];
    while !matches!(told.last().unwrap().event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }) {
        told.push(entry(client).await);
    }
    told
}

async fn run(sessions: &Arc<Sessions>, text: &str) {
    let session = sessions.create(Some(id()), new_session()).await.unwrap();
    sessions.ask(&session, says("/say first", WhenBusy::Refuse)).await.unwrap();
    let mut watcher = sessions.watch(&session, Seq::START).await;
    let is_end = |seen: &SessionUpdate| matches!(seen, SessionUpdate::Entry(entry) if matches!(entry.event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }));
    while !is_end(&watcher.next().await.unwrap()) {}
    sessions.ask(&session, says(text, WhenBusy::Refuse)).await.unwrap();
    let is_message = |seen: &SessionUpdate| matches!(seen, SessionUpdate::Entry(entry) if matches!(entry.event, SessionEvent::Run { event: RunEvent::Message(MessageEvent::Started { .. }), .. }));
    while !is_message(&watcher.next().await.unwrap()) {}
}

#[tokio::test]
async fn who_comes_in_mid_run_is_told_of_the_run_from_its_start() {
    let sessions = sessions();
    run(&sessions, "/wait 600").await;
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Now).await;
    assert_eq!(seen, head);
    let first = entry(&mut client).await;
    assert!(matches!(first.event, SessionEvent::Run { sequence: 1, event: RunEvent::Started { .. }, .. }));
    assert!(first.seq < seen);
    sessions.ask(&id(), SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let rest = told(&mut client).await;
    assert!(rest.iter().any(|entry| entry.seq > seen) && rest[0].seq.0 == first.seq.0 + 1);
    // Now that it is over, there is nothing to be told.
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Now).await;
    assert_eq!(seen, head);
    sessions.ask(&id(), says("/say more", WhenBusy::Refuse)).await.unwrap();
    assert_eq!(entry(&mut client).await.seq.0, head.0 + 1);
}

#[tokio::test]
async fn who_has_seen_an_event_is_told_of_its_run_and_what_came_later() {
    let sessions = sessions();
    run(&sessions, "/say second").await;
    let (mut client, ..) = watching(&sessions, WatchFrom::At(Seq::START)).await;
    let (first, second) = (told(&mut client).await, told(&mut client).await);
    let middle = &second[second.len() / 2];
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Event(middle.id.clone())).await;
    assert_eq!((seen, head), (middle.seq, second.last().unwrap().seq));
    assert_eq!(told(&mut client).await, second, "the whole run");
    // An event that ended a run belongs to none that is under way.
    let (mut client, seen, _) = watching(&sessions, WatchFrom::Event(first.last().unwrap().id.clone())).await;
    assert_eq!(seen, first.last().unwrap().seq);
    assert_eq!(told(&mut client).await, second);
    let unknown = EventId::parse("evt_of_somebody_else").unwrap();
    let (mut client, seen, _) = watching(&sessions, WatchFrom::Event(unknown)).await;
    assert_eq!((seen, entry(&mut client).await.seq), (Seq::START, Seq(1)));
}

#[tokio::test]
async fn a_session_is_waited_for_and_watched_again_when_it_is_made_anew() {
    let sessions = sessions();
    let (mut client, seen, head) = watching(&sessions, WatchFrom::Now).await;
    assert_eq!((seen, head), (Seq::START, Seq::START));
    for _ in 0..2 {
        sessions.create(Some(id()), new_session()).await.unwrap();
        let born = entry(&mut client).await;
        assert!(matches!((born.seq, &born.event), (Seq(1), SessionEvent::Created(_))), "{born:?}");
        sessions.leave(&id()).await.unwrap();
        sessions.delete(&id()).await.unwrap();
    }
}
