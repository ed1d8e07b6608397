//! The words that transcripts add to JSON, found and replaced in a line of text.
//!
//! Patterns become plain JSON here, with each word as an object that no frame contains; what such
//! an object means is [`crate::pattern`]'s affair. Texts to be sent need not be JSON at all: what
//! does not look like a word is left as it is.

/// The start of a member name that stands for a word. No door has a member with a NUL in its name.
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
    let mut flaw = None;
    let encoded = replace_words(text, |word, text| {
        if word != "b64" {
            return None;
        }
        let bytes = serde_json::from_str::<String>(text?).map_err(|error| error.to_string());
        match bytes.and_then(|text| bytes_of(&text)) {
            Ok(bytes) => Some(format!("\"{}\"", base64_simd::STANDARD.encode_to_string(bytes))),
            Err(error) => {
                flaw = Some(error);
                None
            }
        }
    });
    flaw.map_or(Ok(encoded), Err)
}

/// The bytes that the text of a `b64` spells: each character is the byte of its number.
pub(crate) fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    text.chars()
        .map(|letter| {
            u8::try_from(letter).map_err(|_| format!("{letter:?} is above \\u00ff, so it is no byte in b64"))
        })
        .collect()
}

/// Goes through `line` outside of its strings. A word, with the string literal that follows it
/// immediately if there is one, is replaced by what `replace` makes of it.
fn replace_words(line: &str, mut replace: impl FnMut(&str, Option<&str>) -> Option<String>) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (literal, after) = split_literal(rest);
            out.push_str(literal);
            rest = after;
        } else if is_word(first) {
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
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
            let (letter, after) = rest.split_at(first.len_utf8());
            out.push_str(letter);
            rest = after;
        }
    }
    out
}

/// Numbers count as words too, so that the `e` in `1e5` is not the start of one.
fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '+' | '-')
}

/// Cuts `text` after the string literal that it starts with, or at its end if that never closes.
fn split_literal(text: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
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
    fn any_byte_can_be_spelled_and_no_more_than_a_byte() {
        assert_eq!(encode_chunks(r#"b64"\u0000\u00ff""#).unwrap(), r#""AP8=""#);
        assert!(encode_chunks(r#"b64"\u0100""#).unwrap_err().contains("no byte"));
        assert!(encode_chunks(r#"b64"\q""#).is_err());
    }

    #[test]
    fn words_inside_strings_and_numbers_are_no_words() {
        let text = r#"{"_":"_ has\"x\"","n":1e5,"m":-2.5}"#;
        assert_eq!(pattern_to_json(text), text);
        assert_eq!(pattern_to_json(r#"[_,has"x"]"#), r#"[{"\u0000_":""},{"\u0000has":"x"}]"#);
    }
}
