//! Owners that leave: what other processes use goes on, and what is queued is started by the next owner.

use std::sync::Arc;

use parlor_engine::Sessions;
use parlor_log::{Announcement, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{RunEnding, Seq, SessionCommand, StopCause, WhenBusy};

use crate::common::{TIMEOUT, deps, message_text, new_session};
use crate::peers::{Machine, send, until_end, until_text};

#[tokio::test]
async fn an_owner_that_ends_hands_its_queue_to_the_process_that_watches() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    let mut watcher = other.join(&session, Seq::START).await;
    let run = send(&owner, &session, "/wait 600", WhenBusy::Refuse).await;
    let queued = send(&other, &session, "/say next", WhenBusy::Enqueue).await;
    until_text(&mut watcher).await;
    owner.shut_down().await;
    let (_, ended) = until_end(&mut watcher, &run).await;
    assert!(matches!(ended, RunEnding::Stopped { .. }), "{ended:?}");
    let (updates, ended) = until_end(&mut watcher, &queued).await;
    assert!(matches!(ended, RunEnding::Completed { .. }), "{ended:?}");
    assert_eq!(message_text(&updates), "next");
    // From now on the second process is the owner.
    let run = send(&other, &session, "/say mine", WhenBusy::Refuse).await;
    assert_eq!(message_text(&until_end(&mut watcher, &run).await.0), "mine");
}

#[tokio::test]
async fn an_owner_that_hands_over_waits_for_a_message_whose_sender_does_not_watch() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    let mut here = owner.watch(&session, Seq::START).await;
    let run = send(&other, &session, "/wait 600", WhenBusy::Refuse).await;
    until_text(&mut here).await;
    let handed_over = tokio::spawn({
        let owner = Arc::clone(&owner);
        async move { owner.hand_over().await }
    });
    // The owner takes commands while it waits, and its session stays open until the run has ended.
    assert_eq!(send(&other, &session, "more", WhenBusy::Steer).await, run);
    assert!(!handed_over.is_finished());
    other.execute(&session, SessionCommand::Stop { run: Some(run.clone()), reason: None }).await.unwrap();
    let (_, ended) = until_end(&mut here, &run).await;
    assert!(matches!(ended, RunEnding::Stopped { cause: StopCause::Client { .. }, .. }), "{ended:?}");
    tokio::time::timeout(TIMEOUT, handed_over).await.expect("the owner leaves").unwrap();
    // The next message makes the other process the owner.
    let head = other.record(&session).await.unwrap().head;
    let mut there = other.join(&session, head).await;
    let run = send(&other, &session, "/say mine", WhenBusy::Refuse).await;
    assert_eq!(message_text(&until_end(&mut there, &run).await.0), "mine");
}

#[tokio::test]
async fn a_process_that_ends_soon_leaves_queued_inputs_to_the_next_one() {
    let machine = Machine::new();
    let owner = machine.process("owner");
    let session = owner.create(None, new_session()).await.unwrap();
    send(&owner, &session, "/wait 600", WhenBusy::Refuse).await;
    let queued = send(&owner, &session, "/say next", WhenBusy::Enqueue).await;
    owner.shut_down().await;

    let log = Arc::new(machine.log.as_announced_process(Announcement::default()));
    let brief = Sessions::new(deps(&log, Arc::new(LocalAgent::default()), Arc::new(SystemClock)));
    let brief = brief.leaving_queued_inputs();
    brief.execute(&session, SessionCommand::Rename { title: "t".to_owned() }).await.unwrap();
    assert_eq!(brief.record(&session).await.unwrap().running, None);
    brief.shut_down().await;

    let next = machine.process("next");
    let mut watcher = next.join(&session, Seq::START).await;
    next.execute(&session, SessionCommand::Rename { title: "u".to_owned() }).await.unwrap();
    let (_, ended) = until_end(&mut watcher, &queued).await;
    assert!(matches!(ended, RunEnding::Completed { .. }), "{ended:?}");
}
