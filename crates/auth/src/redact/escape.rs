//! How characters are written in texts that cannot hold them as they are: `%2F`, `\/`, `\u002f`, `\x2f`, and the line
//! ends within a long word.
//!
//! Each function looks at one place of a text. What can be read there in several ways is told in all of them, and
//! whoever knows what is expected chooses. A text that ends within an escape may go on with anything.

use super::unseen::may_be_unseen;

/// How often a text is percent-encoded at most: `%2F`, `%252F`, `%25252F`.
const PERCENT_DEPTH: usize = 3;

/// How many backslashes in a row are taken for those of one escape. JSON in JSON in JSON has seven before a quote, and
/// eight for each backslash of the text itself.
const BACKSLASHES: usize = 64;

/// How much white space and numbering stands between two lines of one word.
const GAP_BYTES: usize = 64;

/// How many ways one place can be read in.
const WAYS: usize = 8;

/// The ways in which a place can be read: how much of the text, and what it stands for.
#[derive(Default)]
pub(super) struct Ways {
    found: [Way; WAYS],
    count: usize,
    /// The text ends here, and may go on with what is expected.
    pub(super) is_open: bool,
}

/// So many bytes of the text stand for these.
#[derive(Clone, Copy, Default)]
pub(super) struct Way {
    taken: u32,
    bytes: [u8; 4],
    length: u8,
}

impl Way {
    pub(super) fn taken(&self) -> usize {
        self.taken as usize
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Ways {
    pub(super) fn found(&self) -> &[Way] {
        &self.found[..self.count]
    }

    pub(super) fn add(&mut self, taken: usize, meaning: &[u8]) {
        let mut bytes = [0; 4];
        bytes[..meaning.len()].copy_from_slice(meaning);
        if let Some(way) = self.found.get_mut(self.count) {
            *way = Way { taken: taken as u32, bytes, length: meaning.len() as u8 };
            self.count += 1;
        }
    }
}

/// Whether more than one way may lead through a place that begins with this.
pub(super) fn is_special(byte: u8) -> bool {
    matches!(byte, b'\\' | b'%' | b'\n' | b'\r') || may_be_unseen(byte)
}

/// What the beginning of `text`, which is not empty, can stand for: itself, and what it is an escape of.
pub(super) fn characters(text: &[u8]) -> Ways {
    let mut ways = Ways::default();
    ways.add(1, &text[..1]);
    match text[0] {
        b'+' => ways.add(1, b" "),
        b'%' => percent(text, &mut ways),
        b'\\' => backslash(text, &mut ways),
        _ => {}
    }
    ways
}

fn percent(text: &[u8], ways: &mut Ways) {
    let mut rest = &text[1..];
    for _ in 0..PERCENT_DEPTH {
        match hex(rest, 2) {
            Some(Some(byte)) => ways.add(text.len() - rest.len() + 2, &[byte as u8]),
            Some(None) => ways.is_open = true,
            None => {}
        }
        match rest.strip_prefix(b"25") {
            Some(inner) => rest = inner,
            None => return,
        }
    }
}

fn backslash(text: &[u8], ways: &mut Ways) {
    let Some((run, letter)) = escaped(text) else {
        ways.is_open |= text.len() <= BACKSLASHES && text.iter().all(|byte| *byte == b'\\');
        return;
    };
    let after = &text[run + 1..];
    // A letter by itself, as `/` and `"` are, and any other after the second half of an escaped backslash.
    ways.add(run + 1, &[letter]);
    match letter {
        b'n' => ways.add(run + 1, b"\n"),
        b'r' => ways.add(run + 1, b"\r"),
        b't' => ways.add(run + 1, b"\t"),
        b'b' => ways.add(run + 1, b"\x08"),
        b'f' => ways.add(run + 1, b"\x0c"),
        b'x' => match hex(after, 2) {
            Some(Some(byte)) => ways.add(run + 3, &[byte as u8]),
            Some(None) => ways.is_open = true,
            None => {}
        },
        b'u' => match hex(after, 4) {
            Some(Some(unit)) => unicode(unit, run + 5, &after[4..], ways),
            Some(None) => ways.is_open = true,
            None => {}
        },
        _ => {}
    }
}

/// A code unit of UTF-16, which needs a second one if it is the first half of a pair.
fn unicode(unit: u32, taken: usize, after: &[u8], ways: &mut Ways) {
    let mut bytes = [0; 4];
    if let Some(letter) = char::from_u32(unit) {
        return ways.add(taken, letter.encode_utf8(&mut bytes).as_bytes());
    }
    let Some((run, letter)) = escaped(after) else {
        ways.is_open |= after.iter().all(|byte| *byte == b'\\');
        return;
    };
    match (letter, hex(&after[run + 1..], 4)) {
        (b'u', Some(Some(low))) => {
            let pair = char::decode_utf16([unit as u16, low as u16]).next();
            if let Some(Ok(letter)) = pair {
                ways.add(taken + run + 5, letter.encode_utf8(&mut bytes).as_bytes());
            }
        }
        (b'u', Some(None)) => ways.is_open = true,
        _ => {}
    }
}

/// How many backslashes `text` begins with, if there are some and not too many, and the letter after them.
fn escaped(text: &[u8]) -> Option<(usize, u8)> {
    let run = text.iter().take(BACKSLASHES + 1).take_while(|byte| **byte == b'\\').count();
    let letter = *text.get(run)?;
    (1..=BACKSLASHES).contains(&run).then_some((run, letter))
}

/// The number of so many hexadecimal digits: none if there are others, nothing yet if the text ends within them.
fn hex(text: &[u8], digits: usize) -> Option<Option<u32>> {
    let mut number = 0;
    for place in 0..digits {
        let Some(byte) = text.get(place) else { return Some(None) };
        number = number * 16 + char::from(*byte).to_digit(16)?;
    }
    Some(Some(number))
}

/// If `text` begins with a line end: where the next line begins, with and without its number, as file tools show it.
/// The line ends and tabs may be escaped.
pub(super) fn gap(text: &[u8]) -> Ways {
    let mut ways = Ways::default();
    let Some(mut end) = line_end(text, &mut ways) else { return ways };
    loop {
        let Some(byte) = text.get(end) else {
            ways.is_open = true;
            break;
        };
        end += match (byte, line_end(&text[end..], &mut ways)) {
            (b' ' | b'\t', _) => 1,
            (_, Some(length)) => length,
            _ => break,
        };
        if end > GAP_BYTES {
            return Ways::default();
        }
    }
    ways.add(end, b"");
    let rest = &text[end..];
    let digits = rest.iter().take(GAP_BYTES).take_while(|byte| byte.is_ascii_digit()).count();
    match (digits, rest.get(digits)) {
        (0, _) => {}
        (_, Some(b'\t')) => ways.add(end + digits + 1, b""),
        (_, Some(b'\\')) => match escaped(&rest[digits..]) {
            Some((run, b't')) => ways.add(end + digits + run + 1, b""),
            Some(_) => {}
            None => ways.is_open = true,
        },
        (_, None) => ways.is_open = true,
        (_, Some(_)) => {}
    }
    ways
}

/// How long the line end is that `text` begins with.
fn line_end(text: &[u8], ways: &mut Ways) -> Option<usize> {
    let mut read = Ways::default();
    match text.first()? {
        b'\n' | b'\r' => return Some(1),
        b'\\' => backslash(text, &mut read),
        b'%' => percent(text, &mut read),
        _ => return None,
    }
    ways.is_open |= read.is_open;
    let is_end = |way: &&Way| matches!(way.bytes(), b"\n" | b"\r");
    read.found().iter().find(is_end).map(Way::taken)
}
