//! The files of a client's frame: which ones are accepted, and what text the agent reads about them.

use parlor_vocab::Media;
use serde_json::{Map, Value};

use super::client_frame::{Attachments, FileMembers, Payload};
use super::code::{self, FrameError};
use crate::json::Member;

/// The largest file: 25 MiB.
pub const MAX_MEDIA_BYTES: u64 = 25 << 20;

/// The files of one frame. Their contents are not decoded yet.
#[derive(Debug, PartialEq)]
pub(super) struct Upload {
    /// The caption of all files together.
    pub(super) caption: Option<String>,
    /// The files in reverse order, so that the machine can pop the next one.
    pub(super) items: Vec<Item>,
}

/// One file.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) content: Content,
    pub(super) label: Label,
}

/// Where the content of a file is.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// In the frame itself.
    Base64(String),
    /// At an address that the server downloads.
    Url(String),
}

/// What the client says about a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) filename: Option<String>,
    content_type: Option<String>,
    caption: Option<String>,
}

/// The name of a file that the client gave no name.
const UNNAMED: &str = "upload";

/// The files of a payload.
pub(crate) fn upload(payload: Payload) -> Result<Upload, FrameError> {
    let attachments = match payload.attachments {
        Attachments::Missing => {
            let item = item(payload.file).ok_or_else(code::no_content)?;
            return Ok(Upload { caption: None, items: vec![item] });
        }
        Attachments::Other => return Err(code::attachments_not_an_array()),
        Attachments::TooMany => return Err(code::too_many_attachments()),
        Attachments::Files(attachments) => attachments,
    };
    if attachments.is_empty() {
        return Err(code::no_attachments());
    }
    let mut items = Vec::with_capacity(attachments.len());
    for (index, attachment) in attachments.into_iter().enumerate() {
        let file = attachment.ok_or_else(|| code::attachment_not_an_object(index))?;
        items.push(item(file).ok_or_else(|| code::attachment_has_no_content(index))?);
    }
    let caption = non_empty_text(payload.file.caption).filter(|_| items.len() > 1);
    items.reverse();
    Ok(Upload { caption, items })
}

fn item(file: FileMembers) -> Option<Item> {
    let FileMembers { url, data, filename, content_type, caption } = file;
    let content = non_empty_text(url).map(Content::Url).or(non_empty_text(data).map(Content::Base64))?;
    let label = Label {
        filename: non_empty_text(filename),
        content_type: non_empty_text(content_type),
        caption: non_empty_text(caption),
    };
    Some(Item { content, label })
}

/// The text of a string member; `None` if it is empty.
fn non_empty_text(member: Member) -> Option<String> {
    member.into_text().filter(|text| !text.is_empty())
}

/// Decodes base64 with padding, in the standard or the URL-safe alphabet. Line breaks are ignored.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, FrameError> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.retain(|byte| !matches!(byte, b'\r' | b'\n'));
    let padding = bytes.iter().rev().take(2).take_while(|byte| **byte == b'=').count() as u64;
    if (bytes.len() as u64 / 4 * 3).saturating_sub(padding) > MAX_MEDIA_BYTES {
        return Err(code::too_large());
    }
    let alphabets = [base64_simd::STANDARD, base64_simd::URL_SAFE];
    alphabets.iter().find_map(|alphabet| alphabet.decode_to_vec(&bytes).ok()).ok_or_else(code::not_base64)
}

impl Label {
    /// The name of the file.
    pub(super) fn name(&self) -> &str {
        self.filename.as_deref().unwrap_or(UNNAMED)
    }

    /// The text about the file that the agent reads.
    fn line(&self) -> String {
        let kind = media_kind(self.content_type.as_deref().unwrap_or_default());
        let caption = self.caption.as_ref().map(|caption| format!("{caption}\n")).unwrap_or_default();
        format!("{caption}[{kind}: {}]", self.name())
    }
}

/// The text about all files that the agent reads.
pub(super) fn text(caption: Option<&str>, labels: &[Label]) -> String {
    let caption = caption.map(|caption| format!("{caption}\n")).unwrap_or_default();
    let lines: Vec<String> = labels.iter().map(Label::line).collect();
    format!("{caption}{}", lines.join("\n"))
}

/// The kind of file that clients tell apart: image, audio, video or file.
fn media_kind(content_type: &str) -> &'static str {
    let kinds = ["image", "audio", "video"];
    let is_of = |kind: &&str| content_type.strip_prefix(kind).is_some_and(|rest| rest.starts_with('/'));
    kinds.into_iter().find(is_of).unwrap_or("file")
}

/// The payload of the `media.create` frame that sends a file to a client.
pub(super) fn create_payload(media: &Media, content: &[u8]) -> Map<String, Value> {
    let members = [
        ("type", media_kind(&media.mime).to_owned()),
        ("data", base64_simd::STANDARD.encode_to_string(content)),
        ("filename", media.name.clone()),
        ("content_type", media.mime.clone()),
        ("caption", String::new()),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), Value::String(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_needs_padding_and_one_of_two_alphabets() {
        assert_eq!(decode_base64("aGk=").unwrap(), b"hi");
        assert_eq!(decode_base64("a\r\nGk\n=").unwrap(), b"hi");
        assert_eq!(decode_base64("-_-_").unwrap(), [0xfb, 0xff, 0xbf]);
        for wrong in ["***", "aGk", "aGk==", "data:text/plain;base64,aGk=", "+_+_", "aGl="] {
            assert_eq!(decode_base64(wrong), Err(code::not_base64()), "{wrong}");
        }
    }

    #[test]
    fn a_file_at_the_limit_is_accepted_and_one_byte_more_is_not() {
        let most = usize::try_from(MAX_MEDIA_BYTES).unwrap();
        for (size, is_accepted) in [(most - 1, true), (most, true), (most + 1, false), (most + 2, false)] {
            let text = base64_simd::STANDARD.encode_to_string(vec![7; size]);
            match decode_base64(&text) {
                Ok(bytes) => assert!(is_accepted && bytes.len() == size, "{size}"),
                Err(error) => assert!(!is_accepted && error == code::too_large(), "{size}"),
            }
        }
    }

    #[test]
    fn the_agent_reads_captions_and_names() {
        let label = |name: Option<&str>, mime: &str, caption: Option<&str>| Label {
            filename: name.map(str::to_owned),
            content_type: Some(mime.to_owned()),
            caption: caption.map(str::to_owned),
        };
        let labels = [label(Some("a.png"), "image/png", None), label(None, "imagery", Some("after"))];
        assert_eq!(text(Some("both"), &labels), "both\n[image: a.png]\nafter\n[file: upload]");
    }
}
