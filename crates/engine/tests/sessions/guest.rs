//! A caller of the house: answers in order, what it watches, and how it leaves.

use std::path::Path;
use std::sync::Arc;

use crate::common::{PATIENCE, birth, house_on, says};
use parlor_engine::{Guest, House, MAX_QUESTIONS, MAX_WATCHED, MediaStore, Standing, Word};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{
    HouseCommand, HouseEvent, HouseReply, Passage, Place, Refusal, RunEnding, RunEvent, Seen, Seq,
    SessionCommand, SessionEvent, SessionId, SessionReply, WhenBusy,
};

fn house() -> Arc<House> {
    Arc::new(house_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock)))))
}

/// A house that keeps files below `folder`.
fn house_in(folder: &Path) -> House {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let mut means = crate::common::means(&log, Arc::new(LocalAgent::default()), Arc::new(SystemClock));
    means.media = MediaStore::open(folder).unwrap();
    House::new(means)
}

async fn next(guest: &mut Guest<u32>) -> Option<Word<u32>> {
    tokio::time::timeout(PATIENCE, guest.next()).await.expect("a word")
}

async fn answer(guest: &mut Guest<u32>) -> (u32, Result<HouseReply, Refusal>) {
    loop {
        if let Word::Answer(question, answer) = next(guest).await.unwrap() {
            return (question, answer);
        }
    }
}

async fn created(guest: &mut Guest<u32>) -> SessionId {
    let command = HouseCommand::Create { id: None, birth: Box::new(birth()) };
    assert!(guest.ask(0, command).is_none());
    let (_, answer) = answer(guest).await;
    let HouseReply::Created(session) = answer.unwrap() else { panic!() };
    session
}

/// What is said to who watches a session that is not there.
fn watching() -> HouseReply {
    HouseReply::Watching { seen: Seq::START, head: Seq::START }
}

fn ending(event: &HouseEvent) -> Option<&RunEnding> {
    let Seen::Entry(entry) = &event.seen else { return None };
    let SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. } = &entry.event else { return None };
    Some(ending)
}

#[tokio::test]
async fn questions_are_carried_out_in_the_order_in_which_they_were_put() {
    let mut guest = Guest::new(house(), Standing::Owner);
    let session = created(&mut guest).await;
    for number in 1..=5 {
        let rename = SessionCommand::Rename { title: number.to_string() };
        assert!(guest.ask(number, HouseCommand::Session(session.clone(), rename)).is_none());
    }
    assert!(guest.ask(6, HouseCommand::Look(session)).is_none());
    let mut answers = Vec::new();
    while answers.len() < 6 {
        answers.push(answer(&mut guest).await);
    }
    let (_, last) = answers.iter().find(|(question, _)| *question == 6).unwrap();
    let Ok(HouseReply::Overview(overview)) = last else { panic!("{last:?}") };
    assert_eq!(overview.title.as_deref(), Some("5"));
}

#[tokio::test]
async fn what_is_watched_is_told_to_its_end_when_the_owner_leaves() {
    let mut guest = Guest::new(house(), Standing::Owner);
    let session = created(&mut guest).await;
    guest.ask(1, HouseCommand::Watch { session: session.clone(), after: Place::At(Seq::START) });
    guest.ask(2, HouseCommand::Session(session, says("/wait 600", WhenBusy::Refuse)));
    let is_answered =
        |word: &Word<u32>| matches!(word, Word::Answer(2, Ok(HouseReply::Session(SessionReply::Started(_)))));
    while !is_answered(&next(&mut guest).await.unwrap()) {}
    guest.leave();
    let mut endings = Vec::new();
    while let Some(word) = next(&mut guest).await {
        if let Word::Event(event) = word {
            endings.extend(ending(&event).cloned());
        }
    }
    assert!(matches!(&endings[..], [RunEnding::Stopped { .. }]), "{endings:?}");
    guest.gone().await;
}

#[tokio::test]
async fn a_visitor_leaves_and_the_run_goes_on() {
    let house = house();
    let mut guest = Guest::new(Arc::clone(&house), Standing::Visitor);
    let session = created(&mut guest).await;
    guest.ask(1, HouseCommand::Session(session.clone(), says("/wait 600", WhenBusy::Refuse)));
    answer(&mut guest).await.1.unwrap();
    guest.leave();
    while next(&mut guest).await.is_some() {}
    guest.gone().await;
    assert!(house.view(&session).await.unwrap().active().is_some());
    house.close().await;
}

#[tokio::test]
async fn beyond_the_limit_a_question_is_refused_at_once() {
    let mut guest = Guest::new(house(), Standing::Owner);
    let session = created(&mut guest).await;
    // Nobody takes the answers, so they all wait.
    for number in 0..MAX_QUESTIONS {
        assert!(guest.ask(number as u32, HouseCommand::Look(session.clone())).is_none(), "{number}");
    }
    let refused = guest.ask(99, HouseCommand::Look(session.clone()));
    assert_eq!(refused, Some((99, Err(Refusal::TooManyQuestions { limit: MAX_QUESTIONS }))));
    answer(&mut guest).await.1.unwrap();
    assert!(guest.ask(100, HouseCommand::Look(session)).is_none());
}

#[tokio::test]
async fn beyond_the_limit_no_session_is_watched() {
    let mut guest = Guest::new(house(), Standing::Owner);
    let watch = |name: &str| HouseCommand::Watch {
        session: SessionId::parse(name).unwrap(),
        after: Place::At(Seq::START),
    };
    for number in 0..MAX_WATCHED {
        guest.ask(0, watch(&number.to_string()));
        assert_eq!(answer(&mut guest).await.1, Ok(watching()));
    }
    guest.ask(0, watch("one more"));
    assert_eq!(answer(&mut guest).await.1, Err(Refusal::TooManyWatched { limit: MAX_WATCHED }));
    // A session that is watched already takes no more room.
    guest.ask(0, watch("7"));
    assert_eq!(answer(&mut guest).await.1, Ok(watching()));
    guest.ask(0, HouseCommand::Unwatch(SessionId::parse("7").unwrap()));
    answer(&mut guest).await.1.unwrap();
    guest.ask(0, watch("one more"));
    assert_eq!(answer(&mut guest).await.1, Ok(watching()));
}

#[tokio::test]
async fn files_come_along_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let house = Arc::new(house_in(folder.path()));
    let mut guest = Guest::new(house, Standing::Owner);
    let session = created(&mut guest).await;
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "hello").unwrap();
    guest.ask(1, HouseCommand::ReadFiles { paths: vec![path, "/nowhere".into()], max_bytes: 100 });
    let HouseReply::Files(files) = answer(&mut guest).await.1.unwrap() else { panic!() };
    let [Ok(file), Err(_)] = &files[..] else { panic!("{files:?}") };
    guest.ask(2, HouseCommand::StoreMedia(vec![file.clone()]));
    let HouseReply::Stored(media) = answer(&mut guest).await.1.unwrap() else { panic!() };
    assert_eq!((media[0].name.as_str(), media[0].size), ("a.txt", 5));
    let mut send = says("look", WhenBusy::Refuse);
    if let SessionCommand::Send { input, .. } = &mut send {
        input.media.clone_from(&media);
    }
    guest.ask(3, HouseCommand::Session(session.clone(), send));
    answer(&mut guest).await.1.unwrap();
    guest.ask(4, HouseCommand::Look(session));
    let HouseReply::Overview(overview) = answer(&mut guest).await.1.unwrap() else { panic!() };
    let Some(Passage::Message(message)) = overview.history.first() else { panic!() };
    assert_eq!(message.media, media);
    let ids = vec![media[0].id.clone()];
    guest.ask(5, HouseCommand::ReadMedia { ids: ids.clone(), max_bytes: 5 });
    assert_eq!(answer(&mut guest).await.1, Ok(HouseReply::Contents(vec![Some(b"hello".to_vec())])));
    guest.ask(6, HouseCommand::ReadMedia { ids, max_bytes: 4 });
    assert_eq!(answer(&mut guest).await.1, Ok(HouseReply::Contents(vec![None])), "there is no room for it");
}
