//! The files of messages, and what a model gets of each.
//!
//! Images and PDFs become parts of their message, texts a part of its text. A model gets the path of every file, which
//! its tools may open: of files of other types, and of those that do not fit, it gets nothing else.

use std::path::Path;

use parlor_vocab::{Media, truncate_middle};

use super::conversation::BYTES_PER_TOKEN;
use super::{MAX_PICTURE_BYTES, MAX_PICTURES};
use crate::provider::{Document, Picture};
use crate::{AgentContext, TurnError};

/// The share of the context window that the texts of all attached files may fill together, in percent. If there is
/// more, the newest files are included, and the middle of the last one that fits is left out.
pub const ATTACHED_TEXT_PERCENT: u64 = 40;

/// A text for which less than this remains is not begun.
const MIN_TEXT_BYTES: usize = 500;

const PDF: &str = "application/pdf";
const TEXT: &str = "text/plain";

/// An attached file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachedFile {
    pub(super) media: Media,
    pub(super) form: FileForm,
}

/// What a model may get of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileForm {
    /// Everything.
    Full,
    /// Images and text. PDFs are only named.
    WithoutDocuments,
    /// Text. Images and PDFs are only named.
    Text,
    /// The name and the path.
    Name,
}

/// Whether a provider gets this file as a part of its own, and might therefore refuse it.
pub(super) fn is_shown_as_file(media: &Media) -> bool {
    is_image(media) || is_document(media)
}

/// Whether a provider gets this file as a document.
pub(super) fn is_document(media: &Media) -> bool {
    media.mime == PDF
}

fn is_image(media: &Media) -> bool {
    media.mime.starts_with("image/")
}

/// What the files of a message add to it.
#[derive(Debug, Default)]
pub(super) struct LoadedFiles {
    pub(super) pictures: Vec<Picture>,
    pub(super) documents: Vec<Document>,
    /// One part of the message's text for each file that is not shown otherwise.
    pub(super) texts: Vec<String>,
}

/// How much of attached files still fits into a request.
#[derive(Debug)]
pub(super) struct FileBudget {
    /// Images and documents.
    parts: usize,
    /// The bytes of images and documents.
    part_bytes: u64,
    text_bytes: usize,
    /// Whether the API of the provider has a form for documents.
    takes_documents: bool,
    /// Whether the model has tools, which can open files.
    has_tools: bool,
}

impl FileBudget {
    pub(super) fn new(context_window: u64, takes_documents: bool, has_tools: bool) -> Self {
        let text_tokens = context_window.saturating_mul(ATTACHED_TEXT_PERCENT) / 100;
        let text_bytes = usize::try_from(text_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        Self { parts: MAX_PICTURES, part_bytes: MAX_PICTURE_BYTES, text_bytes, takes_documents, has_tools }
    }

    /// Loads the files of one message.
    pub(super) async fn load(
        &mut self,
        files: &[AttachedFile],
        context: &mut dyn AgentContext,
    ) -> Result<LoadedFiles, TurnError> {
        let mut loaded = LoadedFiles::default();
        for AttachedFile { media, form } in files {
            let path = if self.has_tools { context.media_path(media).await? } else { None };
            let title = title(media, path.as_deref());
            if self.may_show(media, *form)
                && let Some(bytes) = context.read_media(media, self.part_bytes).await?
            {
                self.parts -= 1;
                self.part_bytes = self.part_bytes.saturating_sub(bytes.len() as u64);
                if is_document(media) {
                    loaded.documents.push(Document::new(media.name.as_str(), PDF, &bytes));
                } else {
                    loaded.pictures.push(Picture::new(media.mime.as_str(), &bytes));
                }
                // The path of an image is of little use to a model that sees it.
                if is_document(media) && path.is_some() {
                    loaded.texts.push(format!("(The attached document is {title}.)"));
                }
            } else if media.mime == TEXT
                && *form != FileForm::Name
                && self.text_bytes >= MIN_TEXT_BYTES
                && let Some(bytes) = context.read_media(media, media.size).await?
            {
                let text = context.redact(&String::from_utf8_lossy(&bytes));
                let shown = truncate_middle(&text, self.text_bytes);
                let note = if shown.len() == text.len() { "" } else { "; its middle is left out here" };
                self.text_bytes = self.text_bytes.saturating_sub(text.len());
                loaded.texts.push(format!("The attached file {title}{note}:\n{}", fenced(&shown)));
            } else {
                loaded.texts.push(format!("(The content of an attached file is not shown here: {title}.)"));
            }
        }
        Ok(loaded)
    }

    /// Whether a file can be an image or document of the request.
    fn may_show(&self, media: &Media, form: FileForm) -> bool {
        let is_allowed = match form {
            FileForm::Full => is_image(media) || (is_document(media) && self.takes_documents),
            FileForm::WithoutDocuments => is_image(media),
            FileForm::Text | FileForm::Name => false,
        };
        is_allowed && self.parts > 0 && media.size <= self.part_bytes
    }
}

/// The name, the type, the size and the path of a file.
fn title(media: &Media, path: Option<&Path>) -> String {
    let Media { name, mime, size, .. } = media;
    let path = path.map_or_else(String::new, |path| format!("; tools can open it as {}", path.display()));
    let hint = if is_document(media) && !path.is_empty() { ", and pdftotext prints its text" } else { "" };
    format!("{name} ({mime}, {size} bytes{path}{hint})")
}

/// `text` between two lines of backticks that do not occur in it.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.saturating_add(1).max(3));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_does_not_occur_in_its_text() {
        assert_eq!(fenced("plain"), "```\nplain\n```");
        assert_eq!(fenced("a\n```\nb ````\n"), "`````\na\n```\nb ````\n`````");
    }
}
