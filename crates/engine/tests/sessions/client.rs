//! Tests of [`SessionClient`]: the order of answers, watches, limits, and disconnecting.

use std::path::Path;
use std::sync::Arc;

use crate::common::{TIMEOUT, new_session, send_command, sessions_on};
use parlor_engine::{MAX_REQUESTS, MAX_WATCHED, MediaStore, OnDisconnect, SessionClient, Sessions};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{
    Backend, HistoryItem, MediaId, NamedFile, RegistryEvent, RegistryReply, RegistryRequest, RunEnding,
    RunEvent, Seq, SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionReply, SessionUpdate,
    Ticket, Update, UpdateOf, WatchFrom, WhenBusy,
};

fn sessions() -> Arc<Sessions> {
    Arc::new(sessions_on(&Arc::new(MemoryLog::new(Arc::new(SystemClock)))))
}

/// A registry that stores media in `folder`.
fn sessions_in(folder: &Path) -> Sessions {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let mut deps = crate::common::deps(&log, Arc::new(LocalAgent::default()), Arc::new(SystemClock));
    deps.media = MediaStore::open(folder).unwrap();
    Sessions::new(deps)
}

async fn next(client: &mut SessionClient) -> Option<UpdateOf<SessionClient>> {
    tokio::time::timeout(TIMEOUT, client.next()).await.expect("an update")
}

async fn answer(client: &mut SessionClient) -> (u64, Result<RegistryReply, SessionRefusal>) {
    loop {
        if let Update::Answer(ticket, answer) = next(client).await.unwrap() {
            return (ticket.0, answer);
        }
    }
}

async fn created(client: &mut SessionClient) -> SessionId {
    let command = RegistryRequest::Create { id: None, new_session: Box::new(new_session()) };
    assert!(client.submit(Ticket(0), command).is_none());
    let (_, answer) = answer(client).await;
    let RegistryReply::Created(session) = answer.unwrap() else { panic!() };
    session
}

/// The reply to a watch of a session that does not exist.
fn watching_reply() -> RegistryReply {
    RegistryReply::Watching { seen: Seq::START, head: Seq::START }
}

fn ending(event: &RegistryEvent) -> Option<&RunEnding> {
    let SessionUpdate::Entry(entry) = &event.update else { return None };
    let SessionEvent::Run { event: RunEvent::Ended { ending, .. }, .. } = &entry.event else { return None };
    Some(ending)
}

#[tokio::test]
async fn requests_are_executed_in_the_order_of_submission() {
    let mut client = SessionClient::new(sessions(), OnDisconnect::Stop);
    let session = created(&mut client).await;
    for number in 1..=5 {
        let rename = SessionCommand::Rename { title: number.to_string() };
        assert!(client.submit(Ticket(number), RegistryRequest::Session(session.clone(), rename)).is_none());
    }
    assert!(client.submit(Ticket(6), RegistryRequest::GetOverview(session)).is_none());
    let mut answers = Vec::new();
    while answers.len() < 6 {
        answers.push(answer(&mut client).await);
    }
    let (_, last) = answers.iter().find(|(ticket, _)| *ticket == 6).unwrap();
    let Ok(RegistryReply::Overview(overview)) = last else { panic!("{last:?}") };
    assert_eq!(overview.title.as_deref(), Some("5"));
}

#[tokio::test]
async fn a_closing_client_still_gets_the_end_of_the_run_it_watches() {
    let mut client = SessionClient::new(sessions(), OnDisconnect::Stop);
    let session = created(&mut client).await;
    client.submit(
        Ticket(1),
        RegistryRequest::Watch { session: session.clone(), after: WatchFrom::At(Seq::START), deltas: true },
    );
    client.submit(Ticket(2), RegistryRequest::Session(session, send_command("/wait 600", WhenBusy::Refuse)));
    let is_answered = |update: &UpdateOf<SessionClient>| {
        matches!(update, Update::Answer(Ticket(2), Ok(RegistryReply::Session(SessionReply::Started(_)))))
    };
    while !is_answered(&next(&mut client).await.unwrap()) {}
    client.begin_close();
    let mut endings = Vec::new();
    while let Some(update) = next(&mut client).await {
        if let Update::Event(event) = update {
            endings.extend(ending(&event).cloned());
        }
    }
    assert!(matches!(&endings[..], [RunEnding::Stopped { .. }]), "{endings:?}");
    client.closed().await;
}

#[tokio::test]
async fn a_run_continues_after_a_client_that_keeps_runs_disconnects() {
    let sessions = sessions();
    let mut client = SessionClient::new(Arc::clone(&sessions), OnDisconnect::Keep);
    let session = created(&mut client).await;
    client.submit(
        Ticket(1),
        RegistryRequest::Session(session.clone(), send_command("/wait 600", WhenBusy::Refuse)),
    );
    answer(&mut client).await.1.unwrap();
    client.begin_close();
    while next(&mut client).await.is_some() {}
    client.closed().await;
    assert!(sessions.view(&session).await.unwrap().active().is_some());
    sessions.close().await;
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_at_once() {
    let mut client = SessionClient::new(sessions(), OnDisconnect::Stop);
    let session = created(&mut client).await;
    // The test takes no answers, so all requests stay unanswered.
    for number in 0..MAX_REQUESTS {
        assert!(
            client.submit(Ticket(number as u64), RegistryRequest::GetOverview(session.clone())).is_none(),
            "{number}"
        );
    }
    let refused = client.submit(Ticket(99), RegistryRequest::GetOverview(session.clone()));
    assert_eq!(refused, Some((Ticket(99), Err(SessionRefusal::TooManyRequests { limit: MAX_REQUESTS }))));
    answer(&mut client).await.1.unwrap();
    assert!(client.submit(Ticket(100), RegistryRequest::GetOverview(session)).is_none());
}

#[tokio::test]
async fn watches_beyond_the_limit_are_refused() {
    let mut client = SessionClient::new(sessions(), OnDisconnect::Stop);
    let watch = |name: &str| RegistryRequest::Watch {
        session: SessionId::parse(name).unwrap(),
        after: WatchFrom::At(Seq::START),
        deltas: true,
    };
    for number in 0..MAX_WATCHED {
        client.submit(Ticket(0), watch(&number.to_string()));
        assert_eq!(answer(&mut client).await.1, Ok(watching_reply()));
    }
    client.submit(Ticket(0), watch("one more"));
    assert_eq!(answer(&mut client).await.1, Err(SessionRefusal::TooManyWatched { limit: MAX_WATCHED }));
    // Watching a session again does not count twice.
    client.submit(Ticket(0), watch("7"));
    assert_eq!(answer(&mut client).await.1, Ok(watching_reply()));
    client.submit(Ticket(0), RegistryRequest::Unwatch(SessionId::parse("7").unwrap()));
    answer(&mut client).await.1.unwrap();
    client.submit(Ticket(0), watch("one more"));
    assert_eq!(answer(&mut client).await.1, Ok(watching_reply()));
}

#[tokio::test]
async fn a_discarded_file_is_removed_unless_another_message_has_stored_it_too() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Arc::new(sessions_in(folder.path()));
    let store = async |text: &str| {
        let file = NamedFile { name: "f".to_owned(), bytes: text.as_bytes().to_vec() };
        sessions.store_media(vec![file]).await.unwrap().remove(0).id
    };
    let is_stored = async |id: &MediaId| sessions.open_media(id).await.is_some();
    let (alone, shared) = (store("alone").await, store("shared").await);
    // Another message refers to the same content. It was stored at nearly the same time.
    assert_eq!(store("shared").await, shared);
    let mut client = SessionClient::new(Arc::clone(&sessions), OnDisconnect::Stop);
    client.submit(Ticket(1), RegistryRequest::DiscardMedia(vec![alone.clone(), shared.clone()]));
    assert_eq!(answer(&mut client).await.1, Ok(RegistryReply::Done));
    assert!(!is_stored(&alone).await && is_stored(&shared).await);
    // The other message is refused too, but the first one may have been accepted, so the file stays for a sweep.
    client.submit(Ticket(2), RegistryRequest::DiscardMedia(vec![shared.clone()]));
    assert_eq!(answer(&mut client).await.1, Ok(RegistryReply::Done));
    assert!(is_stored(&shared).await);
    // A file that is stored once more after it was discarded is a new one.
    assert_eq!(store("alone").await, alone);
    assert!(is_stored(&alone).await);
}

#[tokio::test]
async fn attached_files_are_stored_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Arc::new(sessions_in(folder.path()));
    let mut client = SessionClient::new(sessions, OnDisconnect::Stop);
    let session = created(&mut client).await;
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "hello").unwrap();
    client.submit(
        Ticket(1),
        RegistryRequest::ReadFiles { paths: vec![path, "/nowhere".into()], max_bytes: 100 },
    );
    let RegistryReply::Files(files) = answer(&mut client).await.1.unwrap() else { panic!() };
    let [Ok(file), Err(_)] = &files[..] else { panic!("{files:?}") };
    client.submit(Ticket(2), RegistryRequest::StoreMedia(vec![file.clone()]));
    let RegistryReply::Stored(media) = answer(&mut client).await.1.unwrap() else { panic!() };
    assert_eq!((media[0].name.as_str(), media[0].size), ("a.txt", 5));
    let mut send = send_command("look", WhenBusy::Refuse);
    if let SessionCommand::Send { input, .. } = &mut send {
        input.media.clone_from(&media);
    }
    client.submit(Ticket(3), RegistryRequest::Session(session.clone(), send));
    answer(&mut client).await.1.unwrap();
    client.submit(Ticket(4), RegistryRequest::GetOverview(session));
    let RegistryReply::Overview(overview) = answer(&mut client).await.1.unwrap() else { panic!() };
    let Some(HistoryItem::Message(message)) = overview.history.first() else { panic!() };
    assert_eq!(message.media, media);
    let ids = vec![media[0].id.clone()];
    client.submit(Ticket(5), RegistryRequest::ReadMedia { ids: ids.clone(), max_bytes: 5 });
    assert_eq!(answer(&mut client).await.1, Ok(RegistryReply::Contents(vec![Some(b"hello".to_vec())])));
    client.submit(Ticket(6), RegistryRequest::ReadMedia { ids, max_bytes: 4 });
    assert_eq!(
        answer(&mut client).await.1,
        Ok(RegistryReply::Contents(vec![None])),
        "the file exceeds the limit"
    );
}
