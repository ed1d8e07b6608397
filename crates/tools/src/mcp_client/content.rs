//! What a call returned, as agents read it.

use parlor_vocab::{
    TOOL_IMAGES, TOOL_RESOURCE_BYTES, TOOL_RESOURCES, TOOL_STRUCTURED_BYTES, ToolImage, ToolOutput,
    ToolResource, truncate_middle,
};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use super::MCP_OUTPUT_BYTES;
use super::naming::harmless;
use crate::file::IMAGE_BYTES;

/// How many images of one result are passed on.
const MAX_IMAGES: usize = TOOL_IMAGES;

/// The text and the images of a result. What agents cannot read becomes a line about it.
pub(super) fn output(result: &CallToolResult) -> ToolOutput {
    let (mut texts, mut images, mut resources) = (Vec::new(), Vec::new(), Vec::new());
    for block in &result.content {
        match block {
            ContentBlock::Text(text) => texts.push(text.text.clone()),
            ContentBlock::Image(image) => match decoded_image(&image.mime_type, &image.data) {
                Some(image) if images.len() < MAX_IMAGES => images.push(image),
                Some(_) | None => {
                    texts.push(format!("[an image of {} base64 bytes is left out]", image.data.len()));
                }
            },
            ContentBlock::Audio(audio) => {
                let (kind, bytes) = (&audio.mime_type, audio.data.len());
                texts.push(format!("[audio of type {kind:?}, {bytes} base64 bytes, is left out]"));
            }
            ContentBlock::Resource(resource) => texts.push(match &resource.resource {
                ResourceContents::TextResourceContents { uri, text, mime_type, .. } => {
                    resources.push(referred(uri, None, mime_type.as_deref()));
                    format!("[{uri}]\n{text}")
                }
                ResourceContents::BlobResourceContents { uri, blob, mime_type, .. } => {
                    resources.push(referred(uri, None, mime_type.as_deref()));
                    format!("[{uri}: {} base64 bytes are left out]", blob.len())
                }
                _ => "[a resource of an unknown kind is left out]".to_owned(),
            }),
            ContentBlock::ResourceLink(link) => {
                resources.push(referred(&link.uri, Some(&link.name), link.mime_type.as_deref()));
                texts.push(format!("[resource {}: {}]", link.name, link.uri));
            }
            _ => texts.push("[content of an unknown kind is left out]".to_owned()),
        }
    }
    if texts.iter().all(|text| text.trim().is_empty())
        && let Some(structured) = &result.structured_content
    {
        texts = vec![structured.to_string()];
    }
    let text = texts.join("\n");
    let text = if text.is_empty() && images.is_empty() { "[no output]".to_owned() } else { text };
    resources.truncate(TOOL_RESOURCES);
    let structured = result.structured_content.as_ref().map(ToString::to_string);
    ToolOutput {
        text: truncate_middle(&text, MCP_OUTPUT_BYTES).into_owned(),
        images,
        structured: structured.filter(|json| json.len() <= TOOL_STRUCTURED_BYTES),
        resources,
        diffs: Vec::new(),
    }
}

fn referred(uri: &str, name: Option<&str>, mime: Option<&str>) -> ToolResource {
    let shown = |text: &str| harmless(text, TOOL_RESOURCE_BYTES);
    ToolResource { uri: shown(uri), name: name.map(shown), mime: mime.map(shown) }
}

fn decoded_image(mime: &str, data: &str) -> Option<ToolImage> {
    if data.len() > IMAGE_BYTES * 4 / 3 + 4 || !mime.starts_with("image/") {
        return None;
    }
    let bytes = base64_simd::STANDARD.decode_to_vec(data).ok()?;
    Some(ToolImage { mime: mime.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: serde_json::Value) -> ToolOutput {
        output(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn every_kind_of_content_becomes_something_readable() {
        let output = read(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "two"}},
            {"type": "resource", "resource": {"uri": "a:c", "blob": "aGk="}},
        ]}));
        assert_eq!(output.images, [ToolImage { mime: "image/png".to_owned(), bytes: b"hi".to_vec() }]);
        let lines: Vec<&str> = output.text.lines().collect();
        assert_eq!(lines[0], "one");
        assert!(lines[1].contains("audio/wav") && lines[2].contains("file:///x") && lines[4] == "two");
    }

    #[test]
    fn structured_content_and_resources_are_kept_for_programs_within_limits() {
        let kept = read(json!({
            "content": [
                {"type": "text", "text": "t"},
                {"type": "resource_link", "uri": "file:///x\u{1b}", "name": "x", "mimeType": "text/plain"},
                {"type": "resource", "resource": {"uri": "a:b", "text": "two"}},
            ],
            "structuredContent": {"a": [1, 2]},
        }));
        assert_eq!(kept.structured.as_deref(), Some(r#"{"a":[1,2]}"#));
        let uris: Vec<&str> = kept.resources.iter().map(|resource| resource.uri.as_str()).collect();
        assert_eq!(uris, ["file:///x", "a:b"]);
        assert_eq!(kept.resources[0].name.as_deref(), Some("x"));
        let link = json!({"type": "resource_link", "uri": "u".repeat(1 << 20), "name": "x"});
        let many =
            read(json!({"content": vec![link; 40], "structuredContent": "x".repeat(TOOL_STRUCTURED_BYTES)}));
        assert_eq!((many.structured, many.resources.len()), (None, TOOL_RESOURCES));
        assert!(many.resources[0].uri.len() < TOOL_RESOURCE_BYTES + 100);
    }

    #[test]
    fn structured_content_is_shown_if_there_is_no_text_and_long_text_is_cut() {
        assert_eq!(read(json!({"structuredContent": {"a": 1}})).text, r#"{"a":1}"#);
        assert_eq!(
            read(json!({"content": [{"type": "text", "text": "t"}], "structuredContent": 1})).text,
            "t"
        );
        assert_eq!(read(json!({"content": []})).text, "[no output]");
        let long = read(json!({"content": [{"type": "text", "text": "x".repeat(1 << 20)}]})).text;
        assert!(long.len() < MCP_OUTPUT_BYTES + 100);
    }
}
