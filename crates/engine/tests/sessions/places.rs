//! Where a watch begins: now, after an event, or before there is anything to watch.

use std::sync::Arc;

use parlor_engine::{Guest, House, Standing, Word};
use parlor_log::{MemoryLog, SystemClock};
use parlor_vocab::{
    Entry, EventId, HouseCommand, HouseReply, Place, RunEvent, Seen, Seq, SessionCommand, SessionEvent,
    SessionId, WhenBusy,
};

use crate::common::{PATIENCE, birth, house_on, says};

fn house() -> Arc<House> {
    Arc::new(house_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock)))))
}

fn id() -> SessionId {
    SessionId::parse("watched").unwrap()
}

/// A guest that watches, and what it was told of the beginning.
async fn watching(house: &Arc<House>, after: Place) -> (Guest<u32>, Seq, Seq) {
    let mut guest = Guest::new(Arc::clone(house), Standing::Visitor);
    guest.ask(0, HouseCommand::Watch { session: id(), after });
    match tokio::time::timeout(PATIENCE, guest.next()).await.expect("a word") {
        Some(Word::Answer(0, Ok(HouseReply::Watching { seen, head }))) => (guest, seen, head),
        other => panic!("{other:?}"),
    }
}

async fn entry(guest: &mut Guest<u32>) -> Arc<Entry> {
    loop {
        match tokio::time::timeout(PATIENCE, guest.next()).await.expect("a word") {
            Some(Word::Event(event)) => {
                if let Seen::Entry(entry) = event.seen {
                    return entry;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What is told up to the end of the run that is told first.
async fn told(guest: &mut Guest<u32>) -> Vec<Arc<Entry>> {
    let mut told = vec![entry(guest).await];
    while !matches!(told.last().unwrap().event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }) {
        told.push(entry(guest).await);
    }
    told
}

async fn run(house: &Arc<House>, text: &str) {
    let session = house.create(Some(id()), birth()).await.unwrap();
    house.ask(&session, says("/say first", WhenBusy::Refuse)).await.unwrap();
    let mut watcher = house.watch(&session, Seq::START).await;
    let is_end = |seen: &Seen| matches!(seen, Seen::Entry(entry) if matches!(entry.event, SessionEvent::Run { event: RunEvent::Ended { .. }, .. }));
    while !is_end(&watcher.next().await.unwrap()) {}
    house.ask(&session, says(text, WhenBusy::Refuse)).await.unwrap();
    let is_message = |seen: &Seen| matches!(seen, Seen::Entry(entry) if matches!(entry.event, SessionEvent::Run { event: RunEvent::MessageStarted { .. }, .. }));
    while !is_message(&watcher.next().await.unwrap()) {}
}

#[tokio::test]
async fn who_comes_in_mid_run_is_told_of_the_run_from_its_start() {
    let house = house();
    run(&house, "/wait 600").await;
    let (mut guest, seen, head) = watching(&house, Place::Now).await;
    assert_eq!(seen, head);
    let first = entry(&mut guest).await;
    assert!(matches!(first.event, SessionEvent::Run { sequence: 1, event: RunEvent::Started { .. }, .. }));
    assert!(first.seq < seen);
    house.ask(&id(), SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let rest = told(&mut guest).await;
    assert!(rest.iter().any(|entry| entry.seq > seen) && rest[0].seq.0 == first.seq.0 + 1);
    // Now that it is over, there is nothing to be told.
    let (mut guest, seen, head) = watching(&house, Place::Now).await;
    assert_eq!(seen, head);
    house.ask(&id(), says("/say more", WhenBusy::Refuse)).await.unwrap();
    assert_eq!(entry(&mut guest).await.seq.0, head.0 + 1);
}

#[tokio::test]
async fn who_has_seen_an_event_is_told_of_its_run_and_what_came_later() {
    let house = house();
    run(&house, "/say second").await;
    let (mut guest, ..) = watching(&house, Place::At(Seq::START)).await;
    let (first, second) = (told(&mut guest).await, told(&mut guest).await);
    let middle = &second[second.len() / 2];
    let (mut guest, seen, head) = watching(&house, Place::Event(middle.id.clone())).await;
    assert_eq!((seen, head), (middle.seq, second.last().unwrap().seq));
    assert_eq!(told(&mut guest).await, second, "the whole run");
    // An event that ended a run belongs to none that is under way.
    let (mut guest, seen, _) = watching(&house, Place::Event(first.last().unwrap().id.clone())).await;
    assert_eq!(seen, first.last().unwrap().seq);
    assert_eq!(told(&mut guest).await, second);
    let unknown = EventId::parse("evt_of_somebody_else").unwrap();
    let (mut guest, seen, _) = watching(&house, Place::Event(unknown)).await;
    assert_eq!((seen, entry(&mut guest).await.seq), (Seq::START, Seq(1)));
}

#[tokio::test]
async fn a_session_is_waited_for_and_watched_again_when_it_is_made_anew() {
    let house = house();
    let (mut guest, seen, head) = watching(&house, Place::Now).await;
    assert_eq!((seen, head), (Seq::START, Seq::START));
    for _ in 0..2 {
        house.create(Some(id()), birth()).await.unwrap();
        let born = entry(&mut guest).await;
        assert!(matches!((born.seq, &born.event), (Seq(1), SessionEvent::Created(_))), "{born:?}");
        house.leave(&id()).await.unwrap();
        house.delete(&id()).await.unwrap();
    }
}
