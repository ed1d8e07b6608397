//! Removes or escapes invisible characters, and characters that reverse the writing direction, in texts such as titles.

/// `text` without invisible characters. Keeps joiners, which some scripts and emoji need.
pub fn visible(text: &str) -> String {
    text.chars().filter(|character| is_visible(*character)).collect()
}

/// `text` with escapes such as `\\u{202e}` in the place of invisible characters, also of line breaks, so that people see all
/// of what they decide about.
pub fn escaped(text: &str) -> String {
    let escape = |letter: char| match is_hidden(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Whether a character is visible or is a joiner.
pub fn is_visible(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}') || !is_hidden(character)
}

/// Whether `text` has no visible character.
pub fn is_blank(text: &str) -> bool {
    // Variation selectors only change their neighbours, and the empty Braille pattern looks like a space.
    let looks_empty = |character: char| matches!(character, '\u{fe00}'..='\u{fe0f}' | '\u{2800}');
    text.chars().all(|character| character.is_whitespace() || is_hidden(character) || looks_empty(character))
}

/// Whether a character is a control character, is invisible, or reorders others.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_and_reordering_characters_are_dropped() {
        assert_eq!(visible("pay\u{202e}gpj\u{2066}.\u{200b}ex\u{ad}e\u{7}\u{85}"), "paygpj.exe");
        for seen in ["größe", "👩\u{200d}👧", "می\u{200c}خواهم", "❤\u{fe0f}", "日本 語"] {
            assert_eq!(visible(seen), seen);
            assert!(!is_blank(seen), "{seen}");
        }
        assert_eq!(escaped("größe\u{1b}[2K\r\u{202e}\u{200d}a"), "größe\\u{1b}[2K\\r\\u{202e}\\u{200d}a");
        for blank in ["", " \u{3000}", "\u{200d}", "\u{fe0f}", "\u{202e}\u{feff}", "\u{3164}", "\u{2800}\0"] {
            assert!(is_blank(blank), "{blank:?}");
        }
    }
}
