//! Cleans the names that users gave to files. They are shown to people and never used as paths.

use crate::visible::is_hidden;

/// The longest name, in characters. Longer names are cut.
pub const MAX_NAME_CHARS: usize = 128;

/// The name of a file that came without one.
pub const UNNAMED: &str = "upload";

/// The longest file extension, with its dot, that is kept when a name is cut.
const MAX_EXTENSION_CHARS: usize = 16;

/// The part of `name` after the last slash, without invisible characters and without those that reverse the writing
/// direction (they make `gpj.exe` look like `exe.jpg`), cut to [`MAX_NAME_CHARS`]. [`UNNAMED`] if only dots are left.
pub fn clean_name(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = base.chars().filter(|letter| !is_hidden(*letter)).collect();
    let name = cut(visible.trim());
    if name.trim_matches('.').is_empty() { UNNAMED.to_owned() } else { name }
}

/// Shortens the stem and keeps the extension, which tells the file's type.
fn cut(name: &str) -> String {
    let length = name.chars().count();
    if length <= MAX_NAME_CHARS {
        return name.to_owned();
    }
    let extension = name.rfind('.').and_then(|dot| name.get(dot..)).unwrap_or_default();
    let extension = if extension.chars().count() <= MAX_EXTENSION_CHARS { extension } else { "" };
    let stem: String = name.chars().take(MAX_NAME_CHARS - extension.chars().count()).collect();
    // Without a trailing space, so that cleaning a clean name changes nothing.
    format!("{}{extension}", stem.trim_end())
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
    fn a_file_without_a_name_gets_one() {
        for name in ["", ".", "..", "a/", "x/..", "\0\n", " \u{202e} ", "///"] {
            assert_eq!(clean_name(name), UNNAMED, "{name:?}");
        }
    }

    #[test]
    fn characters_that_hide_the_extension_are_dropped() {
        assert_eq!(clean_name("photo\u{202e}gpj.exe"), "photogpj.exe");
        assert_eq!(clean_name("a\u{1b}[31mb\u{7f}\u{85}c"), "a[31mbc");
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
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
