//! The way out of a connection: a bounded queue of frames that knows how many bytes are in it.
//!
//! Frames that belong together go through it together: whoever writes them is woken once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use crate::frame_memory::FrameMemory;

/// How many frames may wait to be written. Never reached: the limits below are lower.
pub const OUTGOING_FRAMES: usize = 1024;

/// Output of processes is taken while fewer bytes than this wait to be written to the peer.
pub const OUTPUT_BACKLOG_BYTES: usize = 1 << 20;

/// Output of processes is taken while fewer frames than this wait to be written.
pub const OUTPUT_BACKLOG_FRAMES: usize = 256;

/// Requests are served while fewer bytes than this wait to be written.
pub const REPLY_BACKLOG_BYTES: usize = 2 << 20;

/// Requests are served while fewer frames than this wait to be written.
pub const REPLY_BACKLOG_FRAMES: usize = 768;

/// Makes the two ends of a way out.
pub fn outgoing() -> (Outgoing, Outlet) {
    outgoing_within(FrameMemory::unlimited())
}

/// The same for one of many: what waits is counted in `memory`.
pub(crate) fn outgoing_within(memory: FrameMemory) -> (Outgoing, Outlet) {
    let (sender, batches) = mpsc::channel(OUTGOING_FRAMES);
    let (bytes, frames, shrunk) = (AtomicUsize::new(0), AtomicUsize::new(0), Notify::new());
    let backlog = Arc::new(Backlog { bytes, frames, shrunk, memory });
    let outgoing = Outgoing { sender, gathered: Vec::new(), backlog: Arc::clone(&backlog) };
    (outgoing, Outlet { batches, frames: VecDeque::new(), backlog })
}

/// The end that frames are put into.
#[derive(Debug)]
pub struct Outgoing {
    sender: mpsc::Sender<Vec<Vec<u8>>>,
    /// Frames that wait for others to go along with.
    gathered: Vec<Vec<u8>>,
    backlog: Arc<Backlog>,
}

/// The end that frames are taken out of. Dropping it tells the other end that the peer has left.
#[derive(Debug)]
pub struct Outlet {
    batches: mpsc::Receiver<Vec<Vec<u8>>>,
    /// Those that arrived together and were not taken out yet.
    frames: VecDeque<Vec<u8>>,
    backlog: Arc<Backlog>,
}

#[derive(Debug)]
struct Backlog {
    bytes: AtomicUsize,
    frames: AtomicUsize,
    shrunk: Notify,
    memory: FrameMemory,
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.memory.uncount(*self.bytes.get_mut());
    }
}

impl Outgoing {
    /// Queues a frame, which leaves with the next [`flush`](Self::flush).
    pub(crate) fn send(&mut self, frame: Vec<u8>) {
        self.backlog.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        self.backlog.memory.count(frame.len());
        self.backlog.frames.fetch_add(1, Ordering::Relaxed);
        self.gathered.push(frame);
    }

    /// Lets the frames leave. Waits only if [`OUTGOING_FRAMES`] are queued already.
    pub(crate) async fn flush(&mut self) {
        if !self.gathered.is_empty() {
            // A peer that has left needs no frame; `left` tells the driver.
            let _ = self.sender.send(std::mem::take(&mut self.gathered)).await;
        }
    }

    /// Whether there is room for output of processes: a peer that does not read gets no more of it.
    pub(crate) fn has_room_for_output(&self) -> bool {
        self.has_room(OUTPUT_BACKLOG_BYTES, OUTPUT_BACKLOG_FRAMES)
    }

    /// Whether there is room for replies. More than for output, so that a peer who is busy sending
    /// is heard although it does not read.
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

    /// Waits until something was written since the last call.
    pub(crate) async fn shrunk(&self) {
        self.backlog.shrunk.notified().await;
    }

    /// Waits until the other end is gone.
    pub(crate) async fn left(&self) {
        self.sender.closed().await;
    }
}

impl Outlet {
    /// The next frame, for a thread that may block. None when no more will come.
    pub fn blocking_next(&mut self) -> Option<Vec<u8>> {
        while self.frames.is_empty() {
            self.frames = self.batches.blocking_recv()?.into();
        }
        self.take()
    }

    /// The next frame, for a task.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        while self.frames.is_empty() {
            self.frames = self.batches.recv().await?.into();
        }
        self.take()
    }

    /// A frame that is there already.
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

    /// Notes that `bytes` of the frames taken out have left.
    pub fn written(&self, bytes: usize) {
        self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.backlog.memory.uncount(bytes);
        self.backlog.shrunk.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_that_leave_together_come_out_one_by_one_and_count_as_such() {
        let (mut outgoing, mut outlet) = outgoing();
        for frame in [b"one".to_vec(), b"two".to_vec()] {
            outgoing.send(frame);
        }
        assert_eq!(outlet.try_next(), None, "they wait for others");
        outgoing.flush().await;
        outgoing.send(b"three".to_vec());
        outgoing.flush().await;
        for frame in [&b"one"[..], b"two", b"three"] {
            assert_eq!(outlet.next().await.as_deref(), Some(frame));
        }
        assert_eq!(outlet.try_next(), None);
        drop(outgoing);
        assert_eq!(outlet.next().await, None);
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_frames_and_so_many_bytes() {
        let (mut outgoing, mut outlet) = outgoing();
        for _ in 0..OUTPUT_BACKLOG_FRAMES - 1 {
            outgoing.send(Vec::new());
        }
        assert!(outgoing.has_room_for_output());
        outgoing.send(Vec::new());
        assert!(!outgoing.has_room_for_output() && outgoing.has_room_for_replies());
        outgoing.flush().await;
        outlet.try_next();
        assert!(outgoing.has_room_for_output());
        outgoing.send(vec![0; REPLY_BACKLOG_BYTES]);
        assert!(!outgoing.has_room_for_replies());
        outgoing.flush().await;
        outlet.written(REPLY_BACKLOG_BYTES);
        assert!(outgoing.has_room_for_replies());
    }
}
