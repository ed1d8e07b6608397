//! Texts that are shown among others, such as names: without what cannot be seen or turns the direction of writing around.

/// The letters of `text` that can be seen, and what joins them.
pub fn visible(text: &str) -> String {
    text.chars().filter(|letter| is_visible(*letter)).collect()
}

/// Whether a letter can be seen or joins others: emoji and some scripts are written with joiners.
pub fn is_visible(letter: char) -> bool {
    matches!(letter, '\u{200c}' | '\u{200d}') || !is_hidden(letter)
}

/// Whether nothing of `text` would be seen.
pub fn is_blank(text: &str) -> bool {
    // Selectors and joiners only change their neighbours, and the empty pattern of Braille looks like a space.
    let is_nothing = |letter: char| matches!(letter, '\u{fe00}'..='\u{fe0f}' | '\u{2800}');
    text.chars().all(|letter| letter.is_whitespace() || is_hidden(letter) || is_nothing(letter))
}

/// Whether a letter is a control, cannot be seen, or reorders others.
pub(crate) fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_turns_around_is_dropped() {
        assert_eq!(visible("pay\u{202e}gpj\u{2066}.\u{200b}ex\u{ad}e\u{7}\u{85}"), "paygpj.exe");
        for seen in ["größe", "👩\u{200d}👧", "می\u{200c}خواهم", "❤\u{fe0f}", "日本 語"] {
            assert_eq!(visible(seen), seen);
            assert!(!is_blank(seen), "{seen}");
        }
        for blank in ["", " \u{3000}", "\u{200d}", "\u{fe0f}", "\u{202e}\u{feff}", "\u{3164}", "\u{2800}\0"] {
            assert!(is_blank(blank), "{blank:?}");
        }
    }
}
