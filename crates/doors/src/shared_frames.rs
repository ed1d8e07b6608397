//! Frames of events that many connections of one dialect send: each is made once and shared.
//!
//! All connections of a door share one [`SharedFrames`]. It keeps the frames of the last events only, because connections
//! send an event at about the same time; one that is late makes its frame again. It has no effect but on the time that a
//! machine takes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parlor_vocab::Entry;

/// How many frames are kept.
pub const MAX_SHARED_FRAMES: usize = 64;

/// The limit in bytes for the kept frames. A frame that is larger than this is not shared.
pub const MAX_SHARED_BYTES: usize = 256 << 10;

/// The last frames of all connections of a door.
#[derive(Debug, Default)]
pub struct SharedFrames(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    frames: VecDeque<KeptFrame>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptFrame {
    /// Kept too, so that no other event gets its address, by which the frame is found.
    entry: Arc<Entry>,
    variant: u8,
    frame: Bytes,
}

impl SharedFrames {
    /// The frame of `entry`, which `make` makes if it is not kept. Connections whose frames differ pass different numbers
    /// as `variant`.
    pub(crate) fn get_or_make(
        &self,
        entry: &Arc<Entry>,
        variant: u8,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Bytes {
        if let Some(frame) = self.lock().get(entry, variant) {
            return frame;
        }
        // Outside of the lock: two connections may make the same frame at the same time, but none waits for another.
        let frame = Bytes::from(make());
        let dropped = self.lock().keep(KeptFrame { entry: Arc::clone(entry), variant, frame: frame.clone() });
        drop(dropped);
        frame
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn get(&self, entry: &Arc<Entry>, variant: u8) -> Option<Bytes> {
        // The latest first: most connections send the latest event.
        let kept =
            self.frames.iter().rev().find(|kept| Arc::ptr_eq(&kept.entry, entry) && kept.variant == variant);
        kept.map(|kept| kept.frame.clone())
    }

    /// Keeps a frame, and returns the frames that have to make room for it.
    fn keep(&mut self, frame: KeptFrame) -> Vec<KeptFrame> {
        self.bytes += frame.frame.len();
        self.frames.push_back(frame);
        let mut dropped = Vec::new();
        while self.frames.len() > MAX_SHARED_FRAMES || self.bytes > MAX_SHARED_BYTES {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.bytes -= oldest.frame.len();
            dropped.push(oldest);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{EventId, Seq, SessionEvent, Timestamp};

    use super::*;

    fn entry() -> Arc<Entry> {
        let id = EventId::parse("event").unwrap();
        Arc::new(Entry { seq: Seq(1), id, at: Timestamp(0), event: SessionEvent::Cleared })
    }

    /// How many frames are kept, and their bytes.
    fn kept(frames: &SharedFrames) -> (usize, usize) {
        let kept = frames.lock();
        (kept.frames.len(), kept.bytes)
    }

    #[test]
    fn a_frame_is_made_once_for_each_event_and_variant() {
        let frames = SharedFrames::default();
        let (one, equal) = (entry(), entry());
        let never = || -> Vec<u8> { panic!("it was made before") };
        assert_eq!(frames.get_or_make(&one, 0, || b"a".to_vec()), "a");
        assert_eq!(frames.get_or_make(&one, 1, || b"b".to_vec()), "b");
        assert_eq!(frames.get_or_make(&equal, 0, || b"c".to_vec()), "c");
        assert_eq!(frames.get_or_make(&one, 0, never), "a");
        assert_eq!(frames.get_or_make(&one, 1, never), "b");
        assert_eq!(frames.get_or_make(&equal, 0, never), "c");
    }

    #[test]
    fn frames_are_limited_in_number_and_in_bytes() {
        let frames = SharedFrames::default();
        for _ in 0..2 * MAX_SHARED_FRAMES {
            frames.get_or_make(&entry(), 0, || vec![b'x']);
        }
        assert_eq!(kept(&frames), (MAX_SHARED_FRAMES, MAX_SHARED_FRAMES));
        let large = entry();
        frames.get_or_make(&large, 0, || vec![b'x'; MAX_SHARED_BYTES]);
        assert_eq!(kept(&frames), (1, MAX_SHARED_BYTES));
        frames.get_or_make(&entry(), 0, || vec![b'x'; MAX_SHARED_BYTES + 1]);
        assert_eq!(kept(&frames), (0, 0));
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
