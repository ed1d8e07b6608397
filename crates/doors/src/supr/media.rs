//! Files that come with a frame: what is right about them, and what the agent gets to read of them.

use parlor_vocab::Media;
use serde_json::{Map, Value};

use super::code::{self, FrameError};
use super::incoming::{Attachments, FileMembers, Payload};
use crate::json::Member;

/// The largest file: 25 MiB.
pub const MAX_MEDIA_BYTES: u64 = 25 << 20;

/// The files of one frame, of which nothing was looked at but the shape.
#[derive(Debug, PartialEq)]
pub(super) struct Upload {
    /// What is said about all of them.
    pub(super) caption: Option<String>,
    /// The files, the last first.
    pub(super) items: Vec<Item>,
}

/// One file.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) content: Content,
    pub(super) label: Label,
}

/// Where its content is.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// In the frame.
    Base64(String),
    /// On the network.
    Url(String),
}

/// What is said about a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) filename: Option<String>,
    content_type: Option<String>,
    caption: Option<String>,
}

/// The name of a file that has none.
const UNNAMED: &str = "upload";

/// The files in a payload.
pub(crate) fn upload(payload: Payload) -> Result<Upload, FrameError> {
    let attachments = match payload.attachments {
        Attachments::Missing => {
            let item = item(payload.file).ok_or_else(code::no_content)?;
            return Ok(Upload { caption: None, items: vec![item] });
        }
        Attachments::Other => return Err(code::attachments_are_no_array()),
        Attachments::TooMany => return Err(code::too_many_attachments()),
        Attachments::Files(attachments) => attachments,
    };
    if attachments.is_empty() {
        return Err(code::no_attachments());
    }
    let mut items = Vec::with_capacity(attachments.len());
    for (index, attachment) in attachments.into_iter().enumerate() {
        let file = attachment.ok_or_else(|| code::attachment_is_no_object(index))?;
        items.push(item(file).ok_or_else(|| code::attachment_has_no_content(index))?);
    }
    let caption = said(payload.file.caption).filter(|_| items.len() > 1);
    items.reverse();
    Ok(Upload { caption, items })
}

fn item(file: FileMembers) -> Option<Item> {
    let FileMembers { url, data, filename, content_type, caption } = file;
    let content = said(url).map(Content::Url).or(said(data).map(Content::Base64))?;
    let label = Label { filename: said(filename), content_type: said(content_type), caption: said(caption) };
    Some(Item { content, label })
}

/// The text of a member that says something.
fn said(member: Member) -> Option<String> {
    member.into_text().filter(|text| !text.is_empty())
}

/// The bytes that base64 stands for: with padding, in the standard alphabet or in that for addresses; line
/// ends do not count.
pub(super) fn decoded(text: &str) -> Result<Vec<u8>, FrameError> {
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
    /// What the file is called.
    pub(super) fn name(&self) -> &str {
        self.filename.as_deref().unwrap_or(UNNAMED)
    }

    /// What the agent gets to read of the file.
    fn line(&self) -> String {
        let kind = kind_of(self.content_type.as_deref().unwrap_or_default());
        let caption = self.caption.as_ref().map(|caption| format!("{caption}\n")).unwrap_or_default();
        format!("{caption}[{kind}: {}]", self.name())
    }
}

/// What the agent gets to read of all files.
pub(super) fn text(caption: Option<&str>, labels: &[Label]) -> String {
    let caption = caption.map(|caption| format!("{caption}\n")).unwrap_or_default();
    let lines: Vec<String> = labels.iter().map(Label::line).collect();
    format!("{caption}{}", lines.join("\n"))
}

/// What a client does with a file of this type.
fn kind_of(content_type: &str) -> &'static str {
    let kinds = ["image", "audio", "video"];
    let is_of = |kind: &&str| content_type.strip_prefix(kind).is_some_and(|rest| rest.starts_with('/'));
    kinds.into_iter().find(is_of).unwrap_or("file")
}

/// The payload that brings a file to a client.
pub(super) fn sent(media: &Media, content: &[u8]) -> Map<String, Value> {
    let members = [
        ("type", kind_of(&media.mime).to_owned()),
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
    fn base64_has_padding_and_one_of_two_alphabets() {
        assert_eq!(decoded("aGk=").unwrap(), b"hi");
        assert_eq!(decoded("a\r\nGk\n=").unwrap(), b"hi");
        assert_eq!(decoded("-_-_").unwrap(), [0xfb, 0xff, 0xbf]);
        for wrong in ["***", "aGk", "aGk==", "data:text/plain;base64,aGk=", "+_+_", "aGl="] {
            assert_eq!(decoded(wrong), Err(code::not_base64()), "{wrong}");
        }
    }

    #[test]
    fn a_file_of_the_largest_size_is_right_and_one_byte_more_is_not() {
        let most = usize::try_from(MAX_MEDIA_BYTES).unwrap();
        for (size, is_right) in [(most - 1, true), (most, true), (most + 1, false), (most + 2, false)] {
            let text = base64_simd::STANDARD.encode_to_string(vec![7; size]);
            match decoded(&text) {
                Ok(bytes) => assert!(is_right && bytes.len() == size, "{size}"),
                Err(flaw) => assert!(!is_right && flaw == code::too_large(), "{size}"),
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
