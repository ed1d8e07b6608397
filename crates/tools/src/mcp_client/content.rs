//! What a call returned, as agents read it.

use parlor_vocab::{ToolImage, ToolOutput, truncate_middle};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use super::MCP_OUTPUT_BYTES;
use crate::file::IMAGE_BYTES;

/// How many images of one result are passed on.
const MAX_IMAGES: usize = 8;

/// The text and the images of a result. What agents cannot read becomes a line about it.
pub(super) fn output(result: &CallToolResult) -> ToolOutput {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
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
                ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
                ResourceContents::BlobResourceContents { uri, blob, .. } => {
                    format!("[{uri}: {} base64 bytes are left out]", blob.len())
                }
                _ => "[a resource of an unknown kind is left out]".to_owned(),
            }),
            ContentBlock::ResourceLink(link) => texts.push(format!("[resource {}: {}]", link.name, link.uri)),
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
    ToolOutput { text: truncate_middle(&text, MCP_OUTPUT_BYTES).into_owned(), images }
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
