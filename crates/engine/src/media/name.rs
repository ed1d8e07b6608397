//! Names that people gave to files: for showing, never for finding anything.

use crate::visible::is_hidden;

/// The longest name that is kept, in letters.
pub const MAX_NAME_CHARS: usize = 128;

/// The name of what came without one.
pub const NAMELESS: &str = "upload";

/// The longest ending, with its dot, that survives when a name is cut.
const MAX_ENDING_CHARS: usize = 16;

/// The part of `name` behind the last slash, without what cannot be seen or turns the direction of
/// writing around (which makes `gpj.exe` look like `exe.jpg`), and not longer than
/// [`MAX_NAME_CHARS`]. [`NAMELESS`] if nothing is left but dots.
pub fn clean_name(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = base.chars().filter(|letter| !is_hidden(*letter)).collect();
    let name = cut(visible.trim());
    if name.trim_matches('.').is_empty() { NAMELESS.to_owned() } else { name }
}

/// Shortens from the middle: the ending says what a file is.
fn cut(name: &str) -> String {
    let length = name.chars().count();
    if length <= MAX_NAME_CHARS {
        return name.to_owned();
    }
    let ending = name.rfind('.').and_then(|dot| name.get(dot..)).unwrap_or_default();
    let ending = if ending.chars().count() <= MAX_ENDING_CHARS { ending } else { "" };
    let stem: String = name.chars().take(MAX_NAME_CHARS - ending.chars().count()).collect();
    // What was cut at a space is no different from what was sent without it.
    format!("{}{ending}", stem.trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_becomes_its_last_part() {
        assert_eq!(clean_name("../../etc/passwd"), "passwd");
        assert_eq!(clean_name(r"C:\Users\me\photo.png"), "photo.png");
        assert_eq!(clean_name("  über uns.pdf\n"), "über uns.pdf");
        assert_eq!(clean_name(".gitignore"), ".gitignore");
    }

    #[test]
    fn what_has_no_name_gets_one() {
        for name in ["", ".", "..", "a/", "x/..", "\0\n", " \u{202e} ", "///"] {
            assert_eq!(clean_name(name), NAMELESS, "{name:?}");
        }
    }

    #[test]
    fn marks_that_hide_the_ending_are_dropped() {
        assert_eq!(clean_name("photo\u{202e}gpj.exe"), "photogpj.exe");
        assert_eq!(clean_name("a\u{1b}[31mb\u{7f}\u{85}c"), "a[31mbc");
    }

    #[test]
    fn a_long_name_keeps_its_ending() {
        let name = clean_name(&format!("{}.jpeg", "ü".repeat(300)));
        assert_eq!(name, format!("{}.jpeg", "ü".repeat(MAX_NAME_CHARS - 5)));
        let endless = clean_name(&format!("a.{}", "b".repeat(300)));
        assert_eq!(endless.chars().count(), MAX_NAME_CHARS);
        assert_eq!(clean_name(&"x".repeat(MAX_NAME_CHARS)), "x".repeat(MAX_NAME_CHARS));
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_name(text in "(?s)(.|[./\\\\ \n]){0,300}") {
            let name = clean_name(&text);
            prop_assert!(!name.is_empty() && name.chars().count() <= MAX_NAME_CHARS);
            prop_assert!(!name.contains(['/', '\\']) && !name.chars().any(char::is_control));
            prop_assert!(name != "." && name != "..");
            prop_assert_eq!(clean_name(&name), name, "clean already");
        }
    }
}
