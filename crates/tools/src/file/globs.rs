//! Checks and rewrites globs before the `globset` crate compiles them.
//!
//! `globset` recurses into nested braces: some thousand levels overflow the stack, which ends the whole process. The
//! memory of a compiled glob is hundreds of times its length. So both have limits here.

use std::borrow::Cow;

use parlor_vocab::Failure;

use crate::failure::invalid;

/// The longest `glob` of a call, in bytes.
pub const GLOB_BYTES: usize = 4096;
/// How deep braces may be nested in a `glob`.
pub const GLOB_BRACE_DEPTH: usize = 16;

/// Fails if the glob of a call is too long or nested too deep.
pub(super) fn check_glob(glob: &str) -> Result<(), Failure> {
    if glob.len() > GLOB_BYTES {
        let bytes = glob.len();
        return Err(invalid(format!(
            "a `glob` of {bytes} bytes is longer than the limit of {GLOB_BYTES}; search a narrower `path` instead"
        )));
    }
    let mut depth = 0_usize;
    for part in parts(glob) {
        match part {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > GLOB_BRACE_DEPTH {
            return Err(invalid(format!(
                "the braces of `glob` are nested deeper than the limit of {GLOB_BRACE_DEPTH}; list the names in one \
                 pair of braces"
            )));
        }
    }
    Ok(())
}

/// The glob with a backslash before each brace that `globset` would take for alternatives.
pub(super) fn escape_braces(glob: &str) -> Cow<'_, str> {
    if !glob.contains(['{', '}']) {
        return Cow::Borrowed(glob);
    }
    let mut escaped = String::with_capacity(glob.len() + 8);
    for part in parts(glob) {
        if matches!(part, "{" | "}") {
            escaped.push('\\');
        }
        escaped.push_str(part);
    }
    Cow::Owned(escaped)
}

/// Splits a glob as `globset` does: into characters, escaped characters with their backslash, and classes such as
/// `[a-z]`. A brace is special only if it is a part of its own.
fn parts(glob: &str) -> impl Iterator<Item = &str> {
    let mut rest = glob;
    // An unclosed class means that this `[` and all that follow are plain characters.
    let mut classes_end = false;
    std::iter::from_fn(move || {
        let mut chars = rest.chars();
        let length = match chars.next()? {
            '\\' => 1 + chars.next().map_or(0, char::len_utf8),
            '[' if !classes_end => class_length(rest).unwrap_or_else(|| {
                classes_end = true;
                1
            }),
            other => other.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        rest = after;
        Some(part)
    })
}

/// The length of the class with which `text` begins, in bytes; `None` if it is not closed.
fn class_length(text: &str) -> Option<usize> {
    let body = text.strip_prefix('[')?;
    let body = body.strip_prefix(['!', '^']).unwrap_or(body);
    // A bracket at the beginning belongs to the class. A backslash has no meaning in a class.
    let inner = body.strip_prefix(']').unwrap_or(body);
    Some(text.len() - inner.len() + inner.find(']')? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_glob_is_limited() {
        assert_eq!(check_glob(&"a".repeat(GLOB_BYTES)), Ok(()));
        let failure = check_glob(&"a".repeat(GLOB_BYTES + 1)).unwrap_err();
        assert!(failure.message.contains("4097 bytes"), "{failure:?}");
    }

    #[test]
    fn the_depth_of_braces_is_limited_but_not_their_number() {
        let nested = |depth| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        assert_eq!(check_glob(&nested(GLOB_BRACE_DEPTH)), Ok(()));
        assert!(check_glob(&nested(GLOB_BRACE_DEPTH + 1)).is_err());
        assert_eq!(check_glob(&"{a,b}".repeat(GLOB_BRACE_DEPTH + 1)), Ok(()));
        // Braces in classes and after a backslash close nothing and open nothing.
        for no_close in [r"{\}", "{[}]", "{[]}]", "{[!]}]"] {
            assert!(check_glob(&no_close.repeat(GLOB_BRACE_DEPTH + 1)).is_err(), "{no_close}");
        }
        for no_open in [r"\{", "[{]", "[^{]"] {
            assert_eq!(check_glob(&no_open.repeat(GLOB_BRACE_DEPTH + 1)), Ok(()), "{no_open}");
        }
    }

    #[test]
    fn only_special_braces_are_escaped() {
        for (glob, escaped) in [
            ("a*", "a*"),
            ("{a,b}", r"\{a,b\}"),
            (r"\{a\}", r"\{a\}"),
            ("[{}]{", r"[{}]\{"),
            ("[]{]}", r"[]{]\}"),
            ("[{", r"[\{"),
            (r"a\", r"a\"),
            ("ä{ö}", r"ä\{ö\}"),
        ] {
            assert_eq!(escape_braces(glob), escaped, "{glob}");
        }
    }
}
