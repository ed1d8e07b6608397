//! Detects the kind of a file from its first bytes, never from its name.

/// The largest image that an agent gets, in bytes.
pub const IMAGE_BYTES: usize = 5 << 20;

/// How many bytes at the start of a file decide its kind.
pub(crate) const KIND_BYTES: usize = 8 * 1024;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Text,
    /// An image in a format that models accept, with its media type.
    Image(&'static str),
    /// Any other file, with a description for the agent.
    Binary(&'static str),
}

/// The magic numbers of common binary files.
const MAGIC_NUMBERS: [(&[u8], &str); 13] = [
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

/// The kind of a file that begins with `start`: its first [`KIND_BYTES`], or all of it if it is shorter.
pub(crate) fn file_kind(start: &[u8]) -> FileKind {
    if let Some(mime) = image_type(start) {
        return FileKind::Image(mime);
    }
    let known = MAGIC_NUMBERS.iter().find(|(magic, _)| start.starts_with(magic));
    // Text may begin like an archive ("BZh" is a word), but it is valid UTF-8 without a NUL byte.
    let looks_like_text = !start.contains(&0)
        && std::str::from_utf8(start).map_or_else(|error| error.error_len().is_none(), |_| true);
    match known {
        _ if looks_like_text && !start.starts_with(b"%PDF-") => FileKind::Text,
        Some((_, name)) => FileKind::Binary(name),
        None if start.contains(&0) => FileKind::Binary("a binary file"),
        // Text in another encoding. Invalid bytes are shown as replacement characters.
        None => FileKind::Text,
    }
}

/// The media type of a file that begins with `start`, if it is an image in a format that models accept.
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
    fn images_are_detected_from_their_bytes() {
        assert_eq!(file_kind(b"\x89PNG\r\n\x1a\n\0\0"), FileKind::Image("image/png"));
        assert_eq!(file_kind(b"\xff\xd8\xff\xe0"), FileKind::Image("image/jpeg"));
        assert_eq!(file_kind(b"GIF89a\x01\0"), FileKind::Image("image/gif"));
        assert_eq!(file_kind(b"RIFF\x10\0\0\0WEBPVP8 "), FileKind::Image("image/webp"));
        assert_eq!(file_kind(b"RIFF\x10\0\0\0WAVEfmt "), FileKind::Binary("a binary file"));
    }

    #[test]
    fn binary_files_are_told_apart_from_text() {
        assert_eq!(file_kind(b"\x7fELF\x02\x01\x01\0"), FileKind::Binary("an ELF program or library"));
        assert_eq!(file_kind(b"\x1f\x8b\x08\0"), FileKind::Binary("a gzip archive"));
        assert_eq!(file_kind(b"\xff\xfea\0"), FileKind::Binary("UTF-16 text"));
        assert_eq!(file_kind(b"%PDF-1.7\n"), FileKind::Binary("a PDF document"));
        assert_eq!(file_kind(b"a\0b"), FileKind::Binary("a binary file"));
        assert_eq!(file_kind(b"BZh is a word"), FileKind::Text);
        assert_eq!(file_kind(b"caf\xe9 au lait"), FileKind::Text, "Latin-1");
        assert_eq!(file_kind("x".repeat(KIND_BYTES - 1).into_bytes().as_slice()), FileKind::Text);
        assert_eq!(file_kind(b"cut inside a character \xc3"), FileKind::Text);
        assert_eq!(file_kind(b""), FileKind::Text);
    }
}
