//! One form of a secret, and its comparison with a position of a text.

use base64_simd::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::escape::{Decodings, decode, is_special, line_gap};
use super::invisible::{Display, InvisiblePrefix, MAX_INVISIBLE_BYTES, invisible_prefix, may_be_invisible};
use super::work::Work;

/// The shortest base64 form. Text contains shorter ones by coincidence.
const MIN_BASE64_CHARS: usize = 10;

/// How many alternative decodings one comparison may try.
const MAX_BACKTRACKS: usize = 256;

/// How the text may write a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Plain text, in which each character may be escaped.
    Text,
    /// Hexadecimal or base64 without spaces, which programs may break into lines.
    Word,
}

/// A form of a secret.
#[derive(Clone)]
pub(super) struct Pattern {
    kind: Kind,
    bytes: Zeroizing<Vec<u8>>,
}

/// The result of a comparison at one position.
#[derive(Clone, Copy, Default)]
pub(super) struct Match {
    /// The end of the longest form that starts here and is complete.
    pub(super) end: Option<usize>,
    /// Whether the text ends within a form that starts here.
    pub(super) is_incomplete: bool,
    /// Whether the comparison ended because the text is too much work. A form may start here.
    pub(super) is_abandoned: bool,
}

impl Match {
    pub(super) fn add(&mut self, other: Self) {
        self.end = self.end.max(other.end);
        self.is_incomplete |= other.is_incomplete;
        self.is_abandoned |= other.is_abandoned;
    }
}

/// All forms of a secret, at most [`super::MAX_FORMS`].
pub(super) fn forms(secret: &str) -> Vec<Pattern> {
    let hex = |digits: &[u8; 16]| {
        let digit = |half: u8| digits[usize::from(half)];
        Zeroizing::new(
            secret.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect::<Vec<u8>>(),
        )
    };
    let mut words = vec![hex(b"0123456789abcdef"), hex(b"0123456789ABCDEF")];
    // OAuth percent-encodes the secret before it is base64-encoded for HTTP basic authentication.
    let percent_encoded: Zeroizing<String> =
        Zeroizing::new(form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    for before in 0..3 {
        for text in [secret, percent_encoded.as_str()] {
            words.extend(base64_forms(text, before).into_iter().flatten());
        }
    }
    words.sort_by(|one, other| one.as_slice().cmp(other));
    words.dedup();
    let text = Pattern { kind: Kind::Text, bytes: Zeroizing::new(secret.as_bytes().to_vec()) };
    std::iter::once(text).chain(words.into_iter().map(|bytes| Pattern { kind: Kind::Word, bytes })).collect()
}

/// The base64 digits, in both alphabets, that depend only on `text`, if `before` bytes (modulo 3) precede it.
fn base64_forms(text: &str, before: usize) -> [Option<Zeroizing<Vec<u8>>>; 2] {
    let mut bytes = Zeroizing::new(vec![0; before]);
    bytes.extend_from_slice(text.as_bytes());
    // The first digits contain bits of the preceding bytes, the last digit contains bits of the following ones.
    let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    [STANDARD_NO_PAD, URL_SAFE_NO_PAD].map(|alphabet| {
        let encoded = Zeroizing::new(alphabet.encode_to_string(bytes.as_slice()));
        let own = encoded.as_bytes().get(first..end)?;
        (own.len() >= MIN_BASE64_CHARS).then(|| Zeroizing::new(own.to_vec()))
    })
}

impl Pattern {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Matches this form at `position`, with or without escapes.
    pub(super) fn match_at(&self, text: &[u8], position: usize, work: &mut Work) -> Match {
        let mut found = Match::default();
        let mut backtracks = MAX_BACKTRACKS;
        work.begin();
        self.compare(text, (position, 0), work, &mut backtracks, &mut found);
        found
    }

    /// Compares the text with the form's bytes, from a position in the text and a position in the form on.
    fn compare(
        &self,
        text: &[u8],
        (mut position, mut matched): (usize, usize),
        work: &mut Work,
        backtracks: &mut usize,
        found: &mut Match,
    ) {
        loop {
            let same = text[position..].iter().zip(&self.bytes[matched..]);
            let is_same = |(byte, expected): &(&u8, &u8)| byte == expected && !is_special(**byte);
            let same = same.take(work.available()).take_while(is_same).count();
            position += same;
            matched += same;
            if !work.spend(same + 1) {
                found.is_abandoned = true;
                return;
            }
            let Some(expected) = self.bytes.get(matched) else {
                found.end = found.end.max(Some(position));
                return;
            };
            let Some(byte) = text.get(position) else {
                found.is_incomplete = true;
                return;
            };
            // The usual case: no match.
            if byte != expected && !is_special(*byte) && *byte != b'+' {
                return;
            }
            let decodings = self.decodings(&text[position..], matched);
            if !work.spend(decodings.examined) {
                found.is_abandoned = true;
                return;
            }
            found.is_incomplete |= decodings.is_incomplete;
            let rest = &self.bytes[matched..];
            let mut matching = decodings.list().iter().filter(|decoding| rest.starts_with(decoding.bytes()));
            let Some(mut decoding) = matching.next() else { return };
            for next in matching {
                if *backtracks == 0 {
                    return;
                }
                *backtracks -= 1;
                let after = (position + decoding.text_length(), matched + decoding.bytes().len());
                self.compare(text, after, work, backtracks, found);
                if found.is_abandoned {
                    return;
                }
                decoding = next;
            }
            position += decoding.text_length();
            matched += decoding.bytes().len();
        }
    }

    fn decodings(&self, text: &[u8], matched: usize) -> Decodings {
        let mut decodings = self.visible_decodings(text, matched);
        if matched > 0 && may_be_invisible(text[0]) {
            self.add_invisible(text, matched, &mut decodings);
        }
        decodings
    }

    /// Adds decodings that skip invisible characters.
    fn add_invisible(&self, text: &[u8], matched: usize, decodings: &mut Decodings) {
        let mut skip = |display| match invisible_prefix(text, display, MAX_INVISIBLE_BYTES) {
            InvisiblePrefix::Bytes(length) => {
                decodings.examined += length;
                Some(length).filter(|length| *length > 0)
            }
            InvisiblePrefix::Incomplete => {
                decodings.examined += text.len();
                decodings.is_incomplete = true;
                None
            }
            InvisiblePrefix::TooLong => {
                decodings.examined += MAX_INVISIBLE_BYTES;
                None
            }
        };
        let (page, terminal) = (skip(Display::Page), skip(Display::Terminal));
        // The character after an escape is hardly ever the next one of the secret. Adding it every time would use up
        // the backtracks.
        let is_next = |length: &usize| text.get(*length) == self.bytes.get(matched);
        let page = page.filter(|length| terminal != Some(*length) && is_next(length));
        page.into_iter().chain(terminal).for_each(|length| decodings.add(length, b""));
    }

    /// The decodings of the start of `text`, without skipping invisible characters.
    fn visible_decodings(&self, text: &[u8], matched: usize) -> Decodings {
        match (self.kind, text[0]) {
            (Kind::Text, b'\\' | b'%' | b'+') => decode(text),
            (Kind::Text, byte) if byte == self.bytes[matched] => decode(text),
            (Kind::Word, b'\\' | b'%' | b'\n' | b'\r') => {
                let gap = if matched > 0 { line_gap(text) } else { Decodings::default() };
                // Of the digits of a word, only these may be escaped.
                let may_be_escaped = matches!(self.bytes[matched], b'+' | b'/');
                match gap.list() {
                    [] if may_be_escaped => decode(text).after(&gap),
                    _ => gap,
                }
            }
            _ => Decodings::default(),
        }
    }
}

impl Decodings {
    /// These decodings, after another attempt that found none.
    fn after(mut self, attempt: &Self) -> Self {
        self.is_incomplete |= attempt.is_incomplete;
        self.examined += attempt.examined;
        self
    }
}
