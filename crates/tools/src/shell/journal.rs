//! The output of a background process: a ring of its last bytes, read from where the last read ended.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_vocab::ProcessExit;

use crate::redact::{Redact, StreamRedactor};
use crate::shell::letters::{Utf8Stream, continued, unfinished};

/// How much unread output of one process is kept: the last of it.
pub const BACKGROUND_BYTES: usize = 256 * 1024;

/// The most output that one read shows.
pub const BACKGROUND_READ_BYTES: usize = 64 * 1024;

/// What a process wrote and nobody has read.
#[derive(Debug)]
pub(super) struct Journal {
    letters: Utf8Stream,
    sieve: StreamRedactor,
    unread: VecDeque<u8>,
    /// How many bytes fell out since the last read.
    lost: u64,
}

/// What a read found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) text: String,
    /// How many bytes before `text` were never read.
    pub(super) lost: u64,
    /// How many bytes wait for the next read.
    pub(super) left: usize,
}

impl Journal {
    /// An empty one, which keeps no secret that `redact` knows.
    pub(super) fn new(redact: &Arc<dyn Redact>) -> Self {
        Self {
            letters: Utf8Stream::default(),
            sieve: StreamRedactor::new(redact),
            unread: VecDeque::new(),
            lost: 0,
        }
    }

    /// Keeps what was written. Half a letter and what may be the beginning of a secret wait for the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let text = self.letters.push(piece);
        let shown = self.sieve.push(&text).into_owned();
        self.keep(&shown);
    }

    /// Nothing more is written. A process that did not exit by itself may have been stopped within a secret.
    pub(super) fn finish(&mut self, ending: ProcessExit) {
        let mut last = self.sieve.push(&self.letters.finish()).into_owned();
        last.push_str(&match ending {
            ProcessExit::Code(_) => self.sieve.rest(),
            ProcessExit::Signal(_) | ProcessExit::Terminated | ProcessExit::Unknown => {
                self.sieve.rest_of_cut()
            }
        });
        self.keep(&last);
    }

    fn keep(&mut self, text: &str) {
        self.unread.extend(text.as_bytes());
        let excess = self.unread.len().saturating_sub(BACKGROUND_BYTES);
        self.unread.drain(..excess);
        self.lost += excess as u64;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    /// Takes the oldest unread output.
    pub(super) fn read(&mut self) -> Page {
        let mut lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let broken = continued(self.unread.make_contiguous());
            self.unread.drain(..broken);
            lost += broken as u64;
        }
        let mut length = self.unread.len().min(BACKGROUND_READ_BYTES);
        if length < self.unread.len() {
            length -= unfinished(&self.unread.make_contiguous()[..length]);
        }
        let bytes: Vec<u8> = self.unread.drain(..length).collect();
        Page { text: String::from_utf8_lossy(&bytes).into_owned(), lost, left: self.unread.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::NoSecrets;

    fn journal() -> Journal {
        Journal::new(&(Arc::new(NoSecrets) as Arc<dyn Redact>))
    }

    #[test]
    fn each_read_goes_on_where_the_last_one_ended() {
        let mut journal = journal();
        journal.push(b"one");
        assert_eq!(journal.read().text, "one");
        assert_eq!(journal.read(), Page::default());
        journal.push("t€".as_bytes().split_at(2).0);
        assert_eq!(journal.read(), Page { text: "t".to_owned(), lost: 0, left: 0 });
        journal.push("t€".as_bytes().split_at(2).1);
        assert_eq!(journal.read().text, "€");
    }

    #[test]
    fn a_page_has_a_limit_and_says_what_is_left() {
        let mut journal = journal();
        journal.push(&vec![b'x'; BACKGROUND_READ_BYTES + 5]);
        let page = journal.read();
        assert_eq!((page.text.len(), page.left, page.lost), (BACKGROUND_READ_BYTES, 5, 0));
        assert_eq!(journal.read().text, "xxxxx");
    }

    #[test]
    fn the_oldest_bytes_fall_out_and_are_counted() {
        let mut journal = journal();
        journal.push("€".as_bytes());
        journal.push(&vec![b'x'; BACKGROUND_BYTES - 2]);
        // One byte of the letter fell out; its other two are of no use.
        let page = journal.read();
        assert_eq!(page.lost, 3);
        assert!(page.text.starts_with("xx"));
        assert_eq!(journal.read().lost, 0, "told once");
    }
}
