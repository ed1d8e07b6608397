//! The output of a background process: a ring of its last bytes, read from where the last read ended.

use std::collections::VecDeque;

use crate::shell::letters::{continued, unfinished};

/// How much unread output of one process is kept: the last of it.
pub const BACKGROUND_BYTES: usize = 256 * 1024;

/// The most output that one read shows.
pub const BACKGROUND_READ_BYTES: usize = 64 * 1024;

/// What a process wrote and nobody has read.
#[derive(Debug, Default)]
pub(super) struct Journal {
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
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.unread.extend(piece);
        let excess = self.unread.len().saturating_sub(BACKGROUND_BYTES);
        self.unread.drain(..excess);
        self.lost += excess as u64;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    /// Takes the oldest unread output. Half a letter at its end stays, if `more` is to come.
    pub(super) fn read(&mut self, more: bool) -> Page {
        let mut lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let broken = continued(self.unread.make_contiguous());
            self.unread.drain(..broken);
            lost += broken as u64;
        }
        let mut length = self.unread.len().min(BACKGROUND_READ_BYTES);
        if more || length < self.unread.len() {
            length -= unfinished(&self.unread.make_contiguous()[..length]);
        }
        let bytes: Vec<u8> = self.unread.drain(..length).collect();
        Page { text: String::from_utf8_lossy(&bytes).into_owned(), lost, left: self.unread.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_goes_on_where_the_last_one_ended() {
        let mut journal = Journal::default();
        journal.push(b"one");
        assert_eq!(journal.read(true).text, "one");
        assert_eq!(journal.read(true), Page::default());
        journal.push("t€".as_bytes().split_at(2).0);
        assert_eq!(journal.read(true), Page { text: "t".to_owned(), lost: 0, left: 1 });
        journal.push("t€".as_bytes().split_at(2).1);
        assert_eq!(journal.read(false).text, "€");
    }

    #[test]
    fn a_page_has_a_limit_and_says_what_is_left() {
        let mut journal = Journal::default();
        journal.push(&vec![b'x'; BACKGROUND_READ_BYTES + 5]);
        let page = journal.read(true);
        assert_eq!((page.text.len(), page.left, page.lost), (BACKGROUND_READ_BYTES, 5, 0));
        assert_eq!(journal.read(true).text, "xxxxx");
    }

    #[test]
    fn the_oldest_bytes_fall_out_and_are_counted() {
        let mut journal = Journal::default();
        journal.push("€".as_bytes());
        journal.push(&vec![b'x'; BACKGROUND_BYTES - 2]);
        // One byte of the letter fell out; its other two are of no use.
        let page = journal.read(true);
        assert_eq!(page.lost, 3);
        assert!(page.text.starts_with("xx"));
        assert_eq!(journal.read(true).lost, 0, "told once");
    }
}
