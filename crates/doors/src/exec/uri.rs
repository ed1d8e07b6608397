//! `file:` URIs, in which today's protocol writes paths.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::wire::MAX_URI_BYTES;

/// Why a text is not the URI of a file of this machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UriError {
    /// It has no scheme, as a native path.
    #[error("invalid URI: relative URL without a base")]
    NoScheme,
    /// It has another scheme.
    #[error("unsupported path URI scheme `{0}`")]
    OtherScheme(String),
    /// It has a NUL byte, which no path has.
    #[error("invalid URI: a path contains no NUL byte")]
    NulByte,
    /// A part has an escaped `/`, which no name of a file has: behind it `..` would not be resolved.
    #[error("invalid URI: the name of a file contains no `/`; write it without an escape")]
    EscapedSlash,
    /// It is longer than any path. Taking it apart costs many times its length.
    #[error("invalid URI: {bytes} bytes, and the limit is {MAX_URI_BYTES}")]
    TooLong {
        /// The length of the URI.
        bytes: usize,
    },
    /// It names another host, or a drive.
    #[error("`{0}` is not a path of this machine")]
    Foreign(String),
}

/// The path of a URI: escapes are decoded, `.` and `..` resolved, and a query or fragment is dropped.
pub(super) fn to_path(uri: &str) -> Result<PathBuf, UriError> {
    if uri.len() > MAX_URI_BYTES {
        return Err(UriError::TooLong { bytes: uri.len() });
    }
    let (scheme, rest) = uri.split_once(':').filter(|(name, _)| is_scheme(name)).ok_or(UriError::NoScheme)?;
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(UriError::OtherScheme(scheme.to_ascii_lowercase()));
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default().replace('\\', "/");
    let path = match rest.strip_prefix("//") {
        Some(rest) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            if !(host.is_empty() || host.eq_ignore_ascii_case("localhost")) {
                return Err(UriError::Foreign(uri.to_owned()));
            }
            path
        }
        None => &rest,
    };
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in path.split('/') {
        match unescape(part) {
            part if part.is_empty() || part == b"." => {}
            part if part == b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.iter().flatten().any(|byte| *byte == b'/') {
        return Err(UriError::EscapedSlash);
    }
    if parts.iter().flatten().any(|byte| *byte == 0) {
        return Err(UriError::NulByte);
    }
    if parts.first().is_some_and(|part| is_drive(part)) {
        return Err(UriError::Foreign(uri.to_owned()));
    }
    let mut bytes = b"/".to_vec();
    bytes.extend(parts.join(&b'/'));
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

fn is_scheme(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// A letter and a colon, as in `C:`.
fn is_drive(part: &[u8]) -> bool {
    matches!(part, [letter, b':' | b'|'] if letter.is_ascii_alphabetic())
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// The URI of an absolute path.
pub(super) fn from_path(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// The `file:` URI of an absolute path.
pub fn uri_from_path(path: &Path) -> String {
    from_path(path)
}

/// The path of a `file:` URI; `None` for what is none on this system.
pub fn path_from_uri(uri: &str) -> Option<PathBuf> {
    to_path(uri).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uris_are_normalised() {
        for (uri, path) in [
            ("file:///tmp/../usr/%62in", "/usr/bin"),
            ("FILE://localhost/a%20b", "/a b"),
            ("file:rel", "/rel"),
            ("file:///a/./b//c/?q#f", "/a/b/c"),
            ("file:///%2e%2e/x%zz", "/x%zz"),
            ("file://", "/"),
        ] {
            assert_eq!(to_path(uri), Ok(PathBuf::from(path)), "{uri}");
        }
    }

    #[test]
    fn a_uri_of_the_largest_size_is_accepted_and_a_longer_one_is_refused() {
        let uri = |bytes: usize| format!("file:///{}", "a".repeat(bytes - 8));
        assert!(to_path(&uri(MAX_URI_BYTES)).is_ok());
        let bytes = MAX_URI_BYTES + 1;
        assert_eq!(to_path(&uri(bytes)), Err(UriError::TooLong { bytes }));
    }

    #[test]
    fn what_is_no_file_of_this_machine_is_refused() {
        assert_eq!(to_path("/tmp"), Err(UriError::NoScheme));
        assert_eq!(to_path(""), Err(UriError::NoScheme));
        assert_eq!(to_path("http://x/"), Err(UriError::OtherScheme("http".to_owned())));
        assert_eq!(to_path("file:///a%00b"), Err(UriError::NulByte));
        for hidden in
            ["file:///p/..%2fout", "file:///p/..%2Fout", "file:///p/a%2f..%2f..%2fout", "file:///%2f"]
        {
            assert_eq!(to_path(hidden), Err(UriError::EscapedSlash), "{hidden}");
        }
        for foreign in ["file://host/x", "file:///C:/x", "file:///C|/x"] {
            assert_eq!(to_path(foreign), Err(UriError::Foreign(foreign.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn every_path_survives(parts in prop::collection::vec(prop::collection::vec(1_u8..=255, 1..9), 0..5)) {
            let parts: Vec<Vec<u8>> = parts
                .into_iter()
                .map(|part| part.into_iter().filter(|byte| *byte != b'/').collect::<Vec<u8>>())
                .filter(|part| !(part.is_empty() || part == b"." || part == b".." || is_drive(part)))
                .collect();
            let path = PathBuf::from(OsString::from_vec([b"/".to_vec(), parts.join(&b'/')].concat()));
            prop_assert_eq!(to_path(&from_path(&path)), Ok(path));
        }
    }
}
