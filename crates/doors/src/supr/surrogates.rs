//! Replaces lone surrogates: a JavaScript string may contain them, a JSON string may not.

/// The same JSON with `\ufffd` instead of each escape that is a lone surrogate. All escapes have the same length, so
/// offsets do not change.
pub(crate) fn replace_lone_surrogates(json: &[u8]) -> Vec<u8> {
    let mut replaced = json.to_vec();
    let mut position = 0;
    while position < json.len() {
        let first = escape_at(json, position);
        position += match (first, escape_at(json, position + ESCAPE_BYTES)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE_BYTES,
            (Some(0xd800..=0xdfff), _) => {
                replaced[position..position + ESCAPE_BYTES].copy_from_slice(br"\ufffd");
                ESCAPE_BYTES
            }
            (Some(_), _) => ESCAPE_BYTES,
            // The second character of another escape, such as `\\`, begins no escape.
            (None, _) if json[position] == b'\\' => 2,
            (None, _) => 1,
        };
    }
    replaced
}

/// The length of an escape such as `\u0000`.
const ESCAPE_BYTES: usize = 6;

/// The code unit of the escape at `position`, if there is one.
fn escape_at(json: &[u8], position: usize) -> Option<u16> {
    let digits = json.get(position..position + ESCAPE_BYTES)?.strip_prefix(br"\u")?;
    // `from_str_radix` accepts a sign, JSON does not.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(json: &str) -> String {
        serde_json::from_slice(&replace_lone_surrogates(json.as_bytes())).unwrap()
    }

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        assert_eq!(read(r#""a\ud83d\ude00b""#), "a\u{1f600}b");
        assert_eq!(read(r#""\ud83d\ud83d\ude00""#), "\u{fffd}\u{1f600}");
        assert_eq!(read(r#""\ude00\ud83d""#), "\u{fffd}\u{fffd}");
        assert_eq!(read(r#""\\ud83d\u0041""#), "\\ud83dA");
        assert_eq!(replace_lone_surrogates(br"\u+d83 \ud8"), br"\u+d83 \ud8");
    }

    proptest! {
        #[test]
        fn valid_json_does_not_change(text in any::<String>()) {
            let json = Value::from(text).to_string();
            prop_assert_eq!(replace_lone_surrogates(json.as_bytes()), json.into_bytes());
        }

        #[test]
        fn any_sequence_of_code_units_can_be_read(units in proptest::collection::vec(0xd700..0xe100_u16, 0..32)) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(read(&format!("\"{escapes}\"")), String::from_utf16_lossy(&units));
        }
    }
}
