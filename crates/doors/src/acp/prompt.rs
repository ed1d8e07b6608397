//! The content blocks of a prompt: what of them becomes the text of the message, and what is attached as a file.

use agent_client_protocol_schema::v1::{
    ContentBlock, EmbeddedResource, EmbeddedResourceResource, Error, ImageContent,
};
use parlor_vocab::NamedFile;

use super::{EMBEDDED_TEXT_BYTES, MAX_BLOCK_BYTES, MAX_BLOCKS, code};

/// The longest name of an attached file, in bytes.
const NAME_BYTES: usize = 200;

/// A prompt as parlor takes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// The text of the message.
    pub(super) text: String,
    /// The files to attach.
    pub(super) files: Vec<NamedFile>,
}

/// Converts the blocks of a prompt. Fails if a block has a kind that this door does not promise, or is damaged.
pub(super) fn message(blocks: Vec<ContentBlock>) -> Result<Message, Error> {
    if blocks.len() > MAX_BLOCKS {
        return Err(code::too_many_blocks());
    }
    let (mut message, mut embedded) = (Message::default(), String::new());
    for block in blocks {
        match block {
            ContentBlock::Text(text) => append(&mut message.text, &text.text, '\n'),
            // The agent decides whether it can read the address; the editor's own ones only say what is meant.
            ContentBlock::ResourceLink(link) => {
                append(&mut message.text, &link_text(&link.name, &link.uri), ' ')
            }
            ContentBlock::Image(image) => message.files.push(image_file(&image)?),
            ContentBlock::Resource(EmbeddedResource { resource, .. }) => match resource {
                EmbeddedResourceResource::TextResourceContents(contents) => {
                    let name = file_name(&contents.uri);
                    append(&mut message.text, &link_text(&name, &contents.uri), ' ');
                    if contents.text.len() <= EMBEDDED_TEXT_BYTES {
                        embedded.push_str(&format!(
                            "\n\n<resource uri=\"{}\">\n{}\n</resource>",
                            contents.uri, contents.text
                        ));
                    } else {
                        message.files.push(NamedFile { name, bytes: contents.text.into_bytes() });
                    }
                }
                EmbeddedResourceResource::BlobResourceContents(contents) => {
                    let name = file_name(&contents.uri);
                    append(&mut message.text, &link_text(&name, &contents.uri), ' ');
                    message.files.push(NamedFile { name, bytes: decode(&contents.blob, "blob")? });
                }
                _ => return Err(code::invalid_params("this kind of embedded resource is not supported")),
            },
            ContentBlock::Audio(_) => {
                return Err(code::invalid_params("content of type `audio` is not supported; send text"));
            }
            _ => return Err(code::invalid_params("this type of content is not supported")),
        }
    }
    message.text.push_str(&embedded);
    if message.text.trim().is_empty() && message.files.is_empty() {
        return Err(code::invalid_params("the prompt is empty"));
    }
    Ok(message)
}

/// Appends a piece of text; `gap` separates it from the text before unless there is white space.
fn append(text: &mut String, piece: &str, gap: char) {
    let touches = text.ends_with(|last: char| !last.is_whitespace())
        && piece.starts_with(|first: char| !first.is_whitespace());
    if touches {
        text.push(gap);
    }
    text.push_str(piece);
}

fn link_text(name: &str, uri: &str) -> String {
    format!("[@{name}]({uri})")
}

/// The last part of an address, without a query.
fn file_name(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name = name.get(..name.floor_char_boundary(NAME_BYTES)).unwrap_or_default();
    if name.is_empty() { "resource".to_owned() } else { name.to_owned() }
}

fn image_file(image: &ImageContent) -> Result<NamedFile, Error> {
    let bytes = decode(&image.data, "image")?;
    let name = image.uri.as_deref().map(file_name).filter(|name| name != "resource").unwrap_or_else(|| {
        let subtype = image.mime_type.rsplit('/').next().unwrap_or_default();
        let is_plain = !subtype.is_empty() && subtype.bytes().all(|letter| letter.is_ascii_alphanumeric());
        format!("image.{}", if is_plain && subtype.len() <= 8 { subtype } else { "bin" })
    });
    Ok(NamedFile { name, bytes })
}

fn decode(data: &str, what: &str) -> Result<Vec<u8>, Error> {
    if data.len() / 4 * 3 > MAX_BLOCK_BYTES {
        return Err(code::invalid_params(&format!("the {what} is larger than {MAX_BLOCK_BYTES} bytes")));
    }
    let bytes = base64_simd::STANDARD
        .decode_to_vec(data.as_bytes())
        .map_err(|_| code::invalid_params(&format!("the data of the {what} is not base64")))?;
    if bytes.is_empty() {
        return Err(code::invalid_params(&format!("the {what} is empty")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(blocks: Value) -> Result<Message, Error> {
        message(serde_json::from_value(blocks).unwrap())
    }

    #[test]
    fn texts_and_links_become_one_text() {
        let message = of(json!([
            {"type": "text", "text": "look at "},
            {"type": "resource_link", "name": "x.rs", "uri": "file:///x.rs"},
            {"type": "resource_link", "name": "sel", "uri": "zed:///y"},
            {"type": "text", "text": "please"},
            {"type": "text", "text": "now"},
            {"type": "resource", "resource": {"uri": "file:///a/b.txt?x", "text": "content"}},
        ]))
        .unwrap();
        assert_eq!(
            message.text,
            "look at [@x.rs](file:///x.rs) [@sel](zed:///y)\nplease\nnow [@b.txt](file:///a/b.txt?x)\n\n\
             <resource uri=\"file:///a/b.txt?x\">\ncontent\n</resource>"
        );
        assert!(message.files.is_empty());
    }

    #[test]
    fn images_blobs_and_long_texts_become_files() {
        let long = "x".repeat(EMBEDDED_TEXT_BYTES + 1);
        let message = of(json!([
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "image", "mimeType": "../x", "data": "aGk=", "uri": "file:///p/q.jpg"},
            {"type": "image", "mimeType": "image/svg+xml", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource", "resource": {"uri": "/", "text": long}},
        ]))
        .unwrap();
        let files: Vec<(&str, usize)> =
            message.files.iter().map(|file| (file.name.as_str(), file.bytes.len())).collect();
        assert_eq!(
            files,
            [
                ("image.png", 2),
                ("q.jpg", 2),
                ("image.bin", 2),
                ("b", 2),
                ("resource", EMBEDDED_TEXT_BYTES + 1)
            ]
        );
    }

    #[test]
    fn what_was_not_promised_or_is_damaged_is_refused() {
        let too_many = vec![json!({"type": "text", "text": "x"}); MAX_BLOCKS + 1];
        for blocks in [
            json!([]),
            json!([{"type": "text", "text": " \n"}]),
            json!([{"type": "audio", "mimeType": "audio/wav", "data": "aGk="}]),
            json!([{"type": "image", "mimeType": "image/png", "data": "?"}]),
            json!([{"type": "image", "mimeType": "image/png", "data": ""}]),
            Value::Array(too_many),
        ] {
            assert_eq!(i32::from(of(blocks.clone()).unwrap_err().code), -32602, "{blocks}");
        }
        assert!(of(json!([{"type": "image", "mimeType": "image/png", "data": "aGk="}])).is_ok());
    }
}
