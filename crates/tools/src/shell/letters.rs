//! From pieces of bytes to pieces of text: a letter that is cut in two waits for its other half.

/// Decodes UTF-8 that comes in pieces. What is no UTF-8 becomes the replacement character.
#[derive(Debug, Default)]
pub(super) struct Utf8Stream {
    /// The start of a letter, at most three bytes.
    rest: Vec<u8>,
}

impl Utf8Stream {
    /// The text of `piece`, with what was left of the piece before it.
    pub(super) fn push(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend(piece);
        let whole = bytes.len() - unfinished(&bytes);
        self.rest = bytes.split_off(whole);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What is left, at the end of everything.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// How many bytes at the end of `bytes` are the start of a letter whose rest is missing.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    for length in 1..=3.min(bytes.len()) {
        let end = &bytes[bytes.len() - length..];
        match std::str::from_utf8(end) {
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return length,
            _ => {}
        }
    }
    0
}

/// How many bytes at the start of `bytes` are the rest of a letter whose start is missing.
pub(super) fn continued(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(text in "[aä€😀]{0,12}", cuts in prop::collection::vec(0usize..40, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut letters, mut out, mut start) = (Utf8Stream::default(), String::new(), 0);
            for cut in cuts {
                out.push_str(&letters.push(&text.as_bytes()[start..cut]));
                start = cut;
            }
            prop_assert_eq!(letters.finish(), "");
            prop_assert_eq!(out, text);
        }

        #[test]
        fn any_bytes_come_out_as_some_text(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5)) {
            let mut letters = Utf8Stream::default();
            let mut out: String = pieces.iter().map(|piece| letters.push(piece)).collect();
            out.push_str(&letters.finish());
            let all = pieces.concat();
            prop_assert_eq!(out, String::from_utf8_lossy(&all));
        }
    }

    #[test]
    fn halves_of_letters_are_known() {
        assert_eq!(unfinished("a€".as_bytes()), 0);
        assert_eq!(unfinished(&"a€".as_bytes()[..3]), 2);
        assert_eq!(unfinished(b"\xff"), 0, "never the start of anything");
        assert_eq!(continued(&"€a".as_bytes()[1..]), 2);
        assert_eq!(continued(b"abc"), 0);
    }
}
