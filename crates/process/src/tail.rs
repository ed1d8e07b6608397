//! The last bytes of a stream.

use std::collections::VecDeque;

/// Keeps the last `limit` bytes that were pushed.
#[derive(Debug)]
pub(crate) struct Tail {
    limit: usize,
    /// How many bytes were pushed in all.
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

    /// What was pushed since `place`, a count of bytes, as far as it is kept. The place is moved to the end.
    pub(crate) fn since(&self, place: &mut u64) -> impl Iterator<Item = u8> {
        let missing = usize::try_from(self.pushed - *place).unwrap_or(usize::MAX);
        *place = self.pushed;
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
    fn the_oldest_bytes_go_first() {
        assert_eq!(kept(4, &["abc", "def"]), b"cdef");
        assert_eq!(kept(4, &["abcdefgh"]), b"efgh");
        assert_eq!(kept(4, &["ab"]), b"ab");
        assert_eq!(kept(4, &["abcd", "", "e"]), b"bcde");
    }

    #[test]
    fn who_reads_on_gets_each_byte_once_as_far_as_it_is_kept() {
        let (mut tail, mut place) = (Tail::new(4), 0);
        tail.push(b"abc");
        assert_eq!(tail.since(&mut place).collect::<Vec<_>>(), b"abc");
        assert_eq!(tail.since(&mut place).count(), 0);
        tail.push(b"d");
        assert_eq!(tail.since(&mut place).collect::<Vec<_>>(), b"d");
        tail.push(b"efghij");
        assert_eq!(tail.since(&mut place).collect::<Vec<_>>(), b"ghij");
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        assert_eq!(kept(0, &["abc"]), b"");
    }
}
