//! Finds and replaces the words that transcripts add to JSON.
//!
//! A pattern becomes plain JSON, with each word as an object that no frame contains; [`crate::pattern`] interprets these
//! objects. A text to be sent need not be JSON: everything that is not a word stays as it is.

/// The first character of a member name that stands for a word. No door has a member with a NUL in its name.
pub(crate) const MARK: char = '\0';

/// `pattern` as plain JSON: each word is `{"\0word": "text"}`.
pub(crate) fn pattern_to_json(pattern: &str) -> String {
    replace_words(pattern, |word, text| match (word, text) {
        ("_", None) => Some(r#"{"\u0000_":""}"#.to_owned()),
        ("has" | "b64" | "size" | "as" | "not", Some(text)) => Some(format!(r#"{{"\u0000{word}":{text}}}"#)),
        _ => None,
    })
}

/// `text` with each `b64"…"` replaced by its base64.
pub(crate) fn encode_chunks(text: &str) -> Result<String, String> {
    let mut failure = None;
    let encoded = replace_words(text, |word, text| {
        if word != "b64" {
            return None;
        }
        let bytes = serde_json::from_str::<String>(text?).map_err(|error| error.to_string());
        match bytes.and_then(|text| text_to_bytes(&text)) {
            Ok(bytes) => Some(format!("\"{}\"", base64_simd::STANDARD.encode_to_string(bytes))),
            Err(error) => {
                failure = Some(error);
                None
            }
        }
    });
    failure.map_or(Ok(encoded), Err)
}

/// The bytes of the text of a `b64`: each character stands for the byte with its number.
pub(crate) fn text_to_bytes(text: &str) -> Result<Vec<u8>, String> {
    text.chars()
        .map(|c| u8::try_from(c).map_err(|_| format!("{c:?} is above \\u00ff, so it is not a byte in b64")))
        .collect()
}

/// Calls `replace` with each word of `line` outside of strings, and with the string literal directly after the word if
/// there is one. Replaces both with the result.
fn replace_words(line: &str, mut replace: impl FnMut(&str, Option<&str>) -> Option<String>) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (literal, after) = split_literal(rest);
            out.push_str(literal);
            rest = after;
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let (text, after) = if after.starts_with('"') {
                let (literal, after) = split_literal(after);
                (Some(literal), after)
            } else {
                (None, after)
            };
            match replace(word, text) {
                Some(replacement) => out.push_str(&replacement),
                None => {
                    out.push_str(word);
                    out.push_str(text.unwrap_or_default());
                }
            }
            rest = after;
        } else {
            let (c, after) = rest.split_at(first.len_utf8());
            out.push_str(c);
            rest = after;
        }
    }
    out
}

/// Whether the character belongs to a word. Numbers count as words, so that the `e` in `1e5` does not begin one.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')
}

/// Splits `text` after the string literal that it begins with, or at its end if the literal is never closed.
fn split_literal(text: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return text.split_at(at + 1),
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_encoded_and_other_text_is_left_alone() {
        assert_eq!(encode_chunks(r#"{"chunk":b64"hello\n"}"#).unwrap(), r#"{"chunk":"aGVsbG8K"}"#);
        assert_eq!(encode_chunks(r#"{"b64":"b64\"x\"",_"#).unwrap(), r#"{"b64":"b64\"x\"",_"#);
        assert_eq!(encode_chunks(r#"{bad "never closed b64"#).unwrap(), r#"{bad "never closed b64"#);
        assert_eq!(encode_chunks(r#"xb64"hello""#).unwrap(), r#"xb64"hello""#);
    }

    #[test]
    fn any_byte_can_be_written_and_higher_characters_are_refused() {
        assert_eq!(encode_chunks(r#"b64"\u0000\u00ff""#).unwrap(), r#""AP8=""#);
        assert!(encode_chunks(r#"b64"\u0100""#).unwrap_err().contains("not a byte"));
        assert!(encode_chunks(r#"b64"\q""#).is_err());
    }

    #[test]
    fn words_inside_strings_and_numbers_are_not_replaced() {
        let text = r#"{"_":"_ has\"x\"","n":1e5,"m":-2.5}"#;
        assert_eq!(pattern_to_json(text), text);
        assert_eq!(pattern_to_json(r#"[_,has"x"]"#), r#"[{"\u0000_":""},{"\u0000has":"x"}]"#);
    }
}
