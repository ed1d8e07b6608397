//! The stored form of what a tool returned beside its text.

use parlor_vocab::{ToolAnnotations, ToolDetails, ToolDiff, ToolResource};
use serde::{Deserialize, Serialize};

use super::RowError;
use super::parts::{MediaRow, Text, all_media, optional_text, text};

#[derive(Serialize, Deserialize)]
pub(super) struct ToolDetailsRow<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<AnnotationsRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(borrow)]
    structured: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    media: Vec<MediaRow<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resources: Vec<ResourceRow<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    diffs: Vec<DiffRow<'a>>,
}

#[derive(Serialize, Deserialize)]
struct AnnotationsRow {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    open_world: bool,
}

#[derive(Serialize, Deserialize)]
struct ResourceRow<'a> {
    #[serde(borrow)]
    uri: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mime: Option<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
struct DiffRow<'a> {
    #[serde(borrow)]
    path: Text<'a>,
    text: Text<'a>,
}

impl ToolDetailsRow<'_> {
    pub(super) fn into_details(self) -> Result<ToolDetails, RowError> {
        let resource = |row: ResourceRow<'_>| ToolResource {
            uri: row.uri.into_owned(),
            name: row.name.map(Text::into_owned),
            mime: row.mime.map(Text::into_owned),
        };
        let diff = |row: DiffRow<'_>| ToolDiff { path: row.path.into_owned(), text: row.text.into_owned() };
        Ok(ToolDetails {
            annotations: self.annotations.map(|row| ToolAnnotations {
                read_only: row.read_only,
                destructive: row.destructive,
                idempotent: row.idempotent,
                open_world: row.open_world,
            }),
            structured: self.structured.map(Text::into_owned),
            images: all_media(self.media)?,
            resources: self.resources.into_iter().map(resource).collect(),
            diffs: self.diffs.into_iter().map(diff).collect(),
        })
    }
}

impl<'a> From<&'a ToolDetails> for ToolDetailsRow<'a> {
    fn from(details: &'a ToolDetails) -> Self {
        let ToolDetails { annotations, structured, images, resources, diffs } = details;
        Self {
            annotations: annotations.map(|claimed| AnnotationsRow {
                read_only: claimed.read_only,
                destructive: claimed.destructive,
                idempotent: claimed.idempotent,
                open_world: claimed.open_world,
            }),
            structured: optional_text(structured),
            media: images.iter().map(MediaRow::from).collect(),
            resources: resources
                .iter()
                .map(|resource| ResourceRow {
                    uri: text(&resource.uri),
                    name: optional_text(&resource.name),
                    mime: optional_text(&resource.mime),
                })
                .collect(),
            diffs: diffs
                .iter()
                .map(|diff| DiffRow { path: text(&diff.path), text: text(&diff.text) })
                .collect(),
        }
    }
}
