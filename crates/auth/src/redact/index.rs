//! All forms of all secrets, arranged so that most places of a text are passed by at the cost of one look.
//!
//! A form is found by its first four bytes, as long as a text writes them as they are; a filter tells of nearly all
//! other bytes that they are not the beginning of any. Only near escapes, line ends and the end of the text are forms
//! compared one by one, and then only those that begin with the right byte. An automaton for many words at a time
//! would be as fast, but it knows neither escapes nor how far the text's end has got into a form.

use std::ops::Range;

use memchr::memchr3;

use super::escape::{characters, is_special};
use super::pattern::{Match, Pattern};
use super::unseen::may_hold_unseen;

/// How many bytes a form is found by.
const KEY_BYTES: usize = 4;

/// How many bits the filter has: enough that few of them are set by all the forms there can be.
const FILTER_BITS: usize = 1 << 16;

/// The forms of secrets, each with the number of its secret.
pub(super) struct Index {
    forms: Vec<(u64, Pattern)>,
    /// The first bytes of the forms, in order, with their places in `forms`.
    keys: Vec<(u32, usize)>,
    /// A bit for each key; keys may share one.
    filter: Vec<u64>,
    /// The second bytes and the places of those that begin with a byte.
    by_first: [Vec<(u8, usize)>; 256],
    /// Whether anything can begin with a byte.
    begins: [bool; 256],
}

/// What is in a text.
#[derive(Default)]
pub(super) struct Scan {
    /// The secrets that are all there, in order and apart from each other.
    pub(super) secrets: Vec<Range<usize>>,
    /// Where the first secret begins that the end of the text may have cut off.
    pub(super) open: Option<usize>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            forms: Vec::new(),
            keys: Vec::new(),
            filter: vec![0; FILTER_BITS / 64],
            by_first: std::array::from_fn(|_| Vec::new()),
            begins: [false; 256],
        }
    }
}

impl Index {
    pub(super) fn add(&mut self, secret: u64, forms: Vec<Pattern>) {
        self.forms.extend(forms.into_iter().map(|form| (secret, form)));
        self.arrange();
    }

    pub(super) fn remove(&mut self, secret: u64) {
        self.forms.retain(|(of, _)| *of != secret);
        self.arrange();
    }

    fn arrange(&mut self) {
        let forms = std::mem::take(&mut self.forms);
        let mut index = Self::default();
        for (place, (_, form)) in forms.iter().enumerate() {
            let Some(lead) = form.bytes().first_chunk::<KEY_BYTES>() else { continue };
            index.by_first[usize::from(lead[0])].push((lead[1], place));
            // Forms of the web write `+` for a space.
            let in_web_forms = lead.map(|byte| if byte == b' ' { b'+' } else { byte });
            for lead in [*lead, in_web_forms] {
                let key = u32::from_be_bytes(lead);
                index.keys.push((key, place));
                let bit = bit(key);
                index.filter[bit / 64] |= 1 << (bit % 64);
                index.begins[usize::from(lead[0])] = true;
            }
        }
        index.keys.sort_unstable();
        index.keys.dedup();
        for escape in [b'\\', b'%'] {
            index.begins[usize::from(escape)] = !forms.is_empty();
        }
        *self = Self { forms, ..index };
    }

    /// Finds the secrets in `text`.
    pub(super) fn scan(&self, text: &[u8]) -> Scan {
        let mut scan = Scan::default();
        if self.forms.is_empty() {
            return scan;
        }
        let mut place = 0;
        let is_plain = !may_hold_unseen(text);
        while place < text.len() {
            let special = match is_plain {
                true => memchr3(b'\\', b'%', b'\n', &text[place..]),
                false => text[place..].iter().position(|byte| is_special(*byte)),
            };
            let special = special.map_or(text.len(), |special| place + special);
            for (at, lead) in (place..).zip(text[place..special].windows(KEY_BYTES)) {
                let key = u32::from_be_bytes([lead[0], lead[1], lead[2], lead[3]]);
                if self.has(key) {
                    scan.add(at, self.plain(text, at, key));
                }
            }
            // The last places before it are too near to it, or to the end of the text, to have a key. There is one more
            // than a key has, because of the first half of `\r\n`.
            let near = special.saturating_sub(KEY_BYTES).max(place);
            place = (special + 1).min(text.len());
            for at in near..place {
                if self.begins[usize::from(text[at])] {
                    scan.add(at, self.escaped(text, at));
                }
            }
        }
        scan
    }

    /// Whether the key may be that of a form.
    fn has(&self, key: u32) -> bool {
        let bit = bit(key);
        self.filter[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// What begins at a place of which the first bytes are what they look like.
    fn plain(&self, text: &[u8], place: usize, key: u32) -> Match {
        let mut found = Match::default();
        let first = self.keys.partition_point(|(known, _)| *known < key);
        let known = self.keys[first..].iter().take_while(|(known, _)| *known == key);
        known.for_each(|(_, form)| found.add(self.forms[*form].1.at(text, place)));
        found
    }

    /// What begins at any other place.
    fn escaped(&self, text: &[u8], place: usize) -> Match {
        let mut found = Match::default();
        let byte = text[place];
        if !matches!(byte, b'\\' | b'%' | b'+') {
            // What is no escape is the second byte itself.
            let second = text.get(place + 1).filter(|second| !is_special(**second) && **second != b'+');
            let forms = self.by_first[usize::from(byte)].iter();
            let forms = forms.filter(|(known, _)| second.is_none_or(|second| second == known));
            forms.for_each(|(_, form)| found.add(self.forms[*form].1.at(text, place)));
            return found;
        }
        let mut add = |first: u8| {
            let forms = self.by_first[usize::from(first)].iter();
            forms.for_each(|(_, form)| found.add(self.forms[*form].1.at(text, place)));
        };
        let ways = characters(&text[place..]);
        ways.found().iter().filter_map(|way| way.bytes().first()).for_each(|first| add(*first));
        found.is_open |= ways.is_open;
        found
    }
}

impl Scan {
    fn add(&mut self, place: usize, found: Match) {
        if let Some(end) = found.whole {
            match self.secrets.last_mut() {
                // What two secrets share is taken out once, with all of both.
                Some(last) if place < last.end => last.end = last.end.max(end),
                _ => self.secrets.push(place..end),
            }
        }
        if found.is_open && self.open.is_none() {
            self.open = Some(place);
        }
    }

    /// Where to stop, if more text follows: whatever stands before this is decided.
    pub(super) fn decided(&self, length: usize) -> usize {
        let open = self.open.unwrap_or(length);
        self.secrets.iter().find(|secret| secret.contains(&open)).map_or(open, |secret| secret.start)
    }
}

/// The key's bit in the filter.
fn bit(key: u32) -> usize {
    // The multiplier is that of Fibonacci hashing; the upper half of the product is the best mixed.
    (key.wrapping_mul(0x9E37_79B1) >> 16) as usize
}
