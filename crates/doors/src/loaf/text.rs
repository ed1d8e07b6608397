//! Trims and counts text as JavaScript does, because the clients of this protocol are written in it.

use parlor_vocab::UniqueNumber;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Whether JavaScript's `trim` removes the character.
pub(super) fn is_blank(c: char) -> bool {
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

/// `text` without surrounding white space.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// The length of `text` in UTF-16 code units.
pub(super) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The length of `text` in UTF-16 code units after trimming, with each sequence of white space counted once.
pub(super) fn collapsed_units(text: &str) -> usize {
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    let (count, length) = words.fold((0, 0), |(count, length), word| (count + 1, length + units(word)));
    length + usize::saturating_sub(count, 1)
}

/// The text of `raw`, if it is a string. Lone surrogates are replaced.
pub(super) fn string(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if !text.starts_with('"') {
        return None;
    }
    serde_json::from_str(text).ok().or_else(|| lossy(text))
}

fn lossy(text: &str) -> Option<String> {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }
        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }
    // `deserialize_bytes` accepts lone surrogates.
    serde_json::Deserializer::from_str(text).deserialize_bytes(Bytes).ok()
}

/// A UUID of version 4. It is made of a hash, because the numbers of the source grow with time and a UUID of this
/// version must look random.
pub(super) fn uuid(number: UniqueNumber) -> String {
    let digest = Sha256::digest(number.0.to_be_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, random)| *byte = random);
    let number = u128::from_be_bytes(bytes);
    let number = number & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let part = |shift: u32, digits: u32| number >> shift & ((1 << (4 * digits)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 8),
        part(80, 4),
        part(64, 4),
        part(48, 4),
        part(0, 12)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_that_of_javascript() {
        assert_eq!(trim("\u{feff}\u{a0} \u{2028}x\u{3000}\n"), "x");
        assert_eq!(trim("\u{85}x"), "\u{85}x");
    }

    #[test]
    fn characters_beyond_the_basic_plane_count_twice() {
        assert_eq!((units("a\u{1f600}"), collapsed_units("  a \n b  ")), (3, 3));
        assert_eq!((units(""), collapsed_units(" \t")), (0, 0));
    }

    #[test]
    fn a_lone_surrogate_is_replaced() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(string(&raw(r#""a\n\u00e4""#)).unwrap(), "a\n\u{e4}");
        let half = string(&raw(r#""x\ud800y""#)).unwrap();
        assert!(half.starts_with('x') && half.ends_with('y') && half.contains('\u{fffd}'), "{half}");
        assert_eq!(string(&raw("5")), None);
    }

    #[test]
    fn ids_are_uuids_of_version_four() {
        let id = uuid(UniqueNumber(7));
        assert_eq!((id.len(), id.as_bytes()[14], uuid(UniqueNumber(7)) == id), (36, b'4', true));
        assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{id}");
        assert_ne!(id, uuid(UniqueNumber(8)));
    }
}
