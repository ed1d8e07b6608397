//! Decodes UTF-8 that arrives in pieces, where a piece may end within a character.

/// Decodes pieces of bytes into pieces of text. Invalid UTF-8 becomes the replacement character.
#[derive(Debug, Default)]
pub(super) struct Utf8Decoder {
    /// The first bytes of an incomplete character, at most three.
    pending: Vec<u8>,
}

impl Utf8Decoder {
    /// The text of the pending bytes and `piece`. An incomplete character at the end waits for the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend(piece);
        let complete = bytes.len() - incomplete_suffix(&bytes);
        self.pending = bytes.split_off(complete);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The text of the pending bytes, at the end of the stream.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// The length of the incomplete character at the end of `bytes`, or 0.
pub(super) fn incomplete_suffix(bytes: &[u8]) -> usize {
    for length in 1..=3.min(bytes.len()) {
        let end = &bytes[bytes.len() - length..];
        match std::str::from_utf8(end) {
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return length,
            _ => {}
        }
    }
    0
}

/// The length of the character fragment at the start of `bytes` whose first bytes are missing, or 0.
pub(super) fn orphaned_prefix(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_text_does_not_depend_on_the_cuts(text in "[aä€😀]{0,12}", cuts in prop::collection::vec(0usize..40, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut decoder, mut out, mut start) = (Utf8Decoder::default(), String::new(), 0);
            for cut in cuts {
                out.push_str(&decoder.push(&text.as_bytes()[start..cut]));
                start = cut;
            }
            prop_assert_eq!(decoder.finish(), "");
            prop_assert_eq!(out, text);
        }

        #[test]
        fn any_bytes_decode_like_from_utf8_lossy(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5)) {
            let mut decoder = Utf8Decoder::default();
            let mut out: String = pieces.iter().map(|piece| decoder.push(piece)).collect();
            out.push_str(&decoder.finish());
            let all = pieces.concat();
            prop_assert_eq!(out, String::from_utf8_lossy(&all));
        }
    }

    #[test]
    fn incomplete_characters_are_measured() {
        assert_eq!(incomplete_suffix("a€".as_bytes()), 0);
        assert_eq!(incomplete_suffix(&"a€".as_bytes()[..3]), 2);
        assert_eq!(incomplete_suffix(b"\xff"), 0, "no character starts with this byte");
        assert_eq!(orphaned_prefix(&"€a".as_bytes()[1..]), 2);
        assert_eq!(orphaned_prefix(b"abc"), 0);
    }
}
