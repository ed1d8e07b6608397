//! Halves of surrogate pairs, which a text in JavaScript may have and one in JSON may not.

/// The same JSON with U+FFFD in the place of each escape that is half a pair. Escapes are of one length, so nothing moves.
pub(crate) fn mended(json: &[u8]) -> Vec<u8> {
    let mut mended = json.to_vec();
    let mut place = 0;
    while place < json.len() {
        let here = escape_at(json, place);
        place += match (here, escape_at(json, place + ESCAPE)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
            (Some(0xd800..=0xdfff), _) => {
                mended[place..place + ESCAPE].copy_from_slice(br"\ufffd");
                ESCAPE
            }
            (Some(_), _) => ESCAPE,
            // Of another escape, such as two backslashes, the second letter begins none.
            (None, _) if json[place] == b'\\' => 2,
            (None, _) => 1,
        };
    }
    mended
}

/// How long `\u0000` is.
const ESCAPE: usize = 6;

/// The number of the escape that begins at `place`, if one does.
fn escape_at(json: &[u8], place: usize) -> Option<u16> {
    let digits = json.get(place..place + ESCAPE)?.strip_prefix(br"\u")?;
    // A sign is none.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(json: &str) -> String {
        serde_json::from_slice(&mended(json.as_bytes())).unwrap()
    }

    #[test]
    fn halves_are_replaced_and_pairs_stay() {
        assert_eq!(read(r#""a\ud83d\ude00b""#), "a\u{1f600}b");
        assert_eq!(read(r#""\ud83d\ud83d\ude00""#), "\u{fffd}\u{1f600}");
        assert_eq!(read(r#""\ude00\ud83d""#), "\u{fffd}\u{fffd}");
        assert_eq!(read(r#""\\ud83d\u0041""#), "\\ud83dA");
        assert_eq!(mended(br"\u+d83 \ud8"), br"\u+d83 \ud8");
    }

    proptest! {
        #[test]
        fn what_is_right_stays_as_it_is(text in any::<String>()) {
            let json = Value::from(text).to_string();
            prop_assert_eq!(mended(json.as_bytes()), json.into_bytes());
        }

        #[test]
        fn texts_of_any_units_can_be_read(units in proptest::collection::vec(0xd700..0xe100_u16, 0..32)) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(read(&format!("\"{escapes}\"")), String::from_utf16_lossy(&units));
        }
    }
}
