//! A ring buffer with the last bytes of a stream.

use std::collections::VecDeque;

/// Keeps the last `limit` bytes that were pushed.
#[derive(Debug)]
pub(crate) struct Tail {
    limit: usize,
    /// How many bytes were pushed in all, including dropped ones.
    pushed: u64,
    bytes: VecDeque<u8>,
}

impl Tail {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, pushed: 0, bytes: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.pushed += piece.len() as u64;
        let kept = piece.len().min(self.limit);
        let piece = &piece[piece.len() - kept..];
        let excess = (self.bytes.len() + kept).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(piece);
    }

    /// Returns the bytes after `offset` (counted from the first pushed byte) that are still kept, and moves the offset to the
    /// end.
    pub(crate) fn since(&self, offset: &mut u64) -> impl Iterator<Item = u8> {
        let missing = usize::try_from(self.pushed - *offset).unwrap_or(usize::MAX);
        *offset = self.pushed;
        self.bytes.iter().skip(self.bytes.len().saturating_sub(missing)).copied()
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(limit: usize, pieces: &[&str]) -> Vec<u8> {
        let mut tail = Tail::new(limit);
        for piece in pieces {
            tail.push(piece.as_bytes());
        }
        tail.to_vec()
    }

    #[test]
    fn the_oldest_bytes_are_dropped_first() {
        assert_eq!(kept(4, &["abc", "def"]), b"cdef");
        assert_eq!(kept(4, &["abcdefgh"]), b"efgh");
        assert_eq!(kept(4, &["ab"]), b"ab");
        assert_eq!(kept(4, &["abcd", "", "e"]), b"bcde");
    }

    #[test]
    fn since_returns_each_kept_byte_once() {
        let (mut tail, mut offset) = (Tail::new(4), 0);
        tail.push(b"abc");
        assert_eq!(tail.since(&mut offset).collect::<Vec<_>>(), b"abc");
        assert_eq!(tail.since(&mut offset).count(), 0);
        tail.push(b"d");
        assert_eq!(tail.since(&mut offset).collect::<Vec<_>>(), b"d");
        tail.push(b"efghij");
        assert_eq!(tail.since(&mut offset).collect::<Vec<_>>(), b"ghij");
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        assert_eq!(kept(0, &["abc"]), b"");
    }
}
