//! The numbered events of one process, put into their order, that its handle has not taken yet.
//!
//! A server may send events out of order, and after a resume some come twice: as an event and in the answer to a read. The
//! handle gets each once, in the order of the numbers, and an error if one is lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_doors::exec::ByteChunk;
use serde::Deserialize;

use super::ExecServerError;
use super::output::OUTPUT_BACKLOG_BYTES;
use crate::child::backlog::Backlog;

/// What an event costs on top of its bytes.
const EVENT_OVERHEAD_BYTES: usize = 64;

/// How many events may wait for one with a smaller number.
const MAX_HELD_EVENTS: usize = 256;

/// The most bytes of output in those events.
const MAX_HELD_BYTES: usize = 1 << 20;

/// The stream that a piece of output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecProcessStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal.
    Pty,
}

/// What a process did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecProcessEvent {
    /// It wrote these bytes.
    Output {
        /// The stream that it wrote to.
        stream: ExecProcessStream,
        /// The bytes. A piece may end anywhere, even inside of a character.
        bytes: Vec<u8>,
    },
    /// It exited. What it left in the background may still write.
    Exited {
        /// The exit code that the server reported.
        exit_code: i32,
        /// Whether its sandbox probably made it fail.
        is_sandbox_denied: bool,
    },
}

/// A chunk of output, as `process/output` and `process/read` have it.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) seq: u64,
    stream: ExecProcessStream,
    chunk: ByteChunk,
}

impl Chunk {
    pub(super) fn event(self) -> ExecProcessEvent {
        ExecProcessEvent::Output { stream: self.stream, bytes: self.chunk.0 }
    }
}

/// The result of `process/read`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    pub(super) chunks: Vec<Chunk>,
    pub(super) next_seq: u64,
    exited: bool,
    exit_code: Option<i32>,
    closed: bool,
    failure: Option<String>,
    #[serde(default)]
    sandbox_denied: bool,
}

/// An event with its number; `None` is the last one.
type Numbered = (u64, Option<ExecProcessEvent>);

/// How the events ended.
#[derive(Clone, Debug)]
pub(super) enum EventsEnd {
    /// The last event has arrived.
    Closed,
    /// The connection ended, or events were lost.
    Lost(ExecServerError),
}

#[derive(Debug)]
pub(super) struct ProcessEvents {
    pub(super) process_id: String,
    backlog: Backlog<(u64, ExecProcessEvent), Option<EventsEnd>>,
    order: Mutex<Order>,
}

/// Which events have arrived.
#[derive(Debug, Default)]
struct Order {
    /// The number of the last event in the backlog.
    last: u64,
    /// Events that came before one with a smaller number.
    held: BTreeMap<u64, Option<ExecProcessEvent>>,
    held_bytes: usize,
    has_exited: bool,
}

impl ProcessEvents {
    /// The events of a process after the number `after`. `has_exited` says whether the exit is before them.
    pub(super) fn new(process_id: String, after: u64, has_exited: bool) -> Self {
        let order = Order { last: after, has_exited, ..Order::default() };
        Self { process_id, backlog: Backlog::new(OUTPUT_BACKLOG_BYTES), order: Mutex::new(order) }
    }

    /// Takes an event from the server, and returns those that are next now. For the connection's task alone.
    pub(super) fn arrived(&self, (seq, event): Numbered) -> Result<Vec<Numbered>, ExecServerError> {
        let mut order = self.order();
        if seq <= order.last || order.held.contains_key(&seq) {
            return Ok(Vec::new());
        }
        order.held.insert(seq, event);
        let (mut ready, mut next) = (Vec::new(), order.last + 1);
        while let Some(entry) = order.held.first_entry().filter(|entry| *entry.key() == next) {
            ready.push(entry.remove_entry());
            next += 1;
        }
        order.settle(&ready);
        if order.held.len() > MAX_HELD_EVENTS || order.held_bytes > MAX_HELD_BYTES {
            return Err(ExecServerError::OutputLost { process_id: self.process_id.clone() });
        }
        Ok(ready)
    }

    /// Takes the answer to a read after the last event, and returns the events that are next now.
    pub(super) fn caught_up(&self, page: Page) -> Result<Vec<Numbered>, ExecServerError> {
        let lost = || ExecServerError::OutputLost { process_id: self.process_id.clone() };
        if let Some(failure) = page.failure {
            return Err(ExecServerError::protocol(&format!(
                "process {:?} failed: {failure}",
                self.process_id
            )));
        }
        let mut order = self.order();
        let mut events: Vec<Numbered> = Vec::new();
        let mut exit = (page.exited && !order.has_exited).then_some(ExecProcessEvent::Exited {
            exit_code: page.exit_code.unwrap_or(-1),
            is_sandbox_denied: page.sandbox_denied,
        });
        let mut next = order.last + 1;
        let first = next;
        let mut chunks = page.chunks.into_iter().filter(|chunk| chunk.seq >= first).peekable();
        // The numbers without a chunk are those of the exit and of the last event.
        while next < page.next_seq {
            let event = match chunks.next_if(|chunk| chunk.seq == next) {
                Some(chunk) => Some(chunk.event()),
                None if page.closed && next + 1 == page.next_seq => None,
                None => Some(exit.take().ok_or_else(lost)?),
            };
            events.push((next, event));
            next += 1;
        }
        let mut ready = events;
        while let Some(entry) = order.held.first_entry().filter(|entry| *entry.key() <= next) {
            let (seq, event) = entry.remove_entry();
            if seq == next {
                ready.push((seq, event));
                next += 1;
            }
        }
        order.settle(&ready);
        Ok(ready)
    }

    /// Puts an event in, or returns it if there is no room.
    pub(super) fn try_push(&self, event: Numbered) -> Result<(), Numbered> {
        let (seq, Some(event)) = event else {
            self.end(EventsEnd::Closed);
            return Ok(());
        };
        let cost = bytes(&event) + EVENT_OVERHEAD_BYTES;
        self.backlog.try_push((seq, event), cost).map_err(|(seq, event)| (seq, Some(event)))
    }

    /// Puts an event in once there is room.
    pub(super) async fn push(&self, event: Numbered) {
        if let (seq, Some(event)) = event {
            let cost = bytes(&event) + EVENT_OVERHEAD_BYTES;
            self.backlog.push((seq, event), cost).await;
        }
    }

    /// Notes how the events ended. Only the first end counts.
    pub(super) fn end(&self, end: EventsEnd) {
        self.backlog.set_status(|status| {
            status.get_or_insert(end);
        });
    }

    /// The next event with its number. Cancel safe.
    pub(super) async fn next(&self) -> Result<Option<(u64, ExecProcessEvent)>, ExecServerError> {
        // Without this, a server that is as fast as its reader would keep the reader's task from ever yielding.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.backlog.take(Option::clone) {
                Ok(event) => return Ok(Some(event)),
                Err(Some(EventsEnd::Closed)) => return Ok(None),
                Err(Some(EventsEnd::Lost(error))) => return Err(error),
                Err(None) => self.backlog.arrived().await,
            }
        }
    }

    /// Drops all events, because the handle is gone.
    pub(super) fn abandon(&self) {
        self.backlog.abandon();
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    /// Notes that these events leave in their order.
    fn settle(&mut self, ready: &[Numbered]) {
        self.last = ready.last().map_or(self.last, |(seq, _)| *seq);
        self.has_exited |=
            ready.iter().any(|(_, event)| matches!(event, Some(ExecProcessEvent::Exited { .. })));
        self.held_bytes = self.held.values().flatten().map(bytes).sum();
    }
}

fn bytes(event: &ExecProcessEvent) -> usize {
    match event {
        ExecProcessEvent::Output { bytes, .. } => bytes.len(),
        ExecProcessEvent::Exited { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(seq: u64) -> Numbered {
        let bytes = seq.to_string().into_bytes();
        (seq, Some(ExecProcessEvent::Output { stream: ExecProcessStream::Stdout, bytes }))
    }

    fn seqs(events: &[Numbered]) -> Vec<u64> {
        events.iter().map(|(seq, _)| *seq).collect()
    }

    /// The page of a read: chunks with these numbers.
    fn page(chunks: &[u64], next_seq: u64, exited: bool, closed: bool) -> Page {
        let chunks: Vec<_> =
            chunks.iter().map(|seq| json!({"seq": seq, "stream": "stdout", "chunk": "eA=="})).collect();
        let page = json!({
            "chunks": chunks, "nextSeq": next_seq, "exited": exited, "exitCode": exited.then_some(3),
            "closed": closed, "failure": null, "sandboxDenied": false,
        });
        serde_json::from_value(page).unwrap()
    }

    #[test]
    fn events_leave_once_and_in_the_order_of_their_numbers() {
        let process = ProcessEvents::new("p".to_owned(), 0, false);
        assert!(process.arrived(output(3)).unwrap().is_empty());
        assert!(process.arrived(output(2)).unwrap().is_empty());
        assert_eq!(seqs(&process.arrived(output(1)).unwrap()), [1, 2, 3]);
        for seq in 0..=3 {
            assert!(process.arrived(output(seq)).unwrap().is_empty(), "{seq} comes twice");
        }
        assert_eq!(seqs(&process.arrived((4, None)).unwrap()), [4]);
    }

    #[test]
    fn events_that_wait_for_a_lost_one_are_limited() {
        let process = ProcessEvents::new("p".to_owned(), 0, false);
        for seq in 2..2 + MAX_HELD_EVENTS as u64 {
            assert!(process.arrived(output(seq)).unwrap().is_empty());
        }
        let lost = process.arrived(output(1000)).unwrap_err();
        assert!(matches!(lost, ExecServerError::OutputLost { .. }), "{lost}");
        let process = ProcessEvents::new("p".to_owned(), 0, false);
        let bytes = vec![0; MAX_HELD_BYTES + 1];
        let large = ExecProcessEvent::Output { stream: ExecProcessStream::Stdout, bytes };
        assert!(process.arrived((2, Some(large))).is_err());
    }

    #[test]
    fn a_page_brings_what_was_missed_and_events_beside_it_are_not_repeated() {
        let process = ProcessEvents::new("p".to_owned(), 4, false);
        for seq in [6, 8] {
            assert!(process.arrived(output(seq)).unwrap().is_empty());
        }
        assert_eq!(seqs(&process.caught_up(page(&[5, 6, 7], 8, false, false)).unwrap()), [5, 6, 7, 8]);
        assert_eq!(seqs(&process.arrived(output(9)).unwrap()), [9]);
    }

    #[test]
    fn the_numbers_without_a_chunk_are_the_exit_and_the_end() {
        let exit = Some(ExecProcessEvent::Exited { exit_code: 3, is_sandbox_denied: false });
        let process = ProcessEvents::new("p".to_owned(), 1, false);
        let events = process.caught_up(page(&[2, 4], 6, true, true)).unwrap();
        assert_eq!(seqs(&events), [2, 3, 4, 5]);
        assert_eq!((&events[1].1, &events[3].1), (&exit, &None));
        // An exit that was seen before is not repeated, and nothing may be missing then.
        let process = ProcessEvents::new("p".to_owned(), 3, true);
        assert_eq!(seqs(&process.caught_up(page(&[4], 6, true, true)).unwrap()), [4, 5]);
        for (chunks, next, exited, closed) in
            [(&[3][..], 4, false, false), (&[3], 4, true, false), (&[], u64::MAX, true, true)]
        {
            let process = ProcessEvents::new("p".to_owned(), 1, exited);
            let lost = process.caught_up(page(chunks, next, exited, closed)).unwrap_err();
            assert!(matches!(lost, ExecServerError::OutputLost { .. }), "{lost}");
        }
    }
}
