//! Repeating what somebody else wrote, but not all of it.

use std::borrow::Cow;

/// The first `max` characters of `text`, with an ellipsis if that is not all.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.split_at(end).0)),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_letters_and_says_so() {
        assert_eq!(cut("größe", 5), "größe");
        assert_eq!(cut("größe", 3), "grö…");
        assert_eq!(cut("größe", 0), "…");
        assert_eq!(cut("", 0), "");
    }
}
