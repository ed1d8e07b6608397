//! Decodes escapes: `%2F`, `\/`, `\u002f`, `\x2f`, and line breaks within a long word.
//!
//! Each function decodes at one position of a text. If the position has several possible meanings, it returns all of them,
//! and the caller compares them with the secret. Text that ends within an escape may continue with anything.

use super::invisible::may_be_invisible;

/// How many times a text may be percent-encoded: `%2F`, `%252F`, `%25252F`.
const PERCENT_DEPTH: usize = 3;

/// The longest run of backslashes that belongs to one escape. JSON in JSON in JSON has seven before a quote, and
/// eight for each backslash of the text.
pub(super) const BACKSLASHES: usize = 64;

/// The longest gap of white space and line numbers between two lines of one word, in bytes.
const GAP_BYTES: usize = 64;

/// How many decodings one position can have.
const MAX_DECODINGS: usize = 8;

/// The possible decodings at one position.
#[derive(Default)]
pub(super) struct Decodings {
    list: [Decoding; MAX_DECODINGS],
    count: usize,
    /// Whether the text ends within an escape, which may continue with anything.
    pub(super) is_incomplete: bool,
    /// How many bytes of the text were examined, beside a few.
    pub(super) examined: usize,
}

/// The meaning of the next `text_length` bytes of the text.
#[derive(Clone, Copy, Default)]
pub(super) struct Decoding {
    text_length: u32,
    bytes: [u8; 4],
    byte_count: u8,
}

impl Decoding {
    /// How many bytes of the text are encoded.
    pub(super) fn text_length(&self) -> usize {
        self.text_length as usize
    }

    /// The decoded bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.byte_count)]
    }
}

impl Decodings {
    pub(super) fn list(&self) -> &[Decoding] {
        &self.list[..self.count]
    }

    pub(super) fn add(&mut self, text_length: usize, decoded: &[u8]) {
        let mut bytes = [0; 4];
        bytes[..decoded.len()].copy_from_slice(decoded);
        if let Some(decoding) = self.list.get_mut(self.count) {
            *decoding = Decoding { text_length: text_length as u32, bytes, byte_count: decoded.len() as u8 };
            self.count += 1;
        }
    }
}

/// Whether a position that starts with this byte may have more than one decoding.
pub(super) fn is_special(byte: u8) -> bool {
    matches!(byte, b'\\' | b'%' | b'\n' | b'\r') || may_be_invisible(byte)
}

/// The decodings of the start of `text`, which is not empty: its first byte, and the escapes that start there.
pub(super) fn decode(text: &[u8]) -> Decodings {
    let mut decodings = Decodings::default();
    decodings.add(1, &text[..1]);
    match text[0] {
        b'+' => decodings.add(1, b" "),
        b'%' => percent(text, &mut decodings),
        b'\\' => backslash(text, &mut decodings),
        _ => {}
    }
    decodings
}

fn percent(text: &[u8], decodings: &mut Decodings) {
    let mut rest = &text[1..];
    for _ in 0..PERCENT_DEPTH {
        match hex(rest, 2) {
            Some(Some(byte)) => decodings.add(text.len() - rest.len() + 2, &[byte as u8]),
            Some(None) => decodings.is_incomplete = true,
            None => {}
        }
        match rest.strip_prefix(b"25") {
            Some(inner) => rest = inner,
            None => return,
        }
    }
}

fn backslash(text: &[u8], decodings: &mut Decodings) {
    let Some((run, character)) = escaped(text) else {
        decodings.examined += BACKSLASHES;
        decodings.is_incomplete |= text.len() <= BACKSLASHES && text.iter().all(|byte| *byte == b'\\');
        return;
    };
    decodings.examined += run;
    let after = &text[run + 1..];
    // An escaped character stands for itself, like `/` and `"`. After an escaped backslash, any character does.
    decodings.add(run + 1, &[character]);
    match character {
        b'n' => decodings.add(run + 1, b"\n"),
        b'r' => decodings.add(run + 1, b"\r"),
        b't' => decodings.add(run + 1, b"\t"),
        b'b' => decodings.add(run + 1, b"\x08"),
        b'f' => decodings.add(run + 1, b"\x0c"),
        b'x' => match hex(after, 2) {
            Some(Some(byte)) => decodings.add(run + 3, &[byte as u8]),
            Some(None) => decodings.is_incomplete = true,
            None => {}
        },
        b'u' => match hex(after, 4) {
            Some(Some(unit)) => unicode(unit, run + 5, &after[4..], decodings),
            Some(None) => decodings.is_incomplete = true,
            None => {}
        },
        _ => {}
    }
}

/// Decodes a UTF-16 code unit, together with the next one if it is the first half of a surrogate pair.
fn unicode(unit: u32, text_length: usize, after: &[u8], decodings: &mut Decodings) {
    let mut bytes = [0; 4];
    if let Some(character) = char::from_u32(unit) {
        return decodings.add(text_length, character.encode_utf8(&mut bytes).as_bytes());
    }
    let Some((run, character)) = escaped(after) else {
        decodings.examined += BACKSLASHES;
        decodings.is_incomplete |= after.len() <= BACKSLASHES && after.iter().all(|byte| *byte == b'\\');
        return;
    };
    decodings.examined += run;
    match (character, hex(&after[run + 1..], 4)) {
        (b'u', Some(Some(low))) => {
            let pair = char::decode_utf16([unit as u16, low as u16]).next();
            if let Some(Ok(character)) = pair {
                decodings.add(text_length + run + 5, character.encode_utf8(&mut bytes).as_bytes());
            }
        }
        (b'u', Some(None)) => decodings.is_incomplete = true,
        _ => {}
    }
}

/// The number of backslashes at the start of `text` and the character after them. `None` if there are no backslashes
/// or more than [`BACKSLASHES`].
fn escaped(text: &[u8]) -> Option<(usize, u8)> {
    let run = text.iter().take(BACKSLASHES + 1).take_while(|byte| **byte == b'\\').count();
    let character = *text.get(run)?;
    (1..=BACKSLASHES).contains(&run).then_some((run, character))
}

/// Parses hexadecimal digits. `None` if there is another character, `Some(None)` if the text ends within the digits.
fn hex(text: &[u8], digits: usize) -> Option<Option<u32>> {
    let mut number = 0;
    for index in 0..digits {
        let Some(byte) = text.get(index) else { return Some(None) };
        number = number * 16 + char::from(*byte).to_digit(16)?;
    }
    Some(Some(number))
}

/// If `text` starts with a line break: the possible starts of the next line, with and without a line number as the
/// file tools show it. Line breaks and tabs may be escaped.
pub(super) fn line_gap(text: &[u8]) -> Decodings {
    let mut decodings = Decodings::default();
    let Some(mut end) = line_break(text, &mut decodings) else { return decodings };
    loop {
        let Some(byte) = text.get(end) else {
            decodings.is_incomplete = true;
            break;
        };
        end += match (byte, line_break(&text[end..], &mut decodings)) {
            (b' ' | b'\t', _) => 1,
            (_, Some(length)) => length,
            _ => break,
        };
        if end > GAP_BYTES {
            return Decodings { examined: decodings.examined + end, ..Decodings::default() };
        }
    }
    decodings.examined += end;
    decodings.add(end, b"");
    let rest = &text[end..];
    let digits = rest.iter().take(GAP_BYTES).take_while(|byte| byte.is_ascii_digit()).count();
    decodings.examined += digits;
    match (digits, rest.get(digits)) {
        (0, _) => {}
        (_, Some(b'\t')) => decodings.add(end + digits + 1, b""),
        (_, Some(b'\\')) => {
            decodings.examined += BACKSLASHES;
            match escaped(&rest[digits..]) {
                Some((run, b't')) => decodings.add(end + digits + run + 1, b""),
                Some(_) => {}
                None => decodings.is_incomplete = true,
            }
        }
        (_, None) => decodings.is_incomplete = true,
        (_, Some(_)) => {}
    }
    decodings
}

/// The length of the line break at the start of `text`, if there is one.
fn line_break(text: &[u8], gap: &mut Decodings) -> Option<usize> {
    let mut decodings = Decodings::default();
    match text.first()? {
        b'\n' | b'\r' => return Some(1),
        b'\\' => backslash(text, &mut decodings),
        b'%' => percent(text, &mut decodings),
        _ => return None,
    }
    gap.is_incomplete |= decodings.is_incomplete;
    gap.examined += decodings.examined;
    let is_break = |decoding: &&Decoding| matches!(decoding.bytes(), b"\n" | b"\r");
    decodings.list().iter().find(is_break).map(Decoding::text_length)
}
