//! Names of tools that every provider of models accepts, and texts of servers that are safe to show.

use parlor_vocab::truncate_middle;

use super::MAX_SERVER_NAME;
use crate::toolbox::TOOL_NAME_CHARS;

/// Whether a server may have this name.
pub fn is_server_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= MAX_SERVER_NAME && name.chars().all(is_allowed)
}

/// The name of a server's tool for models: `server__tool`. Other characters than letters, digits, `_` and `-` are replaced.
/// A name that was changed gets a number from its original, so that two of them stay different and stable.
pub(super) fn tool_name(server: &str, tool: &str) -> String {
    let full = format!("{server}__{tool}");
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if full.chars().all(allowed) && full.len() <= TOOL_NAME_CHARS {
        return full;
    }
    let suffix = format!("_{:08x}", checksum(&full));
    let kept = full.chars().map(|c| if allowed(c) { c } else { '_' }).take(TOOL_NAME_CHARS - suffix.len());
    kept.collect::<String>() + &suffix
}

/// The checksum FNV-1a, which is the same on every machine and in every version.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A text of a server without control characters, which could change what a terminal shows, without invisible characters,
/// which could hide words from people or change their order, and not longer than allowed.
pub(super) fn harmless(text: &str, max_bytes: usize) -> String {
    let shown = text.chars().filter(|c| (!c.is_control() && !is_format(*c)) || *c == '\n' || *c == '\t');
    truncate_middle(&shown.collect::<String>(), max_bytes).into_owned()
}

/// Whether the character is of the Unicode category "format" or separates lines invisibly.
fn is_format(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider_and_stay_different() {
        assert_eq!(tool_name("github", "create_issue"), "github__create_issue");
        let long = "x".repeat(100);
        let names = ["a.b", "a b", "a\u{1f600}b", "a_b", &long].map(|tool| tool_name("s", tool));
        for name in &names {
            assert!(name.len() <= TOOL_NAME_CHARS, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'),
                "{name}"
            );
        }
        let mut unique = names.to_vec();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert_eq!(names[0], "s__a_b_8b2f0b0e".replace("8b2f0b0e", &format!("{:08x}", checksum("s__a.b"))));
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(harmless("a\u{1b}[31mb\r\n\tc", 100), "a[31mb\n\tc");
        assert!(harmless(&"x".repeat(1000), 100).len() < 200);
        assert_eq!(harmless("a\u{202e}b\u{200b}c\u{e0041}d\u{feff}\u{ad}é", 100), "abcdé");
    }
}
