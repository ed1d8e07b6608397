//! What has to be known of a line before it is decoded: that it is text, not nested too deep, and
//! that its escapes are letters.

use super::MAX_NESTING;

/// Why a line cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidJson {
    #[error("not valid UTF-8")]
    NoText,
    #[error("nesting is deeper than {MAX_NESTING}")]
    TooDeep,
    #[error("an escape is half of a surrogate pair")]
    HalfLetter,
}

/// The line as text. Whether it is JSON is for the decoder to say, which would pass over what it does
/// not look at.
pub(super) fn text(line: &[u8]) -> Result<&str, InvalidJson> {
    let text = std::str::from_utf8(line).map_err(|_| InvalidJson::NoText)?;
    let mut depth = 0_usize;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_NESTING {
                    return Err(InvalidJson::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => pass_string(&mut bytes)?,
            _ => {}
        }
    }
    Ok(text)
}

fn pass_string(bytes: &mut std::str::Bytes<'_>) -> Result<(), InvalidJson> {
    /// Of the pairs that stand for one letter, the halves.
    const FIRST: std::ops::RangeInclusive<u16> = 0xD800..=0xDBFF;
    const SECOND: std::ops::RangeInclusive<u16> = 0xDC00..=0xDFFF;
    let mut first_half = false;
    while let Some(byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        let unit = if escaped == Some(b'u') { hex4(bytes) } else { None };
        let is_second = unit.is_some_and(|unit| SECOND.contains(&unit));
        if first_half != is_second {
            return Err(InvalidJson::HalfLetter);
        }
        first_half = unit.is_some_and(|unit| FIRST.contains(&unit));
        if byte == b'"' {
            return Ok(());
        }
    }
    Ok(())
}

fn hex4(bytes: &mut std::str::Bytes<'_>) -> Option<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        let digit = char::from(bytes.next()?).to_digit(16)?;
        unit = unit << 4 | digit as u16;
    }
    Some(unit)
}

/// The longest line that is decoded to be shown in a log. A `hello` is far shorter, and what is decoded takes a hundred
/// times its bytes at worst.
const MAX_SHOWN_BYTES: usize = 16 * 1024;

/// A line for a log, without what it says under `token`.
pub fn redacted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if !text.contains("token") && !text.contains("\\u") {
        return text.into_owned();
    }
    if line.len() > MAX_SHOWN_BYTES {
        return format!("({} bytes, among which there may be a token)", line.len());
    }
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(mut message) => {
            if let Some(token) = message.pointer_mut("/params/token") {
                *token = "…".into();
            }
            message.to_string()
        }
        // Half a message may hold half a token.
        Err(_) => format!("({} bytes that are no message)", line.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_nesting_is_accepted_and_one_more_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(text(nested(MAX_NESTING).as_bytes()).is_ok());
        assert_eq!(text(nested(MAX_NESTING + 1).as_bytes()), Err(InvalidJson::TooDeep));
        let side_by_side = "[]".repeat(1000);
        assert!(text(side_by_side.as_bytes()).is_ok());
        let in_a_string = format!("\"{}\"", "[".repeat(1000));
        assert!(text(in_a_string.as_bytes()).is_ok());
    }

    #[test]
    fn half_a_letter_is_none() {
        for whole in [r#""\ud83d\ude00""#, r#""\u00e4""#, r#""\\ud83d""#, r#""a\"\u0041""#, "\"\u{e4}\""] {
            assert!(text(whole.as_bytes()).is_ok(), "{whole}");
        }
        for half in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx""#, r#""\ud83d\n\ude00""#, r#""\ud83d\ud83d""#]
        {
            assert_eq!(text(half.as_bytes()), Err(InvalidJson::HalfLetter), "{half}");
        }
    }

    #[test]
    fn a_token_never_gets_into_a_log() {
        let hello = br#"{"method":"hello","params":{"name":"n","token":"s3cret"},"id":1}"#;
        assert!(!redacted(hello).contains("s3cret") && redacted(hello).contains("\"n\""));
        let escaped = br#"{"method":"hello","params":{"t\u006fken":"s3cret"}}"#;
        assert!(!redacted(escaped).contains("s3cret"));
        assert!(!redacted(br#"{"params":{"token":"s3cr"#).contains("s3cr"));
        assert_eq!(redacted(br#"{"method":"ping"}"#), r#"{"method":"ping"}"#);
        let long = format!(r#"{{"params":{{"token":"s3cret{}"}}}}"#, "x".repeat(MAX_SHOWN_BYTES));
        assert!(!redacted(long.as_bytes()).contains("s3cret"));
    }
}
