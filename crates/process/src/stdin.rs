//! The queue of writes to the standard input of a process.
//!
//! A write is accepted when fewer than [`STDIN_QUEUE_BYTES`] are ahead of it. Until then it waits, and a report tells when
//! it is accepted. So a process that does not read delays only its own writer.

use std::collections::VecDeque;

use crate::{STDIN_BACKLOG_WRITES, STDIN_QUEUE_BYTES};

/// Identifies a write. The writer chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriteId(pub u64);

/// The state of a queued write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStatus {
    /// The write is queued.
    Accepted,
    /// The write waits because too many bytes are ahead of it. A report tells when it is accepted or lost.
    Waiting,
}

/// Why a write was refused. None of its bytes is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The process was started without an open standard input.
    #[error("stdin is closed")]
    Closed,
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// No more bytes than this may wait.
    #[error("{limit} unread bytes are waiting")]
    TooManyBytes {
        /// In bytes.
        limit: usize,
    },
    /// [`STDIN_BACKLOG_WRITES`] are waiting.
    #[error("{STDIN_BACKLOG_WRITES} unread writes are waiting")]
    TooManyWrites,
}

/// The queue of one process.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    writes: VecDeque<Write>,
    /// Unwritten bytes in `writes`.
    bytes: usize,
    /// The number of accepted writes at the front of `writes`.
    accepted: usize,
    /// Unwritten bytes of the accepted writes.
    accepted_bytes: usize,
}

#[derive(Debug)]
struct Write {
    id: WriteId,
    bytes: Vec<u8>,
    /// How many of the bytes have been written.
    written: usize,
}

impl Write {
    fn left(&self) -> usize {
        self.bytes.len() - self.written
    }
}

impl Queue {
    /// Queues a write, unless more than `backlog_bytes` would wait. A larger one is accepted if nothing else waits.
    pub(crate) fn push(
        &mut self,
        id: WriteId,
        bytes: Vec<u8>,
        backlog_bytes: usize,
    ) -> Result<WriteStatus, WriteError> {
        if bytes.is_empty() {
            return Ok(WriteStatus::Accepted);
        }
        if self.bytes > 0 && self.bytes + bytes.len() > backlog_bytes {
            return Err(WriteError::TooManyBytes { limit: backlog_bytes });
        }
        if self.writes.len() >= STDIN_BACKLOG_WRITES {
            return Err(WriteError::TooManyWrites);
        }
        self.bytes += bytes.len();
        self.writes.push_back(Write { id, bytes, written: 0 });
        let accepted = self.accept_next().is_some();
        Ok(if accepted { WriteStatus::Accepted } else { WriteStatus::Waiting })
    }

    /// The next bytes to write, if any.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.writes.front().and_then(|write| write.bytes.get(write.written..))
    }

    /// Removes the first `count` bytes of the front, which were written. Returns the waiting writes that are accepted now.
    pub(crate) fn advance(&mut self, count: usize) -> Vec<WriteId> {
        let Some(front) = self.writes.front_mut() else { return Vec::new() };
        front.written += count;
        self.bytes -= count;
        self.accepted_bytes -= count;
        if front.left() == 0 {
            self.writes.pop_front();
            self.accepted -= 1;
        }
        std::iter::from_fn(|| self.accept_next()).collect()
    }

    /// Empties the queue. Returns the writes that were never accepted.
    pub(crate) fn abandon(self) -> Vec<WriteId> {
        self.writes.into_iter().skip(self.accepted).map(|write| write.id).collect()
    }

    /// Accepts the first write that still waits, if there is room.
    fn accept_next(&mut self) -> Option<WriteId> {
        let next = self.writes.get(self.accepted)?;
        if self.accepted > 0 && self.accepted_bytes >= STDIN_QUEUE_BYTES {
            return None;
        }
        self.accepted += 1;
        self.accepted_bytes += next.left();
        Some(next.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::STDIN_BACKLOG_BYTES;

    fn push(queue: &mut Queue, id: u64, size: usize) -> Result<WriteStatus, WriteError> {
        queue.push(WriteId(id), vec![b'x'; size], STDIN_BACKLOG_BYTES)
    }

    #[test]
    fn writes_wait_when_the_queue_is_full_and_are_accepted_in_order() {
        let mut queue = Queue::default();
        assert_eq!(push(&mut queue, 1, STDIN_QUEUE_BYTES), Ok(WriteStatus::Accepted));
        assert_eq!(push(&mut queue, 2, 10), Ok(WriteStatus::Waiting));
        assert_eq!(push(&mut queue, 3, 10), Ok(WriteStatus::Waiting));
        assert_eq!(queue.advance(1), [WriteId(2)]);
        assert_eq!(queue.advance(10), [WriteId(3)]);
        assert!(queue.abandon().is_empty());
    }

    #[test]
    fn a_large_write_is_accepted_only_if_nothing_else_waits() {
        let mut queue = Queue::default();
        assert_eq!(push(&mut queue, 1, STDIN_BACKLOG_BYTES + 1), Ok(WriteStatus::Accepted));
        assert_eq!(push(&mut queue, 2, 1), Err(WriteError::TooManyBytes { limit: STDIN_BACKLOG_BYTES }));
        assert_eq!(push(&mut queue, 3, 0), Ok(WriteStatus::Accepted));
    }

    #[test]
    fn the_number_of_waiting_writes_is_bounded() {
        let mut queue = Queue::default();
        for id in 0..STDIN_BACKLOG_WRITES as u64 {
            push(&mut queue, id, 1).unwrap();
        }
        assert_eq!(push(&mut queue, 0, 1), Err(WriteError::TooManyWrites));
    }

    #[test]
    fn abandon_returns_the_writes_that_were_never_accepted() {
        let mut queue = Queue::default();
        push(&mut queue, 1, STDIN_QUEUE_BYTES).unwrap();
        push(&mut queue, 2, 1).unwrap();
        push(&mut queue, 3, 1).unwrap();
        assert_eq!(queue.abandon(), [WriteId(2), WriteId(3)]);
    }

    #[test]
    fn bytes_keep_their_order() {
        let mut queue = Queue::default();
        queue.push(WriteId(1), b"abc".to_vec(), STDIN_BACKLOG_BYTES).unwrap();
        queue.push(WriteId(2), b"de".to_vec(), STDIN_BACKLOG_BYTES).unwrap();
        assert_eq!(queue.front(), Some(&b"abc"[..]));
        queue.advance(2);
        assert_eq!(queue.front(), Some(&b"c"[..]));
        queue.advance(1);
        assert_eq!(queue.front(), Some(&b"de"[..]));
        queue.advance(2);
        assert_eq!(queue.front(), None);
    }
}
