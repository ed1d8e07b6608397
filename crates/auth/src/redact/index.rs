//! An index of all forms of all secrets, which rejects most positions of a text with one lookup.
//!
//! A form is found by its first four bytes, if the text contains them unescaped. A bit filter rejects nearly all positions
//! at which no form starts. Only near escapes, line breaks and the end of the text are forms compared one by one, and then
//! only the forms with the right first byte. An Aho-Corasick automaton would be as fast, but it supports neither escapes
//! nor the question whether the text ends within a form.

use std::ops::Range;

use memchr::memchr3;

use super::escape::{BACKSLASHES, decode, is_special};
use super::invisible::may_contain_invisible;
use super::pattern::{Match, Pattern};
use super::work::Work;

/// How many first bytes of a form are its key.
const KEY_BYTES: usize = 4;

/// The size of the filter in bits. Large enough that all possible forms set only few of them.
const FILTER_BITS: usize = 1 << 16;

/// The index.
#[derive(Clone)]
pub(super) struct Index {
    /// Each form with the number of its secret.
    forms: Vec<(u64, Pattern)>,
    /// The keys of the forms, sorted, with the index of the form in `forms`.
    keys: Vec<(u32, usize)>,
    /// One bit for each key. Keys may share a bit.
    filter: Vec<u64>,
    /// For each first byte, the second bytes and indexes of the forms that start with it.
    by_first_byte: [Vec<(u8, usize)>; 256],
    /// For each byte, whether a form, escaped or not, can start with it.
    can_start: [bool; 256],
}

/// The secrets in a text.
#[derive(Default)]
pub(super) struct Scan {
    /// The complete secrets, in order, without overlaps.
    pub(super) secrets: Vec<Range<usize>>,
    /// The start of the first secret that may continue after the end of the text.
    pub(super) incomplete_at: Option<usize>,
    /// The work for this text, for the test that it is linear.
    #[cfg(test)]
    pub(super) spent: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            forms: Vec::new(),
            keys: Vec::new(),
            filter: vec![0; FILTER_BITS / 64],
            by_first_byte: std::array::from_fn(|_| Vec::new()),
            can_start: [false; 256],
        }
    }
}

impl Index {
    pub(super) fn add(&mut self, secret: u64, forms: Vec<Pattern>) {
        self.forms.extend(forms.into_iter().map(|form| (secret, form)));
        self.rebuild();
    }

    pub(super) fn remove(&mut self, secret: u64) {
        self.forms.retain(|(of, _)| *of != secret);
        self.rebuild();
    }

    /// Whether there are no secrets.
    pub(super) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    fn rebuild(&mut self) {
        let forms = std::mem::take(&mut self.forms);
        let mut index = Self::default();
        for (number, (_, form)) in forms.iter().enumerate() {
            let Some(lead) = form.bytes().first_chunk::<KEY_BYTES>() else { continue };
            index.by_first_byte[usize::from(lead[0])].push((lead[1], number));
            // URL-encoded text has `+` for a space.
            let url_encoded = lead.map(|byte| if byte == b' ' { b'+' } else { byte });
            for lead in [*lead, url_encoded] {
                let key = u32::from_be_bytes(lead);
                index.keys.push((key, number));
                let bit = bit(key);
                index.filter[bit / 64] |= 1 << (bit % 64);
                index.can_start[usize::from(lead[0])] = true;
            }
        }
        index.keys.sort_unstable();
        index.keys.dedup();
        for escape in [b'\\', b'%'] {
            index.can_start[usize::from(escape)] = !forms.is_empty();
        }
        *self = Self { forms, ..index };
    }

    /// Finds the secrets in `text`. If the text is too much work, everything from there on counts as one secret, because
    /// a secret may be at any place in it.
    pub(super) fn scan(&self, text: &[u8]) -> Scan {
        let mut scan = Scan::default();
        if self.forms.is_empty() {
            return scan;
        }
        let mut work = Work::new(text.len());
        if let Err(Abandoned { position }) = self.scan_within(text, &mut work, &mut scan) {
            scan.add(position, Match { end: Some(text.len()), is_incomplete: true, ..Match::default() });
        }
        #[cfg(test)]
        {
            scan.spent = work.spent;
        }
        scan
    }

    fn scan_within(&self, text: &[u8], work: &mut Work, scan: &mut Scan) -> Result<(), Abandoned> {
        let mut position = 0;
        let is_plain = !may_contain_invisible(text);
        let mut backslashes_end = 0;
        while position < text.len() {
            let special = match is_plain {
                true => memchr3(b'\\', b'%', b'\n', &text[position..]),
                false => text[position..].iter().position(|byte| is_special(*byte)),
            };
            let special = special.map_or(text.len(), |special| position + special);
            for (at, lead) in (position..).zip(text[position..special].windows(KEY_BYTES)) {
                let key = u32::from_be_bytes([lead[0], lead[1], lead[2], lead[3]]);
                if self.may_have(key) {
                    scan.add(at, self.match_key(text, at, key, work)?);
                }
            }
            // The last positions before `special` have no complete key. There is one more of them than a key has
            // bytes, because of the first half of `\r\n`.
            let near = special.saturating_sub(KEY_BYTES).max(position);
            position = (special + 1).min(text.len());
            for at in near..position {
                let is_repeated =
                    text[at] == b'\\' && self.is_repeated_backslash(text, at, &mut backslashes_end);
                if self.can_start[usize::from(text[at])] && !is_repeated {
                    scan.add(at, self.match_escaped(text, at, work)?);
                }
            }
        }
        Ok(())
    }

    /// Whether a form that starts with the backslash at `position` starts with an earlier backslash of the same run too.
    /// `end` is the end of the last run. Without this, a run would be read once for each of its backslashes.
    fn is_repeated_backslash(&self, text: &[u8], position: usize, end: &mut usize) -> bool {
        if position >= *end {
            *end = position + text[position..].iter().take_while(|byte| **byte == b'\\').count();
            return false;
        }
        // Only the last backslashes of a long run belong to an escape.
        *end - position != BACKSLASHES && self.by_first_byte[usize::from(b'\\')].is_empty()
    }

    /// Whether a form may have this key.
    fn may_have(&self, key: u32) -> bool {
        let bit = bit(key);
        self.filter[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// Matches the forms with this key at a position whose first bytes are unescaped.
    fn match_key(&self, text: &[u8], position: usize, key: u32, work: &mut Work) -> Result<Match, Abandoned> {
        let first = self.keys.partition_point(|(known, _)| *known < key);
        let known = self.keys[first..].iter().take_while(|(known, _)| *known == key);
        self.match_forms(known.map(|(_, form)| *form), text, position, work)
    }

    /// Matches the forms at a position near an escape or the end of the text.
    fn match_escaped(&self, text: &[u8], position: usize, work: &mut Work) -> Result<Match, Abandoned> {
        let byte = text[position];
        if !matches!(byte, b'\\' | b'%' | b'+') {
            // If the second byte is not special, it must equal the second byte of the form.
            let second = text.get(position + 1).filter(|second| !is_special(**second) && **second != b'+');
            let forms = self.by_first_byte[usize::from(byte)].iter();
            let forms = forms.filter(|(known, _)| second.is_none_or(|second| second == known));
            return self.match_forms(forms.map(|(_, form)| *form), text, position, work);
        }
        let decodings = decode(&text[position..]);
        work.begin();
        if !work.spend(decodings.examined) {
            return Err(Abandoned { position });
        }
        let mut found = Match { is_incomplete: decodings.is_incomplete, ..Match::default() };
        for first in decodings.list().iter().filter_map(|one| one.bytes().first()) {
            let forms = self.by_first_byte[usize::from(*first)].iter();
            found.add(self.match_forms(forms.map(|(_, form)| *form), text, position, work)?);
        }
        Ok(found)
    }

    fn match_forms(
        &self,
        forms: impl Iterator<Item = usize>,
        text: &[u8],
        position: usize,
        work: &mut Work,
    ) -> Result<Match, Abandoned> {
        let mut found = Match::default();
        for form in forms {
            found.add(self.forms[form].1.match_at(text, position, work));
            if found.is_abandoned {
                return Err(Abandoned { position });
            }
        }
        Ok(found)
    }
}

/// The text from `position` on is too much work.
struct Abandoned {
    position: usize,
}

impl Scan {
    fn add(&mut self, position: usize, found: Match) {
        if let Some(end) = found.end {
            match self.secrets.last_mut() {
                // Overlapping secrets become one range.
                Some(last) if position < last.end => last.end = last.end.max(end),
                _ => self.secrets.push(position..end),
            }
        }
        if found.is_incomplete && self.incomplete_at.is_none() {
            self.incomplete_at = Some(position);
        }
    }

    /// The end of the part of the text that further text cannot change.
    pub(super) fn decided_length(&self, length: usize) -> usize {
        let end = self.incomplete_at.unwrap_or(length);
        self.secrets.iter().find(|secret| secret.contains(&end)).map_or(end, |secret| secret.start)
    }
}

/// The number of the key's bit in the filter.
fn bit(key: u32) -> usize {
    // Fibonacci hashing: the upper half of the product is mixed best.
    (key.wrapping_mul(0x9E37_79B1) >> 16) as usize
}
