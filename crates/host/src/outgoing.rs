//! The way out of a connection: a bounded queue of frames that knows how many bytes are in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

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
    let (sender, frames) = mpsc::channel(OUTGOING_FRAMES);
    let backlog = Arc::new(Backlog::default());
    (Outgoing { sender, backlog: Arc::clone(&backlog) }, Outlet { frames, backlog })
}

/// The end that frames are put into.
#[derive(Debug)]
pub struct Outgoing {
    sender: mpsc::Sender<Vec<u8>>,
    backlog: Arc<Backlog>,
}

/// The end that frames are taken out of. Dropping it tells the other end that the peer has left.
#[derive(Debug)]
pub struct Outlet {
    frames: mpsc::Receiver<Vec<u8>>,
    backlog: Arc<Backlog>,
}

#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    shrunk: Notify,
}

impl Outgoing {
    /// Queues a frame. Waits only if [`OUTGOING_FRAMES`] are queued already.
    pub(crate) async fn send(&self, frame: Vec<u8>) {
        self.backlog.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        // A peer that has left needs no frame; `left` tells the driver.
        let _ = self.sender.send(frame).await;
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
        let queued = OUTGOING_FRAMES - self.sender.capacity();
        self.backlog.bytes.load(Ordering::Relaxed) < bytes && queued < frames
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
        self.frames.blocking_recv()
    }

    /// The next frame, for a task.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.frames.recv().await
    }

    /// A frame that is there already.
    pub fn try_next(&mut self) -> Option<Vec<u8>> {
        self.frames.try_recv().ok()
    }

    /// Notes that `bytes` of the frames taken out have left.
    pub fn written(&self, bytes: usize) {
        self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.backlog.shrunk.notify_one();
    }
}
