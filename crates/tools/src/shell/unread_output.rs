//! The output of a background process that no call has read yet: a ring buffer of its last bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_vocab::ProcessExit;

use crate::redact::{Redact, StreamRedactor};
use crate::shell::utf8::{Utf8Decoder, incomplete_suffix, orphaned_prefix};

/// How many bytes of unread output are kept for one process. Beyond that, the oldest bytes are dropped.
pub const BACKGROUND_BYTES: usize = 256 * 1024;

/// The most output that one read returns, in bytes.
pub const BACKGROUND_READ_BYTES: usize = 64 * 1024;

/// Decoded and redacted output, ready to be read.
#[derive(Debug)]
pub(super) struct UnreadOutput {
    decoder: Utf8Decoder,
    redactor: StreamRedactor,
    unread: VecDeque<u8>,
    /// How many bytes were dropped since the last read.
    lost: u64,
}

/// The result of one read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) text: String,
    /// How many bytes before `text` were dropped unread.
    pub(super) lost: u64,
    /// How many bytes remain for the next read.
    pub(super) left: usize,
}

impl UnreadOutput {
    /// An empty buffer that removes the secrets that `redact` knows.
    pub(super) fn new(redact: &Arc<dyn Redact>) -> Self {
        Self {
            decoder: Utf8Decoder::default(),
            redactor: StreamRedactor::new(redact),
            unread: VecDeque::new(),
            lost: 0,
        }
    }

    /// Adds output of the process. An incomplete character and the possible beginning of a secret wait for the next
    /// piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let text = self.decoder.push(piece);
        let shown = self.redactor.push(&text).into_owned();
        self.append(&shown);
    }

    /// Ends the output. A process that did not exit by itself may have been stopped while it wrote a secret.
    pub(super) fn finish(&mut self, exit: ProcessExit) {
        let mut last = self.redactor.push(&self.decoder.finish()).into_owned();
        last.push_str(&match exit {
            ProcessExit::Code(_) => self.redactor.finish(),
            ProcessExit::Signal(_) | ProcessExit::Terminated | ProcessExit::Unknown => {
                self.redactor.finish_truncated()
            }
        });
        self.append(&last);
    }

    fn append(&mut self, text: &str) {
        self.unread.extend(text.as_bytes());
        let excess = self.unread.len().saturating_sub(BACKGROUND_BYTES);
        self.unread.drain(..excess);
        self.lost += excess as u64;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    /// Removes and returns the oldest unread output.
    pub(super) fn read(&mut self) -> Page {
        let mut lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let broken = orphaned_prefix(self.unread.make_contiguous());
            self.unread.drain(..broken);
            lost += broken as u64;
        }
        let mut length = self.unread.len().min(BACKGROUND_READ_BYTES);
        if length < self.unread.len() {
            length -= incomplete_suffix(&self.unread.make_contiguous()[..length]);
        }
        let bytes: Vec<u8> = self.unread.drain(..length).collect();
        Page { text: String::from_utf8_lossy(&bytes).into_owned(), lost, left: self.unread.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::NoSecrets;

    fn output() -> UnreadOutput {
        UnreadOutput::new(&(Arc::new(NoSecrets) as Arc<dyn Redact>))
    }

    #[test]
    fn each_read_continues_where_the_last_one_ended() {
        let mut output = output();
        output.push(b"one");
        assert_eq!(output.read().text, "one");
        assert_eq!(output.read(), Page::default());
        output.push("t€".as_bytes().split_at(2).0);
        assert_eq!(output.read(), Page { text: "t".to_owned(), lost: 0, left: 0 });
        output.push("t€".as_bytes().split_at(2).1);
        assert_eq!(output.read().text, "€");
    }

    #[test]
    fn a_page_has_a_limit_and_counts_the_rest() {
        let mut output = output();
        output.push(&vec![b'x'; BACKGROUND_READ_BYTES + 5]);
        let page = output.read();
        assert_eq!((page.text.len(), page.left, page.lost), (BACKGROUND_READ_BYTES, 5, 0));
        assert_eq!(output.read().text, "xxxxx");
    }

    #[test]
    fn the_oldest_bytes_are_dropped_and_counted() {
        let mut output = output();
        output.push("€".as_bytes());
        output.push(&vec![b'x'; BACKGROUND_BYTES - 2]);
        // The first byte of the character was dropped, so the other two are dropped as well.
        let page = output.read();
        assert_eq!(page.lost, 3);
        assert!(page.text.starts_with("xx"));
        assert_eq!(output.read().lost, 0, "reported once");
    }
}
