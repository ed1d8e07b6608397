//! Checks a line before it is decoded: it must be UTF-8, not nested too deeply, and without lone surrogates. Has the texts
//! of these errors.

use super::MAX_NESTING;

/// Why a line cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidJson {
    #[error("not valid UTF-8")]
    NotUtf8,
    #[error("nesting is deeper than {MAX_NESTING}")]
    TooDeep,
    #[error("an escape is half of a surrogate pair")]
    LoneSurrogate,
}

/// The line as text, after these checks. The decoder checks whether it is JSON; it would skip the members that it does
/// not read, so these checks are made here.
pub(super) fn text(line: &[u8]) -> Result<&str, InvalidJson> {
    let text = std::str::from_utf8(line).map_err(|_| InvalidJson::NotUtf8)?;
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
            b'"' => skip_string(&mut bytes)?,
            _ => {}
        }
    }
    Ok(text)
}

fn skip_string(bytes: &mut std::str::Bytes<'_>) -> Result<(), InvalidJson> {
    /// The code units of high and low surrogates. A pair of them stands for one character.
    const HIGH: std::ops::RangeInclusive<u16> = 0xD800..=0xDBFF;
    const LOW: std::ops::RangeInclusive<u16> = 0xDC00..=0xDFFF;
    let mut after_high = false;
    while let Some(byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        let unit = if escaped == Some(b'u') { hex4(bytes) } else { None };
        let is_low = unit.is_some_and(|unit| LOW.contains(&unit));
        if after_high != is_low {
            return Err(InvalidJson::LoneSurrogate);
        }
        after_high = unit.is_some_and(|unit| HIGH.contains(&unit));
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

/// The longest line that is decoded for a log message. A `hello` is far shorter, and the decoded tree takes up to a
/// hundred times the bytes of the line.
const MAX_LOGGED_BYTES: usize = 16 * 1024;

/// A line for a log message, without the client's token.
pub fn redact_token(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if !text.contains("token") && !text.contains("\\u") {
        return text.into_owned();
    }
    if line.len() > MAX_LOGGED_BYTES {
        return format!("({} bytes, not shown because they may contain a token)", line.len());
    }
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(mut message) => {
            if let Some(token) = message.pointer_mut("/params/token") {
                *token = "…".into();
            }
            message.to_string()
        }
        // A part of a message may contain a part of the token.
        Err(_) => format!("({} bytes that are not a JSON message)", line.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_at_the_limit_is_accepted_and_one_level_more_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(text(nested(MAX_NESTING).as_bytes()).is_ok());
        assert_eq!(text(nested(MAX_NESTING + 1).as_bytes()), Err(InvalidJson::TooDeep));
        let side_by_side = "[]".repeat(1000);
        assert!(text(side_by_side.as_bytes()).is_ok());
        let in_a_string = format!("\"{}\"", "[".repeat(1000));
        assert!(text(in_a_string.as_bytes()).is_ok());
    }

    #[test]
    fn lone_surrogates_are_refused() {
        for valid in [r#""\ud83d\ude00""#, r#""\u00e4""#, r#""\\ud83d""#, r#""a\"\u0041""#, "\"\u{e4}\""] {
            assert!(text(valid.as_bytes()).is_ok(), "{valid}");
        }
        for lone in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx""#, r#""\ud83d\n\ude00""#, r#""\ud83d\ud83d""#]
        {
            assert_eq!(text(lone.as_bytes()), Err(InvalidJson::LoneSurrogate), "{lone}");
        }
    }

    #[test]
    fn a_token_is_never_logged() {
        let hello = br#"{"method":"hello","params":{"name":"n","token":"s3cret"},"id":1}"#;
        assert!(!redact_token(hello).contains("s3cret") && redact_token(hello).contains("\"n\""));
        let escaped = br#"{"method":"hello","params":{"t\u006fken":"s3cret"}}"#;
        assert!(!redact_token(escaped).contains("s3cret"));
        assert!(!redact_token(br#"{"params":{"token":"s3cr"#).contains("s3cr"));
        assert_eq!(redact_token(br#"{"method":"ping"}"#), r#"{"method":"ping"}"#);
        let long = format!(r#"{{"params":{{"token":"s3cret{}"}}}}"#, "x".repeat(MAX_LOGGED_BYTES));
        assert!(!redact_token(long.as_bytes()).contains("s3cret"));
    }
}
