//! Detects the MIME type of a file from its bytes, never from its name.
//!
//! The list of types is closed: those that models and browsers accept as files. Everything else is [`UNKNOWN_TYPE`].
//! Web pages and SVG images are `text/plain` on purpose, so that a browser runs no script in them.
//!
//! The whole content is checked for text, because the first word of a text can look like the magic bytes of a format,
//! and because a binary file can begin with text.

use parlor_tools::image_type;

/// The type of a file in no known format.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// How many bytes of the start of a file are kept to detect its type.
const HEAD_BYTES: usize = 64;

/// Detects the type of bytes that arrive in pieces.
#[derive(Default)]
pub(super) struct Sniffer {
    head: Vec<u8>,
    text: TextCheck,
}

impl Sniffer {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend(bytes.iter().take(missing));
        self.text.update(bytes);
    }

    pub(super) fn finish(&self) -> &'static str {
        // Checked before text, because a PDF may consist of text alone.
        if self.head.starts_with(b"%PDF-") {
            "application/pdf"
        } else if self.text.is_text() {
            "text/plain"
        } else {
            let detectors = [image_type, audio_type, video_type, archive_type];
            detectors.iter().find_map(|detect| detect(&self.head)).unwrap_or(UNKNOWN_TYPE)
        }
    }
}

fn audio_type(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WAVE") {
        Some("audio/wav")
    } else if head.starts_with(b"fLaC") {
        Some("audio/flac")
    } else if head.starts_with(b"ID3") || is_mp3_frame(head) {
        Some("audio/mpeg")
    } else if is_ogg_audio(head) {
        Some("audio/ogg")
    } else if matches!(brand(head), Some(b"M4A " | b"M4B ")) {
        Some("audio/mp4")
    } else {
        None
    }
}

fn video_type(head: &[u8]) -> Option<&'static str> {
    let is_webm = || {
        // An EBML header that has `webm` as its document type, in the field with the id 0x4282.
        let is_webm_type = head.windows(7).any(|field| field.starts_with(b"\x42\x82\x84webm"));
        head.starts_with(b"\x1a\x45\xdf\xa3") && is_webm_type
    };
    match brand(head) {
        Some(b"M4V " | b"avc1" | b"dash" | b"mmp4" | b"mp41" | b"mp42") => Some("video/mp4"),
        Some([b'i', b's', b'o', _]) => Some("video/mp4"),
        _ if is_webm() => Some("video/webm"),
        _ => None,
    }
}

fn archive_type(head: &[u8]) -> Option<&'static str> {
    // The second signature is that of an empty archive.
    let is_zip = head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06");
    is_zip.then_some("application/zip")
}

/// The major brand of a file of the MP4 family, which also includes HEIC photos and QuickTime videos.
fn brand(head: &[u8]) -> Option<&[u8; 4]> {
    let is_family = head.get(4..8) == Some(b"ftyp");
    head.get(8..12).filter(|_| is_family).and_then(|brand| brand.try_into().ok())
}

/// Whether `head` begins with an MPEG audio layer III frame header with valid version, bitrate and sample rate.
fn is_mp3_frame(head: &[u8]) -> bool {
    let Some([0xff, second, third]) = head.get(..3) else { return false };
    let is_layer_3 = second & 0b1110_0110 == 0b1110_0010;
    let is_version = second & 0b0001_1000 != 0b0000_1000;
    is_layer_3 && is_version && third >> 4 != 0b1111 && third & 0b1100 != 0b1100
}

/// Whether `head` begins an Ogg stream whose first packet, after a page header of 28 bytes, is of an audio codec.
fn is_ogg_audio(head: &[u8]) -> bool {
    const AUDIO_CODECS: [&[u8]; 4] = [b"OpusHead", b"\x01vorbis", b"\x7fFLAC", b"Speex   "];
    let packet = head.get(28..).unwrap_or_default();
    head.starts_with(b"OggS") && AUDIO_CODECS.iter().any(|mark| packet.starts_with(mark))
}

/// Checks whether all bytes so far are UTF-8 text without NUL.
#[derive(Default)]
struct TextCheck {
    /// The first bytes of a character that is not complete.
    partial_char: Vec<u8>,
    is_binary: bool,
}

impl TextCheck {
    fn update(&mut self, mut bytes: &[u8]) {
        self.is_binary = self.is_binary || bytes.contains(&0);
        while !self.partial_char.is_empty() && !self.is_binary {
            let Some((next, rest)) = bytes.split_first() else { return };
            self.partial_char.push(*next);
            bytes = rest;
            match std::str::from_utf8(&self.partial_char) {
                Ok(_) => self.partial_char.clear(),
                Err(error) => self.is_binary = error.error_len().is_some(),
            }
        }
        if self.is_binary {
            return;
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            self.is_binary = error.error_len().is_some();
            self.partial_char.extend(bytes.get(error.valid_up_to()..).unwrap_or_default());
        }
    }

    /// Whether the bytes up to the end of the file were text.
    fn is_text(&self) -> bool {
        !self.is_binary && self.partial_char.is_empty()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first bytes of a file of each type.
    pub(in crate::media) const SAMPLES: [(&str, &[u8]); 24] = [
        ("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        ("image/jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF"),
        ("image/gif", b"GIF89a\x01\0\x01\0\0"),
        ("image/webp", b"RIFF\x10\0\0\0WEBPVP8 "),
        ("application/pdf", b"%PDF-1.7\n"),
        ("audio/wav", b"RIFF\x10\0\0\0WAVEfmt "),
        ("audio/mpeg", b"ID3\x04\0\0\0\0\0\0"),
        ("audio/mpeg", b"\xff\xfb\x90\x64\0\0"),
        ("audio/mpeg", b"\xff\xfa\x90\x64\0\0"),
        ("audio/mpeg", b"\xff\xf3\x40\xc4\0\0"),
        ("audio/ogg", b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x13OpusHead\x01"),
        ("audio/ogg", b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x1e\x01vorbis\0"),
        ("audio/flac", b"fLaC\0\0\0\x22"),
        ("audio/mp4", b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42"),
        ("video/mp4", b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1"),
        ("video/mp4", b"\0\0\0\x18ftypmp42\0\0\0\0isommp42"),
        ("video/webm", b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04\x42\xf3\x81\x08\x42\x82\x84webm\x42\x87"),
        ("application/zip", b"PK\x03\x04\x14\0\0\0"),
        ("application/zip", b"PK\x05\x06\0\0\0\0"),
        ("text/plain", b"caf\xc3\xa9"),
        ("text/plain", b"{\"json\": true}"),
        ("text/plain", b"<html><script>alert(1)</script>"),
        ("text/plain", b""),
        ("application/octet-stream", b"\x7fELF\x02\x01\x01\0"),
    ];

    fn mime(bytes: &[u8]) -> &'static str {
        let mut sniffer = Sniffer::default();
        sniffer.update(bytes);
        sniffer.finish()
    }

    #[test]
    fn each_type_is_detected_from_its_bytes() {
        for (expected, bytes) in SAMPLES {
            assert_eq!(mime(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn words_that_look_like_magic_bytes_are_text() {
        for text in ["ID3 tags explained", "OggS", "fLaC", "GIF89a is a word", "PK\x03\x04", "BM25 ranking"] {
            assert_eq!(mime(text.as_bytes()), "text/plain", "{text}");
        }
    }

    #[test]
    fn similar_formats_are_not_detected_as_known_types() {
        let similar: [(&str, &[u8]); 10] = [
            ("a HEIC photo", b"\0\0\0\x18ftypheic\0\0\0\0"),
            ("a QuickTime video", b"\0\0\0\x14ftypqt  \0\0\x02\0"),
            ("a Matroska video", b"\x1a\x45\xdf\xa3\xa3\x42\x86\x81\x01\x42\x82\x88matroska"),
            ("an Ogg video", b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x2a\x80theora"),
            ("AAC in ADTS", b"\xff\xf1\x50\x80\0\0"),
            ("an impossible bitrate", b"\xff\xfb\xf0\x64\0\0"),
            ("an impossible sample rate", b"\xff\xfb\x9c\x64\0\0"),
            ("an impossible version", b"\xff\xeb\x90\x64\0\0"),
            ("UTF-16", b"\xff\xfea\0b\0"),
            ("an AVI video", b"RIFF\x10\0\0\0AVI LIST"),
        ];
        for (what, bytes) in similar {
            assert_eq!(mime(bytes), UNKNOWN_TYPE, "{what}");
        }
    }

    #[test]
    fn a_binary_byte_at_the_end_makes_the_file_binary() {
        let mut late = vec![b'x'; 100_000];
        assert_eq!(mime(&late), "text/plain");
        late.push(0);
        assert_eq!(mime(&late), UNKNOWN_TYPE);
        assert_eq!(mime(b"cut inside a character \xc3"), UNKNOWN_TYPE);
        assert_eq!(mime(b"caf\xe9 au lait"), UNKNOWN_TYPE, "Latin-1");
    }

    proptest! {
        #[test]
        fn the_sizes_of_the_pieces_make_no_difference(
            pieces in prop::collection::vec(
                prop_oneof![
                    ".{0,5}".prop_map(String::into_bytes),
                    prop::collection::vec(any::<u8>(), 0..4),
                    "[aäß€𝄞]{1,4}".prop_map(|text| text.bytes().take(2).collect()),
                ],
                0..6,
            ),
            size in 1_usize..4,
        ) {
            let whole = pieces.concat();
            let mut sniffer = Sniffer::default();
            for piece in whole.chunks(size) {
                sniffer.update(piece);
            }
            prop_assert_eq!(sniffer.finish(), mime(&whole));
            let is_text = std::str::from_utf8(&whole).is_ok_and(|text| !text.contains('\0'));
            prop_assert_eq!(is_text && !whole.starts_with(b"%PDF-"), mime(&whole) == "text/plain");
        }
    }
}
