//! A form of a secret that is looked for, and how it is compared with a place of a text.

use base64_simd::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::escape::{Ways, characters, gap, is_special};
use super::unseen::{MAX_INVISIBLE_BYTES, Screen, Unseen, may_be_unseen, unseen};

/// How many letters at least a form in base64 has: a shorter one stands in text by chance.
const MIN_BASE64_CHARS: usize = 10;

/// How often a comparison may turn back to read an escape in another way.
const DETOURS: usize = 256;

/// How a form may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A text: each character may be escaped.
    Text,
    /// Letters and digits without any space, which is why programs break them into lines.
    Word,
}

/// A form of a secret.
pub(super) struct Pattern {
    kind: Kind,
    bytes: Zeroizing<Vec<u8>>,
}

/// What was found at a place.
#[derive(Clone, Copy, Default)]
pub(super) struct Match {
    /// Where the form ends that begins here, if one is all there: the longest.
    pub(super) whole: Option<usize>,
    /// Whether the text ends within a form that begins here.
    pub(super) is_open: bool,
}

impl Match {
    pub(super) fn add(&mut self, other: Self) {
        self.whole = self.whole.max(other.whole);
        self.is_open |= other.is_open;
    }
}

/// What a secret looks like in texts: at most [`super::MAX_FORMS`] forms.
pub(super) fn forms(secret: &str) -> Vec<Pattern> {
    let hex = |digits: &[u8; 16]| {
        let digit = |half: u8| digits[usize::from(half)];
        Zeroizing::new(
            secret.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect::<Vec<u8>>(),
        )
    };
    let mut words = vec![hex(b"0123456789abcdef"), hex(b"0123456789ABCDEF")];
    // HTTP's basic authentication percent-encodes before it encodes.
    let encoded: Zeroizing<String> =
        Zeroizing::new(form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    for before in 0..3 {
        for text in [secret, encoded.as_str()] {
            words.extend(in_base64(text, before).into_iter().flatten());
        }
    }
    words.sort_by(|one, other| one.as_slice().cmp(other));
    words.dedup();
    let text = Pattern { kind: Kind::Text, bytes: Zeroizing::new(secret.as_bytes().to_vec()) };
    std::iter::once(text).chain(words.into_iter().map(|bytes| Pattern { kind: Kind::Word, bytes })).collect()
}

/// The letters of base64, in both alphabets, that depend on `text` alone, if so many bytes stand
/// before it (counted modulo 3).
fn in_base64(text: &str, before: usize) -> [Option<Zeroizing<Vec<u8>>>; 2] {
    let mut bytes = Zeroizing::new(vec![0; before]);
    bytes.extend_from_slice(text.as_bytes());
    // The first letters hold bits of what stands before, the last one bits of what follows.
    let (first, whole) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    [STANDARD_NO_PAD, URL_SAFE_NO_PAD].map(|alphabet| {
        let encoded = Zeroizing::new(alphabet.encode_to_string(bytes.as_slice()));
        let own = encoded.as_bytes().get(first..whole)?;
        (own.len() >= MIN_BASE64_CHARS).then(|| Zeroizing::new(own.to_vec()))
    })
}

impl Pattern {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it begins at `place`, however it is escaped.
    pub(super) fn at(&self, text: &[u8], place: usize) -> Match {
        let mut found = Match::default();
        let mut detours = DETOURS;
        self.compare(text, place, 0, &mut detours, &mut found);
        found
    }

    /// Compares what is left of both.
    fn compare(
        &self,
        text: &[u8],
        mut place: usize,
        mut done: usize,
        detours: &mut usize,
        found: &mut Match,
    ) {
        loop {
            let Some(expected) = self.bytes.get(done) else {
                found.whole = found.whole.max(Some(place));
                return;
            };
            let Some(byte) = text.get(place) else {
                found.is_open = true;
                return;
            };
            if byte == expected && !is_special(*byte) {
                place += 1;
                done += 1;
                continue;
            }
            // Nearly always it ends here.
            if byte != expected && !is_special(*byte) && *byte != b'+' {
                return;
            }
            let ways = self.ways(&text[place..], done);
            found.is_open |= ways.is_open;
            let rest = &self.bytes[done..];
            let mut fitting = ways.found().iter().filter(|way| rest.starts_with(way.bytes()));
            let Some(mut way) = fitting.next() else { return };
            for next in fitting {
                if *detours == 0 {
                    return;
                }
                *detours -= 1;
                self.compare(text, place + way.taken(), done + way.bytes().len(), detours, found);
                way = next;
            }
            place += way.taken();
            done += way.bytes().len();
        }
    }

    fn ways(&self, text: &[u8], done: usize) -> Ways {
        let mut ways = self.written(text, done);
        if done > 0 && may_be_unseen(text[0]) {
            self.add_unseen(text, done, &mut ways);
        }
        ways
    }

    /// Adds the ways past what no screen shows.
    fn add_unseen(&self, text: &[u8], done: usize, ways: &mut Ways) {
        let mut look = |screen| match unseen(text, screen, MAX_INVISIBLE_BYTES) {
            Unseen::Bytes(length) => Some(length).filter(|length| *length > 0),
            Unseen::Open => {
                ways.is_open = true;
                None
            }
            Unseen::TooLong => None,
        };
        let (page, terminal) = (look(Screen::Page), look(Screen::Terminal));
        // What follows an escape is hardly ever the next letter: a way for each would use up the detours.
        let is_next = |length: &usize| text.get(*length) == self.bytes.get(done);
        let page = page.filter(|length| terminal != Some(*length) && is_next(length));
        page.into_iter().chain(terminal).for_each(|length| ways.add(length, b""));
    }

    /// The ways in which the text is written.
    fn written(&self, text: &[u8], done: usize) -> Ways {
        match (self.kind, text[0]) {
            (Kind::Text, b'\\' | b'%' | b'+') => characters(text),
            (Kind::Text, byte) if byte == self.bytes[done] => characters(text),
            (Kind::Word, b'\\' | b'%' | b'\n' | b'\r') => {
                let lines = if done > 0 { gap(text) } else { Ways::default() };
                // Of a word's letters, these alone are ever escaped.
                let may_be_escaped = matches!(self.bytes[done], b'+' | b'/');
                match lines.found() {
                    [] if may_be_escaped => characters(text).opened(lines.is_open),
                    _ => lines,
                }
            }
            _ => Ways::default(),
        }
    }
}

impl Ways {
    fn opened(mut self, is_open: bool) -> Self {
        self.is_open |= is_open;
        self
    }
}
