//! Requests that share a transaction.

use std::pin::Pin;
use std::task::{Context, Waker};

use parlor_log::{EventLog, LogError, PartialText};
use parlor_vocab::{
    Media, MediaId, Message, MessageEvent, MessageId, NewEntry, Role, RunEvent, RunId, Seq, SessionEvent,
    Usage,
};

use super::connections::blocked_appends;
use super::{Database, ids, in_time, new_entry, session};

fn run_event(id: &str, event: RunEvent) -> NewEntry {
    let run = RunId::parse("r").unwrap();
    NewEntry { event: SessionEvent::Run { run, sequence: 1, event }, ..new_entry(id) }
}

/// Events that change all tables: media, usage, and the end of a partial text.
fn eventful(id: &str) -> [NewEntry; 3] {
    let message = MessageId::parse("m").unwrap();
    let media = vec![Media {
        id: MediaId::parse(id).unwrap(),
        name: String::new(),
        mime: "image/png".to_owned(),
        size: 1,
    }];
    let usage = Usage { input_tokens: 5, ..Usage::default() };
    let added = Message { id: message.clone(), role: Role::User, text: String::new(), media };
    let completed = MessageEvent::Completed { message, text: String::new(), media: Vec::new() };
    [
        NewEntry { event: SessionEvent::MessageAdded(added), ..new_entry(id) },
        run_event("usage", RunEvent::UsageAdded { usage, model: Some("model".to_owned()) }),
        run_event("completed", RunEvent::Message(completed)),
    ]
}

/// One whose lease was taken, and one whose head has moved, in a group with others. What the others write is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_requests_do_not_affect_the_others_of_their_group() {
    in_time(async {
        let database = Database::create().await;
        let log = database.log().await;
        let message = MessageId::parse("m").unwrap();
        let part = |start, text| PartialText { message: &message, start, text };
        let mut leases = Vec::new();
        for name in ["first", "whole", "taken", "moved", "text", "new"] {
            let lease = log.acquire(&session(name)).await.unwrap();
            if name != "new" {
                log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
                log.keep_partial_text(&lease, part(0, "half")).await.unwrap();
            }
            leases.push(lease);
        }
        let [first, whole, taken, moved, text, new] = &leases[..] else { panic!() };
        let blocker = database.server.client(&database.name).await;
        blocker.batch_execute("BEGIN; LOCK TABLE events IN EXCLUSIVE MODE").await.unwrap();
        let one = [new_entry("y")];
        let (of_whole, of_new) = (eventful("whole"), eventful("new"));
        let mut first = Box::pin(log.append(first, Seq(1), &one));
        assert!(is_pending(&mut first));
        blocked_appends(&database, 1).await;
        let mut appends = [
            log.append(whole, Seq(1), &of_whole),
            log.append(taken, Seq(1), &one),
            log.append(moved, Seq(1), &one),
            log.append(new, Seq::START, &of_new),
        ];
        let mut keep = log.keep_partial_text(text, part(4, " and half"));
        assert!(appends.iter_mut().all(is_pending) && is_pending(&mut keep));
        let steal =
            "UPDATE leases SET token = 0 WHERE session = 'taken'; UPDATE sessions SET head = 7 WHERE id = 'moved'";
        database.server.execute(&database.name, steal).await;
        blocker.batch_execute("COMMIT").await.unwrap();
        assert_eq!(first.await.unwrap(), Seq(2));
        let [whole, taken, moved, new] = appends;
        assert_eq!((whole.await.unwrap(), new.await.unwrap()), (Seq(4), Seq(3)));
        let refused = taken.await;
        assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
        let refused = moved.await;
        assert!(matches!(refused, Err(LogError::Conflict { head: Seq(7) })), "{refused:?}");
        keep.await.unwrap();
        assert_eq!(ids(&log, "whole").await, ["x", "whole", "usage", "completed"]);
        assert_eq!(ids(&log, "new").await, ["new", "usage", "completed"]);
        assert_eq!(ids(&log, "taken").await, ["x"]);
        let media: Vec<String> =
            log.referenced_media().await.unwrap().iter().map(MediaId::to_string).collect();
        assert_eq!(media, ["new", "whole"]);
        let usage = log.usage(0).await.unwrap();
        assert_eq!(usage.iter().map(|line| line.usage.input_tokens).sum::<u64>(), 10);
        for (name, expected) in [("whole", None), ("taken", Some("half")), ("text", Some("half and half"))] {
            let kept = log.partial_message(&session(name)).await.unwrap();
            assert_eq!(kept.map(|partial| partial.text).as_deref(), expected, "{name}");
        }
    })
    .await;
}

/// Polls a future once.
fn is_pending<T, F: Future<Output = T> + ?Sized>(future: &mut Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}
