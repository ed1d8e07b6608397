//! The output queue of a connection: a bounded queue of frames that knows how many bytes are in it.
//!
//! Frames are queued in batches, so that the writer is woken once per batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use crate::frame_memory::FrameMemory;

/// The capacity of the queue in batches. Never reached, because the frame limits below are lower.
pub const OUTGOING_FRAMES: usize = 1024;

/// The driver takes process output while fewer bytes than this wait to be written to the peer.
pub const OUTPUT_BACKLOG_BYTES: usize = 1 << 20;

/// The driver takes process output while fewer frames than this wait to be written.
pub const OUTPUT_BACKLOG_FRAMES: usize = 256;

/// The driver reads requests while fewer bytes than this wait to be written.
pub const REPLY_BACKLOG_BYTES: usize = 2 << 20;

/// The driver reads requests while fewer frames than this wait to be written.
pub const REPLY_BACKLOG_FRAMES: usize = 768;

/// Makes an output queue without a memory limit, for the only connection of a door.
pub fn outgoing() -> (OutgoingSender, OutgoingReceiver) {
    outgoing_within(FrameMemory::unlimited())
}

/// Makes an output queue whose bytes are counted in `memory`, for one of many connections.
pub(crate) fn outgoing_within(memory: FrameMemory) -> (OutgoingSender, OutgoingReceiver) {
    let (sender, batches) = mpsc::channel(OUTGOING_FRAMES);
    let (bytes, frames, written) = (AtomicUsize::new(0), AtomicUsize::new(0), Notify::new());
    let backlog = Arc::new(Backlog { bytes, frames, written, memory });
    let outgoing = OutgoingSender { sender, batch: Vec::new(), backlog: Arc::clone(&backlog) };
    (outgoing, OutgoingReceiver { batches, frames: VecDeque::new(), backlog })
}

/// The driver's end of the queue.
#[derive(Debug)]
pub struct OutgoingSender {
    sender: mpsc::Sender<Vec<Vec<u8>>>,
    /// The frames of the next batch.
    batch: Vec<Vec<u8>>,
    backlog: Arc<Backlog>,
}

/// The writer's end of the queue. Dropping it tells the driver that the peer no longer reads.
#[derive(Debug)]
pub struct OutgoingReceiver {
    batches: mpsc::Receiver<Vec<Vec<u8>>>,
    /// The frames of the current batch that were not taken yet.
    frames: VecDeque<Vec<u8>>,
    backlog: Arc<Backlog>,
}

#[derive(Debug)]
struct Backlog {
    bytes: AtomicUsize,
    frames: AtomicUsize,
    /// Notified after each write to the peer.
    written: Notify,
    memory: FrameMemory,
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.memory.uncount(*self.bytes.get_mut());
    }
}

impl OutgoingSender {
    /// Adds a frame to the batch that the next [`flush`](Self::flush) sends.
    pub(crate) fn send(&mut self, frame: Vec<u8>) {
        self.backlog.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        self.backlog.memory.count(frame.len());
        self.backlog.frames.fetch_add(1, Ordering::Relaxed);
        self.batch.push(frame);
    }

    /// Sends the batch to the writer. Waits only if the queue holds [`OUTGOING_FRAMES`] batches.
    pub(crate) async fn flush(&mut self) {
        if !self.batch.is_empty() {
            // If the writer is gone, the frames are dropped; the driver learns it from `closed`.
            let _ = self.sender.send(std::mem::take(&mut self.batch)).await;
        }
    }

    /// Whether there is room for process output. A peer that does not read gets no more of it.
    pub(crate) fn has_room_for_output(&self) -> bool {
        self.has_room(OUTPUT_BACKLOG_BYTES, OUTPUT_BACKLOG_FRAMES)
    }

    /// Whether there is room for replies. The limit is higher than for process output, so that the requests of a peer that
    /// sends and does not read are still handled.
    pub(crate) fn has_room_for_replies(&self) -> bool {
        self.has_room(REPLY_BACKLOG_BYTES, REPLY_BACKLOG_FRAMES)
    }

    fn has_room(&self, bytes: usize, frames: usize) -> bool {
        let (queued_bytes, queued) =
            (self.backlog.bytes.load(Ordering::Relaxed), self.backlog.frames.load(Ordering::Relaxed));
        queued_bytes < bytes && queued < frames
    }

    /// How many bytes wait to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.backlog.bytes.load(Ordering::Relaxed)
    }

    /// Waits until the writer has written something since the last call.
    pub(crate) async fn wait_for_write(&self) {
        self.backlog.written.notified().await;
    }

    /// Waits until the writer is gone.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl OutgoingReceiver {
    /// Waits for the next frame by blocking the thread. None when the driver is gone.
    pub fn blocking_next(&mut self) -> Option<Vec<u8>> {
        while self.frames.is_empty() {
            self.frames = self.batches.blocking_recv()?.into();
        }
        self.take()
    }

    /// Waits for the next frame. None when the driver is gone.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        while self.frames.is_empty() {
            self.frames = self.batches.recv().await?.into();
        }
        self.take()
    }

    /// The next frame, if one is queued.
    pub fn try_next(&mut self) -> Option<Vec<u8>> {
        while self.frames.is_empty() {
            self.frames = self.batches.try_recv().ok()?.into();
        }
        self.take()
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        self.backlog.frames.fetch_sub(1, Ordering::Relaxed);
        self.frames.pop_front()
    }

    /// Notes that `bytes` bytes of the taken frames were written to the peer.
    pub fn written(&self, bytes: usize) {
        self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.backlog.memory.uncount(bytes);
        self.backlog.written.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_frames_of_a_batch_are_received_one_by_one() {
        let (mut sender, mut receiver) = outgoing();
        for frame in [b"one".to_vec(), b"two".to_vec()] {
            sender.send(frame);
        }
        assert_eq!(receiver.try_next(), None, "the batch is not flushed yet");
        sender.flush().await;
        sender.send(b"three".to_vec());
        sender.flush().await;
        for frame in [&b"one"[..], b"two", b"three"] {
            assert_eq!(receiver.next().await.as_deref(), Some(frame));
        }
        assert_eq!(receiver.try_next(), None);
        drop(sender);
        assert_eq!(receiver.next().await, None);
    }

    #[tokio::test]
    async fn room_is_limited_in_frames_and_in_bytes() {
        let (mut sender, mut receiver) = outgoing();
        for _ in 0..OUTPUT_BACKLOG_FRAMES - 1 {
            sender.send(Vec::new());
        }
        assert!(sender.has_room_for_output());
        sender.send(Vec::new());
        assert!(!sender.has_room_for_output() && sender.has_room_for_replies());
        sender.flush().await;
        receiver.try_next();
        assert!(sender.has_room_for_output());
        sender.send(vec![0; REPLY_BACKLOG_BYTES]);
        assert!(!sender.has_room_for_replies());
        sender.flush().await;
        receiver.written(REPLY_BACKLOG_BYTES);
        assert!(sender.has_room_for_replies());
    }
}
