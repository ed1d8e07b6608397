//! What a screen does not show of a text: control characters, escape sequences, and letters without a shape.
//!
//! A secret with such a thing inside differs from the secret byte by byte, and is the same to whoever looks at the
//! screen. Line ends and tabs are seen.

use anstyle_parse::state::{State, state_change};

/// How much of this between two letters of a secret is looked through while a text is being written. In a whole text
/// there may be any amount.
pub const MAX_INVISIBLE_BYTES: usize = 256;

const ESCAPE: u8 = 0x1b;

/// Who shows a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    /// Obeys escape sequences, which may swallow letters.
    Terminal,
    /// Leaves out the control characters, and shows what follows an escape.
    Page,
}

/// What is not seen at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// So many bytes, then something that is seen. May be none.
    Bytes(usize),
    /// All of the text, which may go on with more.
    Open,
    /// More than was asked for.
    TooLong,
}

/// Whether what begins with this byte may not be seen. True of some bytes that begin what is seen as well.
pub(super) fn may_be_unseen(byte: u8) -> bool {
    matches!(byte, 0..=8 | 0xb | 0xc | 0xe..=0x1f | 0x7f | 0xc2 | 0xcd | 0xd8 | 0xe1..=0xe3 | 0xef | 0xf3)
}

/// Whether there is any such byte in `text`.
pub(super) fn may_hold_unseen(text: &[u8]) -> bool {
    // A fold has no branch for each byte, so that many are looked at in one step.
    let any = |piece: &[u8]| piece.iter().fold(false, |any, byte| any | may_be_unseen(*byte));
    text.chunks(64).any(any)
}

/// How much of the beginning of `text` is not seen on `screen`, up to `most` bytes.
pub(super) fn unseen(text: &[u8], screen: Screen, most: usize) -> Unseen {
    let mut place = 0;
    loop {
        if place > most {
            return Unseen::TooLong;
        }
        let rest = &text[place..];
        place += match rest.first() {
            None => return Unseen::Open,
            Some(&ESCAPE) if screen == Screen::Terminal => match sequence(rest, most - place) {
                Unseen::Bytes(length) => length,
                other @ (Unseen::Open | Unseen::TooLong) => return other,
            },
            Some(byte) if !may_be_unseen(*byte) => return Unseen::Bytes(place),
            Some(_) => match letter(rest) {
                Some(letter) if is_unseen(letter) => letter.len_utf8(),
                _ => return Unseen::Bytes(place),
            },
        };
    }
}

/// What is seen of `text` on `screen`.
pub(super) fn seen(text: &str, screen: Screen) -> String {
    let mut seen = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.bytes().position(may_be_unseen) {
        let (before, after) = rest.split_at(place);
        seen.push_str(before);
        let skipped = match unseen(after.as_bytes(), screen, usize::MAX) {
            Unseen::Bytes(length) => length,
            Unseen::Open | Unseen::TooLong => return seen,
        };
        // A sequence ends between letters: the rest of a letter that ends it is a part of it.
        let mut letters = after.get(skipped..).unwrap_or_default().chars();
        seen.extend(letters.next());
        rest = letters.as_str();
    }
    seen.push_str(rest);
    seen
}

/// How long the escape sequence is that `text` begins with, as a terminal reads it.
fn sequence(text: &[u8], most: usize) -> Unseen {
    let mut state = State::Ground;
    for (place, byte) in text.iter().enumerate() {
        if place > most {
            return Unseen::TooLong;
        }
        let (next, _) = state_change(state, *byte);
        if next != State::Anywhere {
            state = next;
        }
        if state == State::Ground {
            let is_rest_of_letter = |byte: &&u8| matches!(**byte, 0x80..=0xbf);
            let end = place + 1;
            return Unseen::Bytes(end + text[end..].iter().take_while(is_rest_of_letter).count());
        }
    }
    Unseen::Open
}

/// The first letter of `text`, if it begins with one.
fn letter(text: &[u8]) -> Option<char> {
    let start = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(start) {
        Ok(valid) => valid,
        Err(error) => std::str::from_utf8(&start[..error.valid_up_to()]).ok()?,
    };
    valid.chars().next()
}

/// Whether a letter is a control, or has no shape.
fn is_unseen(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\t' | '\n' | '\r'))
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_not_seen_on_it() {
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
            assert_eq!(seen(text, Screen::Terminal), terminal, "{text:?}");
            assert_eq!(seen(text, Screen::Page), page, "{text:?}");
        }
    }

    #[test]
    fn a_text_may_go_on_and_a_long_one_is_given_up() {
        let look = |text: &str| unseen(text.as_bytes(), Screen::Terminal, 9);
        assert_eq!(look("x"), Unseen::Bytes(0));
        assert_eq!(look("\x1b[m\x07x"), Unseen::Bytes(4));
        assert_eq!(look("\x1b[m\x07"), Unseen::Open);
        assert_eq!(look("\x1b[3"), Unseen::Open);
        assert_eq!(look("\x1b]0;long title\x07x"), Unseen::TooLong);
        assert_eq!(look(&"\x07".repeat(10)), Unseen::TooLong);
        assert_eq!(look(&format!("{}x", "\x07".repeat(9))), Unseen::Bytes(9));
    }

    #[test]
    fn every_letter_that_is_not_seen_is_noticed() {
        for letter in (0..=0x10_ffff).filter_map(char::from_u32).filter(|letter| is_unseen(*letter)) {
            let mut bytes = [0; 4];
            let bytes = letter.encode_utf8(&mut bytes).as_bytes();
            assert!(may_be_unseen(bytes[0]) && may_hold_unseen(bytes), "{letter:?}");
            assert_eq!(
                unseen(&[bytes, b"x"].concat(), Screen::Page, 9),
                Unseen::Bytes(bytes.len()),
                "{letter:?}"
            );
        }
    }
}
