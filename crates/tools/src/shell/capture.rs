//! Keeps the beginning and the end of a command's output, within a limit.

use std::collections::VecDeque;

use crate::shell::utf8::{incomplete_suffix, orphaned_prefix};

/// The most output of one command that its result shows, in bytes: half from the start, half from the end.
pub const SHELL_OUTPUT_BYTES: usize = 64 * 1024;

/// Keeps the head and the tail of the pushed bytes and counts the bytes between them.
#[derive(Debug)]
pub(super) struct Capture {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// How many bytes are in neither `head` nor `tail`.
    dropped: u64,
}

impl Default for Capture {
    fn default() -> Self {
        Self::with_limit(SHELL_OUTPUT_BYTES)
    }
}

impl Capture {
    fn with_limit(limit: usize) -> Self {
        Self { half: limit / 2, head: Vec::new(), tail: VecDeque::new(), dropped: 0 }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        let to_head = piece.len().min(self.half - self.head.len());
        let (head, rest) = piece.split_at(to_head);
        self.head.extend(head);
        let kept = rest.len().min(self.half);
        let excess = (self.tail.len() + kept).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.dropped += (excess + rest.len() - kept) as u64;
        self.tail.extend(&rest[rest.len() - kept..]);
    }

    /// The text, with a note of how many bytes are missing where. Never cuts within a character.
    pub(super) fn into_text(mut self) -> String {
        let tail = Vec::from(std::mem::take(&mut self.tail));
        if self.dropped == 0 {
            self.head.extend(tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let (head_cut, tail_cut) = (incomplete_suffix(&self.head), orphaned_prefix(&tail));
        let cut = self.dropped + (head_cut + tail_cut) as u64;
        let head = String::from_utf8_lossy(&self.head[..self.head.len() - head_cut]);
        let tail = String::from_utf8_lossy(&tail[tail_cut..]);
        format!("{head}\n[… {cut} bytes cut here …]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(limit: usize, pieces: &[&[u8]]) -> String {
        let mut capture = Capture::with_limit(limit);
        for piece in pieces {
            capture.push(piece);
        }
        capture.into_text()
    }

    #[test]
    fn output_up_to_the_limit_is_complete() {
        assert_eq!(captured(8, &[b"abcdefgh"]), "abcdefgh");
        assert_eq!(captured(8, &[b"abc", b"def", b"gh"]), "abcdefgh");
        assert_eq!(captured(8, &[b"abcdefghi"]), "abcd\n[… 1 bytes cut here …]\nfghi");
        let most = vec![b'x'; SHELL_OUTPUT_BYTES];
        let mut capture = Capture::default();
        capture.push(&most);
        assert_eq!(capture.into_text().len(), SHELL_OUTPUT_BYTES);
    }

    #[test]
    fn bytes_dropped_to_keep_characters_whole_are_counted() {
        // Four bytes of each side hold one ASCII character, one of two bytes and half of the next.
        let text = "aäöüäöüb";
        let shown = captured(8, &[text.as_bytes()]);
        assert_eq!(shown, "aä\n[… 8 bytes cut here …]\nüb");
        assert_eq!("aäüb".len() + 8, text.len());
    }

    proptest! {
        #[test]
        fn every_byte_is_shown_or_counted(
            sizes in prop::collection::vec(0usize..30, 0..9), limit in 0usize..40,
        ) {
            let mut capture = Capture::with_limit(limit);
            let mut all = Vec::new();
            for size in sizes {
                let piece: Vec<u8> = (0..size).map(|n| b'a' + ((all.len() + n) % 26) as u8).collect();
                capture.push(&piece);
                all.extend(piece);
            }
            let text = capture.into_text();
            match text.split_once("\n[… ") {
                None => prop_assert_eq!(text.as_bytes(), &all[..]),
                Some((head, rest)) => {
                    let (cut, tail) = rest.split_once(" bytes cut here …]\n").unwrap();
                    let cut: usize = cut.parse().unwrap();
                    prop_assert_eq!(head.len() + cut + tail.len(), all.len());
                    prop_assert!(all.starts_with(head.as_bytes()) && all.ends_with(tail.as_bytes()));
                }
            }
        }
    }
}
