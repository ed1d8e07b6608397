//! Files that come along with a prompt: which paths are taken, and which contents.
//!
//! A path that breaks a rule refuses the prompt. A file that merely cannot be shown to a model (too
//! large, or of a kind that models do not read) is left out and named in the message instead, because
//! the user in the chat sees nothing of a prompt that was refused.

use std::path::{Component, Path, PathBuf};

use parlor_vocab::{FileError, NamedFile};

use super::code;
use super::protocol::RpcAttachment;
use super::{MAX_ATTACHED_BYTES, MAX_ATTACHMENTS, MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, MAX_TEXT_BYTES};

/// How far from its end a PDF must say that it ends.
const PDF_TAIL_BYTES: usize = 1024;

/// The paths of `attachments`, or why the prompt is refused.
pub(super) fn paths(attachments: &[RpcAttachment]) -> Result<Vec<PathBuf>, String> {
    if let Some(flaw) = attachments.iter().find_map(flaw) {
        return Err(flaw);
    }
    if attachments.len() > MAX_ATTACHMENTS {
        return Err(code::too_many_attachments());
    }
    Ok(attachments.iter().map(|attachment| PathBuf::from(&attachment.path)).collect())
}

/// Whether its path alone refuses the prompt.
pub(super) fn is_refused(attachment: &RpcAttachment) -> bool {
    flaw(attachment).is_some()
}

fn flaw(RpcAttachment { path, .. }: &RpcAttachment) -> Option<String> {
    if !Path::new(path).is_absolute() {
        return Some(code::relative(path));
    }
    let is_parent = |part| part == Component::ParentDir;
    Path::new(path).components().any(is_parent).then(|| code::upwards(path))
}

/// What becomes of the files of a prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedAttachment {
    /// Those that come along.
    pub(super) files: Vec<NamedFile>,
    /// The paths of those that are only named.
    pub(super) named: Vec<String>,
}

/// Judges the files that were read, or says why the prompt is refused.
pub(super) fn judge(
    paths: &[PathBuf],
    read: Vec<Result<NamedFile, FileError>>,
) -> Result<CheckedAttachment, &'static str> {
    let mut judged = CheckedAttachment::default();
    let mut room = MAX_ATTACHED_BYTES;
    for (path, file) in paths.iter().zip(read) {
        let shown = match file {
            Ok(file) => Some(file).filter(|file| is_readable(&file.bytes) && file.bytes.len() as u64 <= room),
            Err(flaw) => match code::of_file(flaw) {
                Some(refused) => return Err(refused),
                None => None,
            },
        };
        match shown {
            Some(file) => {
                room -= file.bytes.len() as u64;
                judged.files.push(file);
            }
            None => judged.named.push(path.to_string_lossy().into_owned()),
        }
    }
    Ok(judged)
}

/// The message with the files in front that are only named.
pub(super) fn with_names(named: &[String], message: String) -> String {
    if named.is_empty() {
        return message;
    }
    let quoted = named.iter().map(|path| format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("[user attached files: {}]\n{message}", quoted.collect::<Vec<_>>().join(", "))
}

/// What a content is to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    Pdf,
    Text,
}

/// Tells what `bytes` are, if models read such a thing.
pub(super) fn kind(bytes: &[u8]) -> Option<Kind> {
    let image = matches!(
        imagesize::image_type(bytes),
        Ok(imagesize::ImageType::Png
            | imagesize::ImageType::Jpeg
            | imagesize::ImageType::Gif
            | imagesize::ImageType::Webp)
    );
    if image {
        return Some(Kind::Image);
    }
    if bytes.starts_with(b"%PDF-") {
        return Some(Kind::Pdf);
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\n' | '\r');
    text.chars().all(is_plain).then_some(Kind::Text)
}

fn is_readable(bytes: &[u8]) -> bool {
    match kind(bytes) {
        Some(Kind::Image) => {
            let fits = |size: imagesize::ImageSize| size.width.max(size.height) <= MAX_IMAGE_SIDE;
            bytes.len() <= MAX_IMAGE_BYTES && imagesize::blob_size(bytes).is_ok_and(fits)
        }
        Some(Kind::Pdf) => {
            let tail = bytes.get(bytes.len().saturating_sub(PDF_TAIL_BYTES)..).unwrap_or_default();
            tail.windows(5).any(|window| window == b"%%EOF")
        }
        Some(Kind::Text) => bytes.len() <= MAX_TEXT_BYTES,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x10\x08\x06\0\0\0\x1f\xf3\xffa";

    fn attached(path: &str) -> RpcAttachment {
        RpcAttachment { path: path.to_owned(), name: None, mime: None }
    }

    fn file(bytes: impl Into<Vec<u8>>) -> Result<NamedFile, FileError> {
        Ok(NamedFile { name: "f".to_owned(), bytes: bytes.into() })
    }

    #[test]
    fn a_path_that_breaks_a_rule_refuses_the_prompt() {
        assert!(paths(&[attached("relative.txt")]).unwrap_err().contains("absolute"));
        assert!(paths(&[attached("~/x")]).unwrap_err().contains("absolute"));
        assert!(paths(&[attached("/tmp/../etc/passwd")]).unwrap_err().contains(".."));
        let nine = vec![attached("/x"); 9];
        assert_eq!(paths(&nine).unwrap_err(), "At most 8 attachments are allowed");
        assert_eq!(paths(&nine[..8]).unwrap().len(), 8);
    }

    #[test]
    fn what_cannot_be_read_refuses_and_what_cannot_be_shown_is_named() {
        let path = vec![PathBuf::from("/a \"b\"")];
        for flaw in [FileError::Unreadable, FileError::NotRegular, FileError::Empty] {
            assert!(judge(&path, vec![Err(flaw)]).is_err());
        }
        for named in [
            Err(FileError::TooLarge { bytes: u64::MAX }),
            file(b"\xff\xfe\x00".to_vec()),
            file("bell \x07"),
            file("%PDF-1.4 no end"),
            file(PNG[..12].to_vec()),
            file("x".repeat(MAX_TEXT_BYTES + 1)),
        ] {
            let judged = judge(&path, vec![named.clone()]).unwrap();
            assert_eq!((judged.files.len(), judged.named.len()), (0, 1), "{named:?}");
        }
        for shown in
            [file(PNG), file("plain\n\ttext"), file("%PDF-1.4 …\n%%EOF\n"), file("x".repeat(MAX_TEXT_BYTES))]
        {
            assert_eq!(judge(&path, vec![shown]).unwrap().files.len(), 1);
        }
    }

    #[test]
    fn beyond_the_room_for_all_a_file_is_named() {
        let pdf = |bytes: usize| {
            let mut pdf = b"%PDF-".to_vec();
            pdf.resize(bytes - 5, b' ');
            pdf.extend_from_slice(b"%%EOF");
            file(pdf)
        };
        let paths = ["/a", "/b", "/c"].map(PathBuf::from);
        let judged = judge(&paths, vec![pdf(9 << 20), pdf(9 << 20), pdf(1 << 20)]).unwrap();
        assert_eq!((judged.files.len(), judged.named), (2, vec!["/b".to_owned()]));
    }

    #[test]
    fn names_stand_before_the_message_in_quotes() {
        let named = ["/a".to_owned(), "/b \"c\\d\"".to_owned()];
        assert_eq!(
            with_names(&named, "hi".to_owned()),
            "[user attached files: \"/a\", \"/b \\\"c\\\\d\\\"\"]\nhi"
        );
        assert_eq!(with_names(&[], "hi".to_owned()), "hi");
    }
}
