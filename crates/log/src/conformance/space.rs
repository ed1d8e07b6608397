//! What sessions take, and giving it back.

use parlor_vocab::{
    AgentId, Media, MediaId, Message, MessageEvent, MessageId, NewEntry, QueuedInput, Role, RunEvent, RunId,
    Seq, SessionEvent, UserInput,
};

use super::{LogFactory, acquire, draft, drafts, places, session, written};
use crate::EventLog;

/// It grows by what is appended, for the other processes as well, and begins anew with a new session.
pub async fn a_record_tells_how_much_the_events_take(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    let lease = acquire(&*log, "s").await;
    let mut expected = 0;
    for (head, size) in [(0, 0), (1, 10), (2, 100_000)] {
        let new = draft(1, "x".repeat(size));
        log.append(&lease, Seq(head), std::slice::from_ref(&new)).await.expect("an append");
        // As it is stored, in the form that row/ pins.
        expected += (new.id.as_str().len() + "{\"renamed\":{\"title\":\"\"}}".len() + size) as u64;
        for log in [&log, &other] {
            assert_eq!(log.session(&session("s")).await.expect("a session").bytes, expected);
        }
    }
    log.append(&lease, Seq(3), &[]).await.expect("an append");
    assert_eq!(log.session(&session("s")).await.expect("a session").bytes, expected);
    log.delete(&lease).await.expect("a session to delete");
    written(&*log, "s", &drafts(1..=1)).await;
    assert!(log.session(&session("s")).await.expect("a session").bytes < 100);
}

fn media(name: &str) -> Vec<Media> {
    let id = MediaId::parse(name).expect("short");
    vec![Media { id, name: "n".to_owned(), mime: "image/png".to_owned(), size: 1 }]
}

/// Events of all kinds that can carry media, each with media of its own.
fn with_media(prefix: &str) -> Vec<NewEntry> {
    let message = MessageId::parse("m").expect("short");
    let run = RunId::parse("r").expect("short");
    let input = |name: &str| UserInput { media: media(&format!("{prefix}{name}")), ..UserInput::default() };
    let said = |name: &str| Message {
        id: message.clone(),
        role: Role::User,
        text: String::new(),
        media: media(&format!("{prefix}{name}")),
    };
    let of_run = |event| SessionEvent::Run { run: run.clone(), sequence: 1, event };
    let events = [
        SessionEvent::Queued(QueuedInput { run: run.clone(), input: input("queued") }),
        SessionEvent::MessageAdded(said("added")),
        SessionEvent::Compacted { summary: said("compacted"), kept_from: None },
        of_run(RunEvent::Started {
            parent: None,
            agent: AgentId::parse("a").expect("short"),
            model: None,
            input: input("started"),
            message: message.clone(),
        }),
        of_run(RunEvent::Message(MessageEvent::Completed {
            message: message.clone(),
            text: String::new(),
            media: media(&format!("{prefix}completed")),
        })),
    ];
    events.into_iter().map(|event| NewEntry { event, ..draft(1, "media") }).collect()
}

async fn referenced(log: &dyn EventLog) -> Vec<String> {
    let media = log.referenced_media().await.expect("media");
    media.iter().map(MediaId::to_string).collect()
}

/// Whatever event it came along with, and also if two sessions do.
pub async fn media_is_referenced_as_long_as_a_session_speaks_of_it(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    assert!(referenced(&*log).await.is_empty());
    written(&*log, "none", &drafts(1..=2)).await;
    written(&*log, "s", &with_media("")).await;
    let mut twice = with_media("");
    twice.extend(with_media(""));
    twice.extend(with_media("own "));
    written(&*log, "t", &twice).await;
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

/// Whether anything was deleted or not, and whoever holds what.
pub async fn reclaiming_takes_nothing_that_is_there(factory: &dyn LogFactory) {
    let log = factory.enter();
    assert_eq!(log.reclaim().await.expect("a reclaiming").bytes, 0);
    for name in ["a", "s", "z"] {
        written(&*log, name, &drafts(1..=500)).await;
    }
    let (kept, lease) = (acquire(&*log, "a").await, acquire(&*log, "s").await);
    log.delete(&lease).await.expect("a session to delete");
    log.reclaim().await.expect("a reclaiming");
    log.append(&kept, Seq(500), &drafts(1..=1)).await.expect("an append");
    assert_eq!(places(&*log, "a").await, (1..=501).collect::<Vec<_>>());
    assert_eq!(places(&*log, "z").await, (1..=500).collect::<Vec<_>>());
    log.size().await.expect("a size");
}
