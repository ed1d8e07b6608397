//! What a file is, told from its first bytes and never from its name.

/// The largest image that is handed to an agent.
pub const IMAGE_BYTES: usize = 5 << 20;

/// How much of a file is looked at.
pub(crate) const LOOK_BYTES: usize = 8 * 1024;

/// What the start of a file looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// An image that agents can see, by its media type.
    Image(&'static str),
    /// Anything else, in words.
    Binary(&'static str),
}

/// Starts that tell binary files apart.
const STARTS: [(&[u8], &str); 13] = [
    (b"\x7fELF", "an ELF program or library"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"PK\x03\x04", "a zip archive (also used by office documents and jars)"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
];

/// Tells what begins with `start`, which should be [`LOOK_BYTES`] long if the file is.
pub(crate) fn kind(start: &[u8]) -> Kind {
    if let Some(mime) = image_type(start) {
        return Kind::Image(mime);
    }
    let known = STARTS.iter().find(|(magic, _)| start.starts_with(magic));
    // Text may begin like an archive ("BZh" is a word), but it holds no NUL and is valid.
    let looks_like_text = !start.contains(&0)
        && std::str::from_utf8(start).map_or_else(|error| error.error_len().is_none(), |_| true);
    match known {
        _ if looks_like_text && !start.starts_with(b"%PDF-") => Kind::Text,
        Some((_, name)) => Kind::Binary(name),
        None if start.contains(&0) => Kind::Binary("a binary file"),
        // Text of another encoding: shown with marks where it cannot be read.
        None => Kind::Text,
    }
}

/// The media type of what begins with `start`, if it is an image that agents can see.
pub fn image_type(start: &[u8]) -> Option<&'static str> {
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if start.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_bytes() {
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n\0\0"), Kind::Image("image/png"));
        assert_eq!(kind(b"\xff\xd8\xff\xe0"), Kind::Image("image/jpeg"));
        assert_eq!(kind(b"GIF89a\x01\0"), Kind::Image("image/gif"));
        assert_eq!(kind(b"RIFF\x10\0\0\0WEBPVP8 "), Kind::Image("image/webp"));
        assert_eq!(kind(b"RIFF\x10\0\0\0WAVEfmt "), Kind::Binary("a binary file"));
    }

    #[test]
    fn binary_files_have_a_name_and_text_is_text() {
        assert_eq!(kind(b"\x7fELF\x02\x01\x01\0"), Kind::Binary("an ELF program or library"));
        assert_eq!(kind(b"\x1f\x8b\x08\0"), Kind::Binary("a gzip archive"));
        assert_eq!(kind(b"\xff\xfea\0"), Kind::Binary("UTF-16 text"));
        assert_eq!(kind(b"%PDF-1.7\n"), Kind::Binary("a PDF document"));
        assert_eq!(kind(b"a\0b"), Kind::Binary("a binary file"));
        assert_eq!(kind(b"BZh is a word"), Kind::Text);
        assert_eq!(kind(b"caf\xe9 au lait"), Kind::Text, "Latin-1");
        assert_eq!(kind("x".repeat(LOOK_BYTES - 1).into_bytes().as_slice()), Kind::Text);
        assert_eq!(kind(b"cut inside a letter \xc3"), Kind::Text);
        assert_eq!(kind(b""), Kind::Text);
    }
}
