use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use parlor_log::{MemoryLog, SystemClock};
use parlor_vocab::{EventId, MessageId, NewEntry, StepId, Timestamp, ToolCallId};

use super::*;
use crate::sessions::live::TOOL_TAIL_BYTES;

fn appended(live: &LiveSession, seq: u64, event: RunEvent) -> SessionUpdate {
    let id = EventId::parse(&seq.to_string()).unwrap();
    let event = SessionEvent::Run { run: run(), sequence: seq, event };
    let entry = Arc::new(Entry { seq: Seq(seq), id, at: Timestamp(0), event });
    live.on_append(&entry, 1);
    SessionUpdate::Entry(entry)
}

/// A waker that counts.
#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn run() -> RunId {
    RunId::parse("run").unwrap()
}

fn watched_session() -> (Arc<LiveSession>, Watcher) {
    let live = Arc::<LiveSession>::default();
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let session = SessionId::parse("session").unwrap();
    let watcher = Watcher::new(log, session, Seq::START, Arc::clone(&live));
    (live, watcher)
}

fn delta(stream: &StreamKind, text: &str) -> SessionUpdate {
    SessionUpdate::Delta { run: run(), stream: stream.clone(), text: text.to_owned() }
}

fn called(call: &ToolCallId, input: &str) -> RunEvent {
    let (step, tool) = (StepId::parse("step").unwrap(), "shell".to_owned());
    RunEvent::Tool(ToolEvent::Called { step, call: call.clone(), tool, input: input.to_owned() })
}

fn completed(call: &ToolCallId) -> RunEvent {
    RunEvent::Tool(ToolEvent::Completed {
        call: call.clone(),
        output: "it is done".to_owned(),
        details: None,
        duration_ms: 1,
    })
}

#[tokio::test(start_paused = true)]
async fn the_first_text_comes_at_once_and_later_text_in_intervals_but_before_its_event() {
    let (live, mut watcher) = watched_session();
    let message = MessageId::parse("message").unwrap();
    let stream = StreamKind::Message(message.clone());
    live.open(&run(), stream.clone());

    let started = appended(&live, 1, RunEvent::Message(MessageEvent::Started { message: message.clone() }));
    assert_eq!(watcher.next().await.unwrap(), started);
    let start = Instant::now();
    live.push(&stream, "one ");
    assert_eq!(watcher.next().await.unwrap(), delta(&stream, "one "));
    assert_eq!(Instant::now(), start);

    live.push(&stream, "two ");
    let meanwhile = async {
        sleep_until(start + TEXT_INTERVAL / 2).await;
        live.push(&stream, "three ");
    };
    assert_eq!(tokio::join!(watcher.next(), meanwhile).0.unwrap(), delta(&stream, "two three "));
    let after_interval = Instant::now();
    assert!(after_interval >= start + TEXT_INTERVAL);

    live.push(&stream, "four");
    let (text, media) = ("one two three four".to_owned(), Vec::new());
    let completed = appended(&live, 2, RunEvent::Message(MessageEvent::Completed { message, text, media }));
    assert_eq!(watcher.next().await.unwrap(), delta(&stream, "four"));
    assert_eq!(watcher.next().await.unwrap(), completed);
    assert_eq!(Instant::now(), after_interval);
}

#[tokio::test]
async fn a_watcher_that_begins_inside_a_message_gets_its_text_from_the_start() {
    let (live, watcher) = watched_session();
    let mut watcher = watcher.deliver_after(Seq(1));
    let message = MessageId::parse("message").unwrap();
    let stream = StreamKind::Message(message.clone());
    live.open(&run(), stream.clone());
    appended(&live, 1, RunEvent::Message(MessageEvent::Started { message: message.clone() }));
    live.push(&stream, "one ");
    assert_eq!(watcher.next().await.unwrap(), delta(&stream, "one "));
    live.push(&stream, "two");
    let (text, media) = ("one two".to_owned(), Vec::new());
    let completed = appended(&live, 2, RunEvent::Message(MessageEvent::Completed { message, text, media }));
    assert_eq!(watcher.next().await.unwrap(), delta(&stream, "two"));
    assert_eq!(watcher.next().await.unwrap(), completed);
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_gets_a_long_text_in_pieces_of_limited_size() {
    let (live, mut watcher) = watched_session();
    let message = MessageId::parse("message").unwrap();
    let stream = StreamKind::Message(message.clone());
    live.open(&run(), stream.clone());
    let started = appended(&live, 1, RunEvent::Message(MessageEvent::Started { message: message.clone() }));
    assert_eq!(watcher.next().await.unwrap(), started);
    let (live_part, rest) = ("\u{20ac}".repeat(50_000), "x".repeat(2 * MAX_DELTA_BYTES + 1));
    live.push(&stream, &live_part);
    let start = Instant::now();
    let mut shown = String::new();
    while shown.len() < live_part.len() {
        let SessionUpdate::Delta { text, .. } = watcher.next().await.unwrap() else { panic!("no delta") };
        assert!((1..=MAX_DELTA_BYTES).contains(&text.len()), "{}", text.len());
        shown.push_str(&text);
    }
    assert_eq!((shown.as_str(), Instant::now()), (live_part.as_str(), start), "the rest need not wait");
    live.push(&stream, &rest);
    let (text, media) = (live_part + &rest, Vec::new());
    let completed = appended(&live, 2, RunEvent::Message(MessageEvent::Completed { message, text, media }));
    for bytes in [MAX_DELTA_BYTES, MAX_DELTA_BYTES, 1] {
        assert_eq!(watcher.next().await.unwrap(), delta(&stream, &"x".repeat(bytes)));
    }
    assert_eq!(watcher.next().await.unwrap(), completed);
}

#[tokio::test(start_paused = true)]
async fn input_and_output_within_the_interval_come_before_their_events() {
    let (live, mut watcher) = watched_session();
    let call = ToolCallId::parse("call").unwrap();
    let (input, output) = (
        StreamKind::ToolInput { call: call.clone(), tool: "shell".to_owned() },
        StreamKind::ToolOutput(call.clone()),
    );
    watcher.next_text_at = Some(Instant::now() + TEXT_INTERVAL);
    live.open(&run(), input.clone());
    live.push(&input, "{}");
    let called = appended(&live, 1, called(&call, "{}"));
    live.open(&run(), output.clone());
    live.push(&output, "all of it");
    let completed = appended(&live, 2, completed(&call));
    for update in [delta(&input, "{}"), called, delta(&output, "all of it"), completed] {
        assert_eq!(watcher.next().await.unwrap(), update);
    }
    assert!(live.take_new_text(&mut HashMap::from([(input, 0), (output, 0)]), usize::MAX).is_empty());
}

#[tokio::test]
async fn an_input_that_was_not_written_live_comes_only_with_its_call() {
    let (live, mut watcher) = watched_session();
    let called = appended(&live, 1, called(&ToolCallId::parse("call").unwrap(), "{}"));
    assert_eq!(watcher.next().await.unwrap(), called);
}

#[tokio::test]
async fn the_tail_of_a_long_output_is_delivered_only_if_it_leaves_no_gap() {
    for (delivered, rest) in [(0, None), (3, Some(TOOL_TAIL_BYTES))] {
        let (live, mut watcher) = watched_session();
        let call = ToolCallId::parse("call").unwrap();
        let output = StreamKind::ToolOutput(call.clone());
        let called = appended(&live, 1, called(&call, "{}"));
        assert_eq!(watcher.next().await.unwrap(), called);
        live.open(&run(), output.clone());
        live.push(&output, "abc".get(..delivered).unwrap());
        if delivered > 0 {
            assert_eq!(watcher.next().await.unwrap(), delta(&output, "abc"));
        } else {
            live.push(&output, "abc");
        }
        live.push(&output, &"x".repeat(TOOL_TAIL_BYTES));
        let completed = appended(&live, 2, completed(&call));
        if let Some(rest) = rest {
            assert_eq!(watcher.next().await.unwrap(), delta(&output, &"x".repeat(rest)));
        }
        assert_eq!(watcher.next().await.unwrap(), completed);
    }
}

#[tokio::test]
async fn events_that_were_read_ahead_can_be_forgotten_and_each_read_needs_a_permit() {
    let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let session = SessionId::parse("session").unwrap();
    let lease = log.acquire(&session).await.unwrap();
    let new = ["a", "bb", "ccc"].map(|id| NewEntry {
        id: EventId::parse(id).unwrap(),
        at: Timestamp(0),
        event: SessionEvent::Renamed { title: id.to_owned() },
    });
    log.append(&lease, Seq::START, &new).await.unwrap();
    let permits = Arc::new(Semaphore::new(1));
    let watcher = Watcher::new(log, session, Seq::START, Arc::default());
    let mut watcher = watcher.limit_reads(Arc::clone(&permits));
    for (seq, ahead) in [(1, "bb".len() + "ccc".len()), (2, "ccc".len()), (3, 0)] {
        let held = (permits.available_permits() > 0).then(|| Arc::clone(&permits).try_acquire_owned());
        assert!(watcher.next().now_or_never().is_none(), "another reader has the permit");
        drop(held);
        let Ok(SessionUpdate::Entry(entry)) = watcher.next().await else { panic!("no event") };
        assert_eq!((entry.seq, watcher.read_ahead_bytes()), (Seq(seq), ahead));
        assert_eq!(watcher.has_read_ahead_of(3), seq < 3);
        assert_eq!(permits.available_permits(), 0);
        assert!(watcher.take_read_permit().is_some());
        watcher.forget_read_ahead();
        assert_eq!(watcher.read_ahead_bytes(), 0);
    }
    assert!(watcher.try_next().await.unwrap().is_none());
    assert_eq!(permits.available_permits(), 1, "a read that brings nothing keeps no permit");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_without_deltas_gets_events_only_and_is_not_woken_by_text() {
    let (live, watcher) = watched_session();
    let mut watcher = watcher.without_deltas();
    let message = MessageId::parse("message").unwrap();
    let stream = StreamKind::Message(message.clone());
    live.open(&run(), stream.clone());
    let started = appended(&live, 1, RunEvent::Message(MessageEvent::Started { message: message.clone() }));
    assert_eq!(watcher.next().await.unwrap(), started);

    let wakes = Arc::<CountWakes>::default();
    let waker = Waker::from(Arc::clone(&wakes));
    let mut next = Box::pin(watcher.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    live.push(&stream, "one");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    let (text, media) = ("one".to_owned(), Vec::new());
    let completed = appended(&live, 2, RunEvent::Message(MessageEvent::Completed { message, text, media }));
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(next.await.unwrap(), completed);
    assert_eq!(watcher.try_next().await.unwrap(), None);
}
