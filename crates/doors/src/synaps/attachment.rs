//! Attachments of a prompt: which paths and which contents are accepted.
//!
//! The door refuses a prompt with an invalid path. A file that models cannot read (too large, or of another type) is
//! named in the message, because the user in the chat does not see that a prompt was refused. It is attached all the
//! same if it is not an image, so that the agent's tools can open it.

use std::path::{Component, Path, PathBuf};

use parlor_vocab::{FileError, NamedFile};

use super::code;
use super::wire::RpcAttachment;
use super::{MAX_ATTACHED_BYTES, MAX_ATTACHMENTS, MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, MAX_TEXT_BYTES};

/// A complete PDF has its end marker within this many last bytes.
const PDF_TAIL_BYTES: usize = 1024;

/// The paths of `attachments`, or the error text if the prompt is refused.
pub(super) fn paths(attachments: &[RpcAttachment]) -> Result<Vec<PathBuf>, String> {
    if let Some(error) = attachments.iter().find_map(path_error) {
        return Err(error);
    }
    if attachments.len() > MAX_ATTACHMENTS {
        return Err(code::too_many_attachments());
    }
    Ok(attachments.iter().map(|attachment| PathBuf::from(&attachment.path)).collect())
}

/// Whether the path of an attachment makes the door refuse the prompt.
pub(super) fn has_invalid_path(attachment: &RpcAttachment) -> bool {
    path_error(attachment).is_some()
}

fn path_error(RpcAttachment { path, .. }: &RpcAttachment) -> Option<String> {
    if !Path::new(path).is_absolute() {
        return Some(code::relative_path(path));
    }
    let is_parent = |part| part == Component::ParentDir;
    Path::new(path).components().any(is_parent).then(|| code::parent_component(path))
}

/// The files of a prompt after their check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedAttachments {
    /// The files for the agent.
    pub(super) files: Vec<NamedFile>,
    /// The paths of the files that the message names, because models cannot read them.
    pub(super) named: Vec<String>,
}

/// Checks the files that were read. Returns the error text if the prompt is refused.
pub(super) fn check(
    paths: &[PathBuf],
    read: Vec<Result<NamedFile, FileError>>,
) -> Result<CheckedAttachments, &'static str> {
    let mut checked = CheckedAttachments::default();
    let mut remaining_bytes = MAX_ATTACHED_BYTES;
    for (path, file) in paths.iter().zip(read) {
        let file = match file {
            Ok(file) => Some(file).filter(|file| file.bytes.len() as u64 <= remaining_bytes),
            Err(error) => match code::file_error(error) {
                Some(refused) => return Err(refused),
                None => None,
            },
        };
        let is_readable = file.as_ref().is_some_and(|file| is_model_readable(&file.bytes));
        if !is_readable {
            checked.named.push(path.to_string_lossy().into_owned());
        }
        // A provider would refuse an image that is broken or too large.
        let is_image = |file: &NamedFile| content_kind(&file.bytes) == Some(ContentKind::Image);
        if let Some(file) = file.filter(|file| is_readable || !is_image(file)) {
            remaining_bytes -= file.bytes.len() as u64;
            checked.files.push(file);
        }
    }
    Ok(checked)
}

/// The message with the names of the files before it that models cannot read.
pub(super) fn prepend_names(named: &[String], message: String) -> String {
    if named.is_empty() {
        return message;
    }
    let quoted = named.iter().map(|path| format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("[user attached files: {}]\n{message}", quoted.collect::<Vec<_>>().join(", "))
}

/// The types of content that models read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentKind {
    Image,
    Pdf,
    Text,
}

/// The type of a file's content; `None` if models do not read it.
pub(super) fn content_kind(bytes: &[u8]) -> Option<ContentKind> {
    let image = matches!(
        imagesize::image_type(bytes),
        Ok(imagesize::ImageType::Png
            | imagesize::ImageType::Jpeg
            | imagesize::ImageType::Gif
            | imagesize::ImageType::Webp)
    );
    if image {
        return Some(ContentKind::Image);
    }
    if bytes.starts_with(b"%PDF-") {
        return Some(ContentKind::Pdf);
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r');
    text.chars().all(is_plain).then_some(ContentKind::Text)
}

/// Whether models can read a file with this content.
pub(super) fn is_model_readable(bytes: &[u8]) -> bool {
    match content_kind(bytes) {
        Some(ContentKind::Image) => {
            let fits = |size: imagesize::ImageSize| size.width.max(size.height) <= MAX_IMAGE_SIDE;
            bytes.len() <= MAX_IMAGE_BYTES && imagesize::blob_size(bytes).is_ok_and(fits)
        }
        Some(ContentKind::Pdf) => {
            let tail = bytes.get(bytes.len().saturating_sub(PDF_TAIL_BYTES)..).unwrap_or_default();
            tail.windows(5).any(|window| window == b"%%EOF")
        }
        Some(ContentKind::Text) => bytes.len() <= MAX_TEXT_BYTES,
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
    fn an_invalid_path_refuses_the_prompt() {
        assert!(paths(&[attached("relative.txt")]).unwrap_err().contains("absolute"));
        assert!(paths(&[attached("~/x")]).unwrap_err().contains("absolute"));
        assert!(paths(&[attached("/tmp/../etc/passwd")]).unwrap_err().contains(".."));
        let nine = vec![attached("/x"); 9];
        assert_eq!(paths(&nine).unwrap_err(), "At most 8 attachments are allowed");
        assert_eq!(paths(&nine[..8]).unwrap().len(), 8);
    }

    #[test]
    fn an_unreadable_file_refuses_the_prompt_and_an_unsupported_file_is_named() {
        let path = vec![PathBuf::from("/a \"b\"")];
        for error in [FileError::Unreadable, FileError::NotRegular, FileError::Empty] {
            assert!(check(&path, vec![Err(error)]).is_err());
        }
        for (named, attached) in [
            (Err(FileError::TooLarge { bytes: u64::MAX }), 0),
            (file(b"\xff\xfe\x00".to_vec()), 1),
            (file("bell \x07"), 1),
            (file("%PDF-1.4 no end"), 1),
            (file(PNG[..12].to_vec()), 0),
            (file("x".repeat(MAX_TEXT_BYTES + 1)), 1),
        ] {
            let checked = check(&path, vec![named.clone()]).unwrap();
            assert_eq!((checked.files.len(), checked.named.len()), (attached, 1), "{named:?}");
        }
        for accepted in
            [file(PNG), file("plain\n\ttext"), file("%PDF-1.4 …\n%%EOF\n"), file("x".repeat(MAX_TEXT_BYTES))]
        {
            let checked = check(&path, vec![accepted]).unwrap();
            assert_eq!((checked.files.len(), checked.named.len()), (1, 0));
        }
    }

    #[test]
    fn a_file_beyond_the_total_limit_is_only_named() {
        let pdf = |bytes: usize| {
            let mut pdf = b"%PDF-".to_vec();
            pdf.resize(bytes - 5, b' ');
            pdf.extend_from_slice(b"%%EOF");
            file(pdf)
        };
        let paths = ["/a", "/b", "/c"].map(PathBuf::from);
        let checked = check(&paths, vec![pdf(9 << 20), pdf(9 << 20), pdf(1 << 20)]).unwrap();
        assert_eq!((checked.files.len(), checked.named), (2, vec!["/b".to_owned()]));
    }

    #[test]
    fn names_of_files_are_quoted_before_the_message() {
        let named = ["/a".to_owned(), "/b \"c\\d\"".to_owned()];
        assert_eq!(
            prepend_names(&named, "hi".to_owned()),
            "[user attached files: \"/a\", \"/b \\\"c\\\\d\\\"\"]\nhi"
        );
        assert_eq!(prepend_names(&[], "hi".to_owned()), "hi");
    }
}
