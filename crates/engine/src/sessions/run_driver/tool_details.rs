//! What a call returned beside its text, as the log keeps it: within limits, and images as stored files.

use parlor_vocab::{
    TOOL_DIFF_BYTES, TOOL_IMAGES, TOOL_RESOURCE_BYTES, TOOL_RESOURCES, TOOL_STRUCTURED_BYTES, ToolDetails,
    ToolDiff, ToolImage, ToolOutput, ToolResource,
};

use super::RunDriver;
use crate::media::MAX_MEDIA_BYTES;

impl RunDriver {
    /// The details of a result of `tool`; `None` if it has none.
    pub(super) async fn tool_details(&self, tool: &str, output: &ToolOutput) -> Option<Box<ToolDetails>> {
        let mut details = within_limits(output);
        details.annotations = self.tools.annotations_of_others(tool);
        for (image, number) in output.images.iter().take(TOOL_IMAGES).zip(1..) {
            if self.redact.contains_secret(&image.bytes) {
                continue;
            }
            let stored =
                self.deps.media.put(&image_name(image, number), image.bytes.clone(), MAX_MEDIA_BYTES).await;
            // The agent has the image; a client that cannot be shown it sees the text.
            details.images.extend(stored.ok());
        }
        (details != ToolDetails::default()).then(|| Box::new(details))
    }
}

fn within_limits(output: &ToolOutput) -> ToolDetails {
    let short = |text: &String| cut(text, TOOL_RESOURCE_BYTES);
    let resource = |resource: &ToolResource| ToolResource {
        uri: short(&resource.uri),
        name: resource.name.as_ref().map(short),
        mime: resource.mime.as_ref().map(short),
    };
    let diff = |diff: &ToolDiff| ToolDiff { path: short(&diff.path), text: cut(&diff.text, TOOL_DIFF_BYTES) };
    ToolDetails {
        annotations: None,
        structured: output.structured.clone().filter(|json| json.len() <= TOOL_STRUCTURED_BYTES),
        images: Vec::new(),
        resources: output.resources.iter().take(TOOL_RESOURCES).map(resource).collect(),
        // One call changes one file; a tool that says more is cut like a diff that is too long.
        diffs: output.diffs.iter().take(1).map(diff).collect(),
    }
}

/// The beginning of a text, at most this long.
fn cut(text: &str, max_bytes: usize) -> String {
    text.get(..text.floor_char_boundary(max_bytes)).unwrap_or(text).to_owned()
}

fn image_name(image: &ToolImage, number: usize) -> String {
    let kind = image.mime.strip_prefix("image/").unwrap_or_default();
    let kind: String = kind.chars().take_while(char::is_ascii_alphanumeric).take(8).collect();
    format!("image-{number}.{}", if kind.is_empty() { "bin" } else { &kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_has_limits() {
        let resource = ToolResource { uri: "u".repeat(1 << 20), name: None, mime: Some("m".repeat(1 << 20)) };
        let diff = ToolDiff { path: "p".to_owned(), text: "+x\n".repeat(1 << 20) };
        let output = ToolOutput {
            structured: Some(format!("\"{}\"", "x".repeat(TOOL_STRUCTURED_BYTES))),
            resources: vec![resource; 1000],
            diffs: vec![diff; 10],
            ..ToolOutput::default()
        };
        let details = within_limits(&output);
        assert_eq!(
            (details.structured, details.resources.len(), details.diffs.len()),
            (None, TOOL_RESOURCES, 1)
        );
        assert!(details.resources[0].uri.len() <= TOOL_RESOURCE_BYTES);
        assert!(details.diffs[0].text.len() <= TOOL_DIFF_BYTES);
    }

    #[test]
    fn an_image_is_named_after_its_type() {
        let name = |mime: &str| image_name(&ToolImage { mime: mime.to_owned(), bytes: Vec::new() }, 2);
        assert_eq!(
            (name("image/png"), name("image/svg+xml"), name("image/../x")),
            ("image-2.png".to_owned(), "image-2.svg".to_owned(), "image-2.bin".to_owned())
        );
    }
}
