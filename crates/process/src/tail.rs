//! The last bytes of a stream.

use std::collections::VecDeque;

/// Keeps the last `limit` bytes that were pushed.
#[derive(Debug)]
pub(crate) struct Tail {
    limit: usize,
    bytes: VecDeque<u8>,
}

impl Tail {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, bytes: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        let kept = piece.len().min(self.limit);
        let piece = &piece[piece.len() - kept..];
        let excess = (self.bytes.len() + kept).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(piece);
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
    fn the_oldest_bytes_go_first() {
        assert_eq!(kept(4, &["abc", "def"]), b"cdef");
        assert_eq!(kept(4, &["abcdefgh"]), b"efgh");
        assert_eq!(kept(4, &["ab"]), b"ab");
        assert_eq!(kept(4, &["abcd", "", "e"]), b"bcde");
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        assert_eq!(kept(0, &["abc"]), b"");
    }
}
