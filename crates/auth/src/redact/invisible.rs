//! Invisible parts of a text: control characters, escape sequences and zero-width characters.
//!
//! A secret with invisible parts between its letters has other bytes, but looks like the secret on a display. Line breaks
//! and tabs count as visible.

use anstyle_parse::state::{State, state_change};

/// In streamed text, a secret is recognized if each invisible part between its letters has at most this many bytes. In
/// complete text there is no limit.
pub const MAX_INVISIBLE_BYTES: usize = 256;

const ESCAPE: u8 = 0x1b;

/// A kind of display. They hide different parts of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Display {
    /// Executes escape sequences, which may contain letters.
    Terminal,
    /// A web page: hides control characters, and shows the characters after an escape.
    Page,
}

/// The invisible part at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvisiblePrefix {
    /// The length of the part in bytes, maybe 0. A visible character follows.
    Bytes(usize),
    /// The whole text is invisible, and the part may continue.
    Incomplete,
    /// The part is longer than the limit.
    TooLong,
}

/// Whether an invisible character may start with this byte. Some visible characters start with the same bytes.
pub(super) fn may_be_invisible(byte: u8) -> bool {
    // The first bytes of the characters in `is_invisible`.
    matches!(byte, 0..=8 | 0xb | 0xc | 0xe..=0x1f | 0x7f | 0xc2 | 0xcd | 0xd8 | 0xe1..=0xe3 | 0xef | 0xf3)
}

/// Whether `text` contains a byte with which an invisible character may start.
pub(super) fn may_contain_invisible(text: &[u8]) -> bool {
    // The fold has no branch per byte, so that the compiler can vectorize it.
    let any = |piece: &[u8]| piece.iter().fold(false, |any, byte| any | may_be_invisible(*byte));
    text.chunks(64).any(any)
}

/// The invisible part at the start of `text` on this `display`, up to `max` bytes.
pub(super) fn invisible_prefix(text: &[u8], display: Display, max: usize) -> InvisiblePrefix {
    let mut position = 0;
    loop {
        if position > max {
            return InvisiblePrefix::TooLong;
        }
        let rest = &text[position..];
        position += match rest.first() {
            None => return InvisiblePrefix::Incomplete,
            Some(&ESCAPE) if display == Display::Terminal => match escape_sequence(rest, max - position) {
                InvisiblePrefix::Bytes(length) => length,
                other @ (InvisiblePrefix::Incomplete | InvisiblePrefix::TooLong) => return other,
            },
            Some(byte) if !may_be_invisible(*byte) => return InvisiblePrefix::Bytes(position),
            Some(_) => match first_char(rest) {
                Some(c) if is_invisible(c) => c.len_utf8(),
                _ => return InvisiblePrefix::Bytes(position),
            },
        };
    }
}

/// The visible part of `text` on this `display`.
pub(super) fn visible_text(text: &str, display: Display) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.bytes().position(may_be_invisible) {
        let (before, after) = rest.split_at(position);
        visible.push_str(before);
        let skipped = match invisible_prefix(after.as_bytes(), display, usize::MAX) {
            InvisiblePrefix::Bytes(length) => length,
            InvisiblePrefix::Incomplete | InvisiblePrefix::TooLong => return visible,
        };
        // `skipped` is a character boundary: an escape sequence includes all bytes of its last character.
        let mut chars = after.get(skipped..).unwrap_or_default().chars();
        visible.extend(chars.next());
        rest = chars.as_str();
    }
    visible.push_str(rest);
    visible
}

/// The length of the escape sequence at the start of `text`, as a terminal parses it.
fn escape_sequence(text: &[u8], max: usize) -> InvisiblePrefix {
    let mut state = State::Ground;
    for (position, byte) in text.iter().enumerate() {
        if position > max {
            return InvisiblePrefix::TooLong;
        }
        let (next, _) = state_change(state, *byte);
        if next != State::Anywhere {
            state = next;
        }
        if state == State::Ground {
            // The sequence takes its last character whole.
            let is_continuation = |byte: &&u8| matches!(**byte, 0x80..=0xbf);
            let end = position + 1;
            return InvisiblePrefix::Bytes(end + text[end..].iter().take_while(is_continuation).count());
        }
    }
    InvisiblePrefix::Incomplete
}

/// The first character of `text`, if it starts with valid UTF-8.
fn first_char(text: &[u8]) -> Option<char> {
    let start = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(start) {
        Ok(valid) => valid,
        Err(error) => std::str::from_utf8(&start[..error.valid_up_to()]).ok()?,
    };
    valid.chars().next()
}

/// Whether a character is a control character or has no width.
fn is_invisible(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_display_hides_its_invisible_parts() {
        for (text, terminal, page) in [
            ("a\x1b[31mb\x1b[0mc", "abc", "a[31mb[0mc"),
            ("a\x1b]0;title\x07b", "ab", "a]0;titleb"),
            ("a\x1b]0;title\x1b\\b", "ab", "a]0;title\\b"),
            ("a\x1bPdevice Ü\u{9c}b", "ab", "aPdevice Üb"),
            ("a\x1bPx\u{271c}b", "ab", "aPx\u{271c}b"),
            ("a\x1b[12\x18b", "ab", "a[12b"),
            ("a\x1bEb", "ab", "aEb"),
            ("a\x07\0\u{85}\u{200b}\u{202e}\u{feff}b", "ab", "ab"),
            ("a\tb\r\nc", "a\tb\r\nc", "a\tb\r\nc"),
            ("größe “日本語” €", "größe “日本語” €", "größe “日本語” €"),
            ("a\x1b]0;without end", "a", "a]0;without end"),
        ] {
            assert_eq!(visible_text(text, Display::Terminal), terminal, "{text:?}");
            assert_eq!(visible_text(text, Display::Page), page, "{text:?}");
        }
    }

    #[test]
    fn an_invisible_part_may_be_incomplete_or_too_long() {
        let prefix = |text: &str| invisible_prefix(text.as_bytes(), Display::Terminal, 9);
        assert_eq!(prefix("x"), InvisiblePrefix::Bytes(0));
        assert_eq!(prefix("\x1b[m\x07x"), InvisiblePrefix::Bytes(4));
        assert_eq!(prefix("\x1b[m\x07"), InvisiblePrefix::Incomplete);
        assert_eq!(prefix("\x1b[3"), InvisiblePrefix::Incomplete);
        assert_eq!(prefix("\x1b]0;long title\x07x"), InvisiblePrefix::TooLong);
        assert_eq!(prefix(&"\x07".repeat(10)), InvisiblePrefix::TooLong);
        assert_eq!(prefix(&format!("{}x", "\x07".repeat(9))), InvisiblePrefix::Bytes(9));
    }

    #[test]
    fn every_invisible_character_is_detected_by_its_first_byte() {
        for letter in (0..=0x10_ffff).filter_map(char::from_u32).filter(|letter| is_invisible(*letter)) {
            let mut bytes = [0; 4];
            let bytes = letter.encode_utf8(&mut bytes).as_bytes();
            assert!(may_be_invisible(bytes[0]) && may_contain_invisible(bytes), "{letter:?}");
            assert_eq!(
                invisible_prefix(&[bytes, b"x"].concat(), Display::Page, 9),
                InvisiblePrefix::Bytes(bytes.len()),
                "{letter:?}"
            );
        }
    }
}
