//! The compact form of a stored event: its JSON, with frequent parts replaced by control characters; a long one is deflated.
//!
//! JSON contains no control character, so each of them can stand for a part that many events have, such as
//! `,"event":{"message_completed":{"message":"msg_`. The 32 hexadecimal digits of a generated id become 20 characters. The
//! result is text, as the tables of both stores want it, without NUL, and it expands to the same JSON, byte by byte.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Stands for 32 hexadecimal digits, in the 20 characters that follow: 10 for each half of the number.
const ID: u8 = 0x01;

/// Begins a deflated text. The rest is its length in [`HALF`] characters, and the deflated bytes, 7 bits to a character.
const DEFLATED: char = '\u{1f}';

/// How many hexadecimal digits an id has.
const HEX_DIGITS: usize = 32;

/// How many characters stand for a number of 64 bits.
const HALF: usize = 10;

/// The digits of such a number are the characters from `!` to `~`.
const BASE: u64 = 94;
const FIRST_DIGIT: u8 = b'!';

/// A text is deflated from this length on. Shorter texts gain little, and cost more time than everything else.
pub(crate) const DEFLATE_FROM_BYTES: usize = 512;

/// The usual level: the highest takes longer and saves next to nothing.
const LEVEL: u32 = 6;

/// No deflated text becomes longer than this many times its bytes. A stored length above it is a damaged row, for which no
/// memory is reserved.
const MAX_RATIO: u64 = 1100;

/// The replaced parts, each with its character. Part of version 2 of the stored form, so this table never changes.
const PARTS: [(u8, &str); 29] = [
    (0x02, r#"{"run":{"run":"run_"#),
    (0x03, r#"","sequence":"#),
    (0x04, r#","event":{"started":{"agent":""#),
    (0x05, r#","event":{"message_started":{"message":"msg_"#),
    (0x06, r#","event":{"message_completed":{"message":"msg_"#),
    (0x07, r#","event":{"step_started":{"step":"step_"#),
    (0x08, r#","event":{"step_updated":{"step":"step_"#),
    (0x09, r#","event":{"step_completed":{"step":"step_"#),
    (0x0a, r#","event":{"reasoned":{"step":"step_"#),
    (0x0b, r#","event":{"tool_called":{"step":"step_"#),
    (0x0c, r#","event":{"tool_progressed":{"call":"call_"#),
    (0x0d, r#","event":{"tool_completed":{"call":"call_"#),
    (0x0e, r#","event":{"tool_failed":{"call":"call_"#),
    (0x0f, r#","event":{"ended":{"ending":{"completed":{"message":"msg_"#),
    (0x10, r#","event":{"consumed":{"usage":{"input_tokens":"#),
    (0x11, r#","output_tokens":"#),
    (0x12, r#","cache_read_tokens":"#),
    (0x13, r#","cache_write_tokens":"#),
    (0x14, r#","cost_micros":"#),
    (0x15, r#","duration_ms":"#),
    (0x16, r#"","kind":""#),
    (0x17, r#"","title":""#),
    (0x18, r#"","call":"call_"#),
    (0x19, r#"","tool":""#),
    (0x1a, r#"","input":"#),
    (0x1b, r#"","by":{"door":""#),
    (0x1c, r#"","text":""#),
    (0x1d, "}}}}"),
    (0x1e, r#""},"message":"msg_"#),
];

/// Why a compact form cannot be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its compact form is damaged")]
pub(crate) struct Damaged;

/// The compact form of a JSON text.
pub(super) fn compact(json: &str) -> String {
    let short = shorten(json);
    if short.len() < DEFLATE_FROM_BYTES {
        return short;
    }
    // Without a gain of an eighth, reading it is not worth the time.
    deflate(&short).filter(|deflated| deflated.len() < short.len() / 8 * 7).unwrap_or(short)
}

/// About how many bytes the JSON of a compact form has, told without expanding it.
pub(super) fn json_bytes(compact: &str) -> usize {
    let length = compact.strip_prefix(DEFLATED).and_then(|rest| number(&mut rest.as_bytes()).ok());
    length.and_then(|length| usize::try_from(length).ok()).unwrap_or(compact.len())
}

/// The JSON text of a compact form.
pub(super) fn expand(compact: &str) -> Result<String, Damaged> {
    match compact.strip_prefix(DEFLATED) {
        Some(deflated) => lengthen(&inflate(deflated)?),
        None => lengthen(compact),
    }
}

fn shorten(json: &str) -> String {
    let (bytes, mut short) = (json.as_bytes(), String::with_capacity(json.len()));
    let (mut at, mut copied) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        let part = match byte {
            // In a text of the JSON, these follow each other seldom: a quote has a backslash before it.
            b'{' | b',' if next == Some(&b'"') => part_at(bytes, at),
            b'"' if matches!(next, Some(b',' | b'}')) => part_at(bytes, at),
            b'}' if next == Some(&b'}') => part_at(bytes, at),
            b'_' => None,
            _ => {
                at += 1;
                continue;
            }
        };
        let id_start = at + part.map_or(1, |(_, length)| length);
        let id =
            bytes.get(id_start - 1).filter(|before| **before == b'_').and_then(|_| id_at(json, id_start));
        if part.is_none() && id.is_none() {
            at += 1;
            continue;
        }
        short.push_str(json.get(copied..part.map_or(id_start, |_| at)).unwrap_or_default());
        short.extend(part.map(|(mark, _)| char::from(mark)));
        if let Some(id) = id {
            short.push(char::from(ID));
            push_number(&mut short, (id >> 64) as u64);
            push_number(&mut short, id as u64);
        }
        at = id_start + id.map_or(0, |_| HEX_DIGITS);
        copied = at;
    }
    short.push_str(json.get(copied..).unwrap_or_default());
    short
}

fn part_at(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let bytes = bytes.get(at..)?;
    let (mark, part) = PARTS.iter().find(|(_, part)| bytes.starts_with(part.as_bytes()))?;
    Some((*mark, part.len()))
}

/// The number of the 32 lower-case hexadecimal digits at this place.
fn id_at(json: &str, start: usize) -> Option<u128> {
    let digits = json.get(start..start + HEX_DIGITS)?;
    let is_lower_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_lower_hex.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

fn lengthen(short: &str) -> Result<String, Damaged> {
    let mut json = Vec::with_capacity(2 * short.len() + 2 * HEX_DIGITS);
    let mut rest = short.as_bytes();
    loop {
        let (text, marked) = rest.split_at(text_length(rest));
        json.extend_from_slice(text);
        let Some((mark, after)) = marked.split_first() else { break };
        rest = after;
        if *mark == ID {
            for _ in 0..2 {
                json.extend_from_slice(&hex(number(&mut rest)?));
            }
        } else {
            let (_, part) = PARTS.get(usize::from(*mark).wrapping_sub(2)).ok_or(Damaged)?;
            json.extend_from_slice(part.as_bytes());
        }
    }
    // A damaged row may have an id in the middle of a letter.
    String::from_utf8(json).map_err(|_| Damaged)
}

/// How many bytes come before the first control character. Looks at 8 bytes at a time: all bytes of all events pass through.
fn text_length(bytes: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let has_control = |eight: u64| eight.wrapping_sub(LOW * 0x20) & !eight & (LOW * 0x80) != 0;
    let (eights, _) = bytes.as_chunks::<8>();
    let plain = eights.iter().take_while(|eight| !has_control(u64::from_ne_bytes(**eight))).count() * 8;
    let rest = bytes.get(plain..).unwrap_or_default();
    plain + rest.iter().position(|byte| *byte < 0x20).unwrap_or(rest.len())
}

fn hex(number: u64) -> [u8; HEX_DIGITS / 2] {
    let mut digits = [0; HEX_DIGITS / 2];
    for (digit, place) in digits.iter_mut().rev().zip(0..) {
        let value = (number >> (4 * place) & 0xf) as u8;
        *digit = if value < 10 { b'0' + value } else { b'a' - 10 + value };
    }
    digits
}

fn push_number(short: &mut String, mut number: u64) {
    let mut digits = [0; HALF];
    for digit in digits.iter_mut().rev() {
        *digit = FIRST_DIGIT + (number % BASE) as u8;
        number /= BASE;
    }
    short.extend(digits.map(char::from));
}

/// Takes a number from the start of a text.
fn number(text: &mut &[u8]) -> Result<u64, Damaged> {
    let (digits, rest) = text.split_first_chunk::<HALF>().ok_or(Damaged)?;
    *text = rest;
    let (last, digits) = digits.split_last().ok_or(Damaged)?;
    let digit = |byte: u8| Some(u64::from(byte.checked_sub(FIRST_DIGIT)?)).filter(|digit| *digit < BASE);
    let mut number = 0;
    for byte in digits {
        // All digits but the last have room in any case.
        number = number * BASE + digit(*byte).ok_or(Damaged)?;
    }
    number
        .checked_mul(BASE)
        .zip(digit(*last))
        .and_then(|(number, last)| number.checked_add(last))
        .ok_or(Damaged)
}

fn deflate(short: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(short.len());
    let status = Compress::new(Compression::new(LEVEL), false)
        .compress_vec(short.as_bytes(), &mut bytes, FlushCompress::Finish)
        .ok()?;
    if status != Status::StreamEnd {
        return None;
    }
    let mut text = String::with_capacity(1 + HALF + bytes.len() * 8 / 7 + bytes.len() / 64);
    text.push(DEFLATED);
    push_number(&mut text, short.len() as u64);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in bytes {
        (bits, count) = (bits << 8 | u32::from(byte), count + 8);
        while count >= 7 {
            count -= 7;
            text.push(seven_bits(bits >> count));
        }
    }
    if count > 0 {
        text.push(seven_bits(bits << (7 - count)));
    }
    Some(text)
}

/// The character of the lowest 7 bits. It is never NUL, which PostgreSQL does not store.
fn seven_bits(bits: u32) -> char {
    char::from((bits & 0x7f) as u8 + 1)
}

fn inflate(deflated: &str) -> Result<String, Damaged> {
    let length = number(&mut deflated.as_bytes())?;
    let text = deflated.get(HALF..).ok_or(Damaged)?;
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut count) = (0_u32, 0);
    for character in text.chars() {
        let seven = u32::from(character).checked_sub(1).filter(|seven| *seven < 0x80).ok_or(Damaged)?;
        (bits, count) = (bits << 7 | seven, count + 7);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    if length > MAX_RATIO * bytes.len() as u64 {
        return Err(Damaged);
    }
    let mut short = Vec::with_capacity(usize::try_from(length).map_err(|_| Damaged)?);
    let status = Decompress::new(false)
        .decompress_vec(&bytes, &mut short, FlushDecompress::Finish)
        .map_err(|_| Damaged)?;
    if status != Status::StreamEnd || short.len() as u64 != length {
        return Err(Damaged);
    }
    String::from_utf8(short).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID_1: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn frequent_parts_and_ids_become_short() {
        let json = format!(
            r#"{{"run":{{"run":"run_{ID_1}","sequence":7,"event":{{"message_started":{{"message":"msg_{ID_1}"}}}}}}}}"#
        );
        let short = compact(&json);
        assert_eq!((json.len(), short.len()), (146, 48));
        assert_eq!(expand(&short).unwrap(), json);
    }

    /// The events of a run that calls a tool, as the log has them.
    const RUN: [&str; 8] = [
        r#"{"started":{"agent":"local","input":{"text":"!ls -la crates","by":{"door":"chat"}},"message":"msg_01a1f059e5557b0a876f5478ba2b7dd4"}}"#,
        r#"{"step_started":{"step":"step_001","kind":"tool","title":"Using shell"}}"#,
        r#"{"tool_called":{"step":"step_001","call":"call_01a1f059e556739d932ad8bff051bc4e","tool":"shell","input":"{\"command\":\"ls -la crates\"}"}}"#,
        r#"{"tool_progressed":{"call":"call_01a1f059e556739d932ad8bff051bc4e","message":"At work","percent":10}}"#,
        r#"{"tool_completed":{"call":"call_01a1f059e556739d932ad8bff051bc4e","output":"total 84\ndrwxr-xr-x 21 root root 4096 Nov 18 20:11 .\ndrwxr-xr-x 12 root root 4096 Nov 18 20:12 ..\ndrwxr-xr-x  3 root root 4096 Nov 18 20:11 app\ndrwxr-xr-x  3 root root 4096 Nov 18 20:11 auth\ndrwxr-xr-x  3 root root 4096 Nov 18 20:11 client\ndrwxr-xr-x  4 root root 4096 Nov 18 20:11 doors\ndrwxr-xr-x  4 root root 4096 Nov 18 20:11 engine\ndrwxr-xr-x  3 root root 4096 Nov 18 20:11 exec-server\ndrwxr-xr-x  3 root root 4096 Nov 18 20:11 files\n","duration_ms":9259}}"#,
        r#"{"step_completed":{"step":"step_001","summary":"","duration_ms":9259}}"#,
        r#"{"message_started":{"message":"msg_01a1f05a098270aba03c1d9ba86e8a24"}}"#,
        r#"{"ended":{"ending":{"completed":{"message":"msg_01a1f05a098270aba03c1d9ba86e8a24"}},"duration_ms":9261}}"#,
    ];

    #[test]
    fn a_run_becomes_less_than_half_as_long() {
        let json = RUN.into_iter().zip(1..).map(|(event, sequence)| {
            format!(r#"{{"run":{{"run":"run_{ID_1}","sequence":{sequence},"event":{event}}}}}"#)
        });
        let (mut before, mut after) = (0, 0);
        for json in json {
            assert_eq!(expand(&compact(&json)).unwrap(), json);
            (before, after) = (before + json.len(), after + compact(&json).len());
        }
        assert!(2 * after < before, "{before} {after}");
    }

    #[test]
    fn long_texts_are_deflated_unless_that_gains_little() {
        let prose = format!(r#"{{"renamed":{{"title":"{}"}}}}"#, "two words ".repeat(100));
        assert!(compact(&prose).starts_with(DEFLATED) && compact(&prose).len() < prose.len() / 5);
        assert_eq!(expand(&compact(&prose)).unwrap(), prose);
        let mut state = 1_u64;
        let noise: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + (state >> 33) as u8 % 94)
        })
        .take(2000)
        .collect();
        assert_eq!(compact(&noise), noise);
    }

    #[test]
    fn damaged_forms_are_refused() {
        let id = format!("\u{1}{}", "!".repeat(20));
        assert_eq!(expand(&id).unwrap(), "0".repeat(32));
        let deflated = compact(&"two words ".repeat(100));
        let lied = deflated.replacen("!!!!!!!!", "~~~~~~~~", 1);
        let cut: String = deflated.chars().take(deflated.chars().count() - 3).collect();
        for damaged in [
            "\u{1}",
            "\u{1}!!!",
            &format!("\u{1}{}", "~".repeat(20)),
            "\u{1}!!!!!!!!!!!!!!!!!!! ",
            "\0",
            "\u{20}\u{1f}",
            "x\u{1f}",
            "\u{1f}",
            "\u{1f}!!!!!!!!!\"\u{100}",
            &lied,
            &cut,
        ] {
            assert_eq!(expand(damaged), Err(Damaged), "{damaged:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn every_text_without_control_characters_comes_back(
            pieces in prop::collection::vec((0..PARTS.len() + 2, "[^\\x00-\\x1f]{0,40}"), 0..24),
        ) {
            let text: String = pieces.iter().fold(String::new(), |text, (part, other)| {
                let part = PARTS.get(*part).map_or(ID_1, |(_, part)| part);
                text + other + part
            });
            let short = compact(&text);
            prop_assert!(!short.contains('\0'));
            prop_assert_eq!(expand(&short).unwrap(), text);
        }

        #[test]
        fn no_text_makes_the_expansion_panic(text in "[\\x01-\\x1f]?[!-~]{0,12}(\\x01[!-~]{20})?.{0,64}") {
            let _ = expand(&text);
        }
    }
}
