//! Cases about the size of sessions, references to stored files, and returning space.

use parlor_vocab::{
    AgentId, Media, MediaId, Message, MessageEvent, MessageId, NewEntry, QueuedInput, Role, RunEvent, RunId,
    Seq, SessionEvent, UserInput,
};

use super::{LogFactory, acquire, new_entries, new_entry, seqs, session, write_session};
use crate::EventLog;
use crate::row::encode;

/// The size grows with each append, in every process. A new session of the same name starts at zero.
pub async fn a_record_counts_the_bytes_of_its_events(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let lease = acquire(&*log, "s").await;
    let mut expected = 0;
    for (head, size) in [(0, 0), (1, 10), (2, 100_000)] {
        let new = new_entry(1, "x".repeat(size));
        log.append(&lease, Seq(head), std::slice::from_ref(&new)).await.expect("an append");
        // The stored form: what the event takes on the disk.
        expected += (new.id.as_str().len() + encode(&new.event).body.len()) as u64;
        for log in [&log, &other] {
            assert_eq!(log.session(&session("s")).await.expect("a session").bytes, expected);
        }
    }
    log.append(&lease, Seq(3), &[]).await.expect("an append");
    assert_eq!(log.session(&session("s")).await.expect("a session").bytes, expected);
    log.delete(&lease).await.expect("a session to delete");
    write_session(&*log, "s", &new_entries(1..=1)).await;
    assert!(log.session(&session("s")).await.expect("a session").bytes < 100);
}

fn media(name: &str) -> Vec<Media> {
    let id = MediaId::parse(name).expect("short");
    vec![Media { id, name: "n".to_owned(), mime: "image/png".to_owned(), size: 1 }]
}

/// All kinds of events that can refer to media, each with media of its own.
fn with_media(prefix: &str) -> Vec<NewEntry> {
    let message = MessageId::parse("m").expect("short");
    let run = RunId::parse("r").expect("short");
    let input = |name: &str| UserInput { media: media(&format!("{prefix}{name}")), ..UserInput::default() };
    let message_with = |name: &str| Message {
        id: message.clone(),
        role: Role::User,
        text: String::new(),
        media: media(&format!("{prefix}{name}")),
    };
    let run_event = |event| SessionEvent::Run { run: run.clone(), sequence: 1, event };
    let events = [
        SessionEvent::Queued(QueuedInput { run: run.clone(), input: input("queued") }),
        SessionEvent::MessageAdded(message_with("added")),
        SessionEvent::Compacted { summary: message_with("compacted"), kept_from: None },
        run_event(RunEvent::Started {
            parent: None,
            agent: AgentId::parse("a").expect("short"),
            model: None,
            missing_agent: None,
            input: input("started"),
            message: message.clone(),
        }),
        run_event(RunEvent::Message(MessageEvent::Completed {
            message: message.clone(),
            text: String::new(),
            media: media(&format!("{prefix}completed")),
        })),
    ];
    events.into_iter().map(|event| NewEntry { event, ..new_entry(1, "media") }).collect()
}

async fn referenced(log: &dyn EventLog) -> Vec<String> {
    let media = log.referenced_media().await.expect("media");
    media.iter().map(MediaId::to_string).collect()
}

/// For all kinds of events, and if two sessions refer to the same media.
pub async fn media_is_referenced_while_a_session_refers_to_it(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    assert!(referenced(&*log).await.is_empty());
    write_session(&*log, "none", &new_entries(1..=2)).await;
    write_session(&*log, "s", &with_media("")).await;
    let mut twice = with_media("");
    twice.extend(with_media(""));
    twice.extend(with_media("own "));
    write_session(&*log, "t", &twice).await;
    let shared = ["added", "compacted", "completed", "queued", "started"];
    let mut all: Vec<String> =
        shared.iter().flat_map(|name| [(*name).to_owned(), format!("own {name}")]).collect();
    all.sort();
    for log in [&log, &other] {
        assert_eq!(referenced(&**log).await, all);
    }
    let lease = acquire(&*log, "t").await;
    log.delete(&lease).await.expect("a session to delete");
    assert_eq!(referenced(&*other).await, shared);
    let lease = acquire(&*log, "s").await;
    log.delete(&lease).await.expect("a session to delete");
    assert!(referenced(&*other).await.is_empty());
}

/// With and without deleted sessions, and while leases are held.
pub async fn reclaiming_keeps_existing_sessions(factory: &dyn LogFactory) {
    let log = factory.open();
    assert_eq!(log.reclaim().await.expect("reclaiming succeeds").bytes, 0);
    for name in ["a", "s", "z"] {
        write_session(&*log, name, &new_entries(1..=500)).await;
    }
    let (kept, lease) = (acquire(&*log, "a").await, acquire(&*log, "s").await);
    log.delete(&lease).await.expect("a session to delete");
    log.reclaim().await.expect("reclaiming succeeds");
    log.append(&kept, Seq(500), &new_entries(1..=1)).await.expect("an append");
    assert_eq!(seqs(&*log, "a").await, (1..=501).collect::<Vec<_>>());
    assert_eq!(seqs(&*log, "z").await, (1..=500).collect::<Vec<_>>());
    log.size().await.expect("a size");
}
