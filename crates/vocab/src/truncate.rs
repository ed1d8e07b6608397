//! Shortens text for people and models, always between two characters.

use std::borrow::Cow;

/// The first `max` characters of `text`, followed by an ellipsis if `text` is longer.
pub fn truncate_chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.split_at(end).0)),
        None => Cow::Borrowed(text),
    }
}

/// The beginning and the end of `text`, together at most `max_bytes` long, with a note between them that tells how
/// many bytes are missing. The note comes on top of `max_bytes`.
pub fn truncate_middle(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let start = text.floor_char_boundary(max_bytes / 2);
    let end = text.ceil_char_boundary(text.len() - max_bytes / 2);
    let (head, tail) = (text.split_at(start).0, text.split_at(end).1);
    Cow::Owned(format!("{head}\n[… {} bytes are left out …]\n{tail}", end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_after_a_character_and_gets_an_ellipsis() {
        assert_eq!(truncate_chars("größe", 5), "größe");
        assert_eq!(truncate_chars("größe", 3), "grö…");
        assert_eq!(truncate_chars("größe", 0), "…");
        assert_eq!(truncate_chars("", 0), "");
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        assert_eq!(truncate_middle("short", 5), "short");
        let cut = truncate_middle(&"ä".repeat(1000), 101).into_owned();
        assert!(cut.contains("bytes are left out"), "{cut}");
        assert!(cut.len() < 101 + 60, "{}", cut.len());
        assert!(cut.starts_with('ä') && cut.ends_with('ä'));
    }
}
