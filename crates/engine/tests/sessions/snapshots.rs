//! Tests of sessions that are so long that snapshots of them are kept.

use std::sync::atomic::Ordering;

use parlor_engine::session::Session;
use parlor_engine::{CACHED_HISTORY_BYTES, SNAPSHOT_EVENTS, Sessions};
use parlor_log::EventLog;
use parlor_vocab::{
    AgentId, MessageEvent, MessageId, RunEnding, RunEvent, RunId, SessionCommand, SessionEvent, SessionId,
    SessionReply, Timestamp, UserInput, WhenBusy,
};

use crate::common::{TestSession, new_session, send_command};
use crate::disk::Disk;

/// How many events the long sessions have.
const EVENTS: u64 = 5 * SNAPSHOT_EVENTS;

/// Runs of three events each, with an input and an answer.
fn run_events(count: u64) -> Vec<(Timestamp, SessionEvent)> {
    let events = (0..count).flat_map(|number| {
        let (run, message) = (format!("run_{number}"), format!("msg_{number}"));
        let input = UserInput { text: format!("question {number}"), ..UserInput::default() };
        let answer = MessageId::parse(&format!("answer_{number}")).unwrap();
        let events = [
            RunEvent::Started {
                parent: None,
                agent: AgentId::parse("local").unwrap(),
                model: None,
                missing_agent: None,
                input,
                message: MessageId::parse(&message).unwrap(),
            },
            RunEvent::Message(MessageEvent::Completed {
                message: answer,
                text: format!("answer {number}"),
                media: Vec::new(),
            }),
            RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 },
        ];
        let run = RunId::parse(&run).unwrap();
        events.into_iter().zip(1..).map(move |(event, sequence)| {
            (Timestamp(1), SessionEvent::Run { run: run.clone(), sequence, event })
        })
    });
    events.collect()
}

/// A session of [`EVENTS`] events, which is closed.
async fn long_session(sessions: &Sessions) -> SessionId {
    let id = SessionId::parse("long").unwrap();
    let events = run_events(EVENTS / 3);
    sessions.import(id.clone(), Timestamp(1), new_session(), events).await.unwrap();
    sessions.release(&id).await.unwrap();
    id
}

/// How many events `work` reads from the log.
async fn events_read(disk: &Disk, work: impl Future<Output = ()>) -> u64 {
    let before = disk.events_read.load(Ordering::Relaxed);
    work.await;
    (disk.events_read.load(Ordering::Relaxed) - before) as u64
}

fn rename(number: u64) -> SessionCommand {
    SessionCommand::Rename { title: format!("title {number}") }
}

#[tokio::test]
async fn opening_a_long_session_reads_the_events_after_its_snapshot() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = long_session(&sessions).await;
    let open = async || {
        let session = sessions.view_without_history(&id).await.unwrap();
        let totals = sessions.totals(&id).await.unwrap();
        assert_eq!(totals.messages, EVENTS / 3 * 2);
        sessions.release(&id).await.unwrap();
        session.head().0
    };
    assert_eq!(
        events_read(&disk, async {
            let _ = open().await;
        })
        .await,
        0,
        "the snapshot has all events"
    );

    // Whatever the number of events since, at most as many are read as make a snapshot due.
    let mut most = 0;
    for round in 0..5 {
        for number in 0..SNAPSHOT_EVENTS / 4 {
            sessions.execute(&id, rename(number)).await.unwrap();
        }
        sessions.release(&id).await.unwrap();
        let read = events_read(&disk, async {
            let head = open().await;
            assert_eq!(head, 1 + EVENTS / 3 * 3 + (round + 1) * (SNAPSHOT_EVENTS / 4));
        });
        most = most.max(read.await);
    }
    assert_eq!(most, SNAPSHOT_EVENTS / 4 * 3, "the fourth quarter makes a snapshot due");
    disk.loses_snapshots.store(true, Ordering::Relaxed);
    assert!(
        events_read(&disk, async {
            let _ = open().await;
        })
        .await
            > EVENTS,
        "without it, all are read"
    );
}

#[tokio::test]
async fn what_is_shown_of_a_session_that_is_not_open_costs_the_events_after_its_snapshot() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = long_session(&sessions).await;
    let record = sessions.record(&id).await.unwrap();
    let read = events_read(&disk, async {
        assert_eq!(sessions.left_inputs(&record).await, Ok(0));
        assert_eq!(sessions.read_newest(&id, 0).await.unwrap().queue().len(), 0);
        let newest = sessions.read_newest(&id, CACHED_HISTORY_BYTES).await.unwrap();
        assert!(newest.history_is_cut() && newest.messages().count() > 10);
    });
    let read = read.await;
    assert!(read < EVENTS, "{read} events were read");
}

/// The state with and without snapshots.
async fn both_states(disk: &Disk, read: impl AsyncFn() -> Session) -> (Session, Session) {
    let with = read().await;
    disk.loses_snapshots.store(true, Ordering::Relaxed);
    let without = read().await;
    disk.loses_snapshots.store(false, Ordering::Relaxed);
    (with, without)
}

#[tokio::test]
async fn a_lost_snapshot_changes_nothing_that_readers_see() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = long_session(&sessions).await;
    for text in ["/say one", "/say two"] {
        let watcher = sessions.watch(&id, sessions.record(&id).await.unwrap().head).await;
        let mut test = TestSession { sessions: disk.sessions(), session: id.clone(), watcher };
        let sent = sessions.execute(&id, send_command(text, WhenBusy::Refuse)).await.unwrap();
        let SessionReply::Started(run) = sent else { panic!("{sent:?}") };
        test.end_of(&run).await;
    }
    sessions.release(&id).await.unwrap();
    let (with, without) = both_states(&disk, async || sessions.read(&id).await.unwrap()).await;
    assert_eq!(with.history().len() as u64, EVENTS / 3 * 2 + 4);
    assert_eq!(with, without);
    for max_bytes in [0, 300, 5000, CACHED_HISTORY_BYTES, 1 << 20, usize::MAX] {
        let read = async || sessions.read_newest(&id, max_bytes).await.unwrap();
        let (with, without) = both_states(&disk, read).await;
        assert_eq!(with.history(), without.history(), "{max_bytes}");
        assert_eq!(with.history_is_cut(), without.history_is_cut(), "{max_bytes}");
        assert_eq!(with.head(), without.head());
    }
}

#[tokio::test]
async fn the_newest_messages_of_a_long_run_are_complete() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = SessionId::parse("steered").unwrap();
    let run = RunId::parse("run").unwrap();
    let mut whole = run_events(1).into_iter().map(|(_, event)| event);
    let (Some(started), Some(_), Some(ended)) = (whole.next(), whole.next(), whole.next()) else {
        panic!("a run has three events");
    };
    let in_run = |sequence, event| SessionEvent::Run { run: run.clone(), sequence, event };
    let run_event = |event| {
        let SessionEvent::Run { event, .. } = event else { panic!("{event:?}") };
        event
    };
    let steered = (0..EVENTS).map(|number| {
        let message = MessageId::parse(&format!("steered_{number}")).unwrap();
        if number % 2 == 0 {
            let input = UserInput { text: format!("and {number}?"), ..UserInput::default() };
            return RunEvent::Steered { input, message };
        }
        let (text, media) = (format!("also {number}"), Vec::new());
        RunEvent::Message(MessageEvent::Completed { message, text, media })
    });
    let events = std::iter::once(run_event(started)).chain(steered).chain([run_event(ended)]);
    let events = events.zip(1..).map(|(event, sequence)| (Timestamp(1), in_run(sequence, event))).collect();
    sessions.import(id.clone(), Timestamp(1), new_session(), events).await.unwrap();
    sessions.release(&id).await.unwrap();
    for max_bytes in [5000, CACHED_HISTORY_BYTES, 1 << 20] {
        let read = async || sessions.read_newest(&id, max_bytes).await.unwrap();
        let (with, without) = both_states(&disk, read).await;
        assert_eq!(with.history(), without.history(), "{max_bytes}");
        assert!(with.history_is_cut() && without.history_is_cut());
    }
}

#[tokio::test]
async fn a_cleared_history_is_read_from_the_snapshot() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = long_session(&sessions).await;
    sessions.execute(&id, SessionCommand::ClearHistory).await.unwrap();
    for number in 0..SNAPSHOT_EVENTS {
        sessions.execute(&id, rename(number)).await.unwrap();
    }
    sessions.release(&id).await.unwrap();
    let read = events_read(&disk, async {
        let session = sessions.read(&id).await.unwrap();
        assert!(session.history().is_empty() && !session.history_is_cut());
        assert_eq!(sessions.totals(&id).await.unwrap().messages, 0);
    });
    assert!(read.await <= 2 * SNAPSHOT_EVENTS);
}

#[tokio::test]
async fn no_snapshot_is_kept_while_a_run_is_active() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = SessionId::parse("busy").unwrap();
    sessions.import(id.clone(), Timestamp(1), new_session(), run_events(10)).await.unwrap();
    sessions.execute(&id, send_command("/wait 600", WhenBusy::Refuse)).await.unwrap();
    for number in 0..2 * SNAPSHOT_EVENTS {
        sessions.execute(&id, rename(number)).await.unwrap();
    }
    assert_eq!(disk.snapshot(&id).await.unwrap(), None);
    sessions.close().await;
    let snapshot = disk.snapshot(&id).await.unwrap().expect("the run has ended");
    assert_eq!(snapshot.seq, sessions.record(&id).await.unwrap().head);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_kept_harms_nothing() {
    let disk = Disk::new();
    let sessions = disk.sessions();
    let id = SessionId::parse("long").unwrap();
    disk.loses_snapshots.store(true, Ordering::Relaxed);
    sessions.import(id.clone(), Timestamp(1), new_session(), run_events(EVENTS / 3)).await.unwrap();
    sessions.execute(&id, rename(1)).await.unwrap();
    sessions.release(&id).await.unwrap();
    assert_eq!(sessions.view(&id).await.unwrap().title(), Some("title 1"));
}
