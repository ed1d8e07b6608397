//! What a tool returned beside its text, as JSON for the doors that have no words of their own for it.

use parlor_vocab::{Media, ToolDetails};
use serde_json::{Value, json};

/// The details as an object. Absent members are empty.
pub fn tool_details_json(details: &ToolDetails) -> Value {
    let ToolDetails { annotations, structured, images, resources, diffs } = details;
    let mut object = json!({});
    if let Some(claimed) = annotations {
        object["annotations"] = json!({
            "readOnlyHint": claimed.read_only,
            "destructiveHint": claimed.destructive,
            "idempotentHint": claimed.idempotent,
            "openWorldHint": claimed.open_world,
        });
    }
    if let Some(structured) = structured {
        // A removed secret may leave something else than JSON.
        object["structured_content"] =
            serde_json::from_str(structured).unwrap_or_else(|_| structured.as_str().into());
    }
    if !images.is_empty() {
        object["images"] = images.iter().map(image).collect();
    }
    if !resources.is_empty() {
        let resource = |resource: &parlor_vocab::ToolResource| {
            let mut shown = json!({"uri": resource.uri});
            for (name, value) in [("name", &resource.name), ("mime_type", &resource.mime)] {
                if let Some(value) = value {
                    shown[name] = value.as_str().into();
                }
            }
            shown
        };
        object["resources"] = resources.iter().map(resource).collect();
    }
    if !diffs.is_empty() {
        object["diffs"] = diffs.iter().map(|diff| json!({"path": diff.path, "text": diff.text})).collect();
    }
    object
}

/// An image, which `/api/media/ID` has.
fn image(media: &Media) -> Value {
    json!({"id": media.id.as_str(), "filename": media.name, "content_type": media.mime, "size": media.size})
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{MediaId, ToolAnnotations, ToolDiff, ToolResource};

    use super::*;

    #[test]
    fn details_have_only_the_members_that_the_result_has() {
        assert_eq!(tool_details_json(&ToolDetails::default()), json!({}));
        let id = MediaId::parse("ab").expect("a short id");
        let details = ToolDetails {
            annotations: Some(ToolAnnotations::READ_ONLY),
            structured: Some("{\"a\":1}".to_owned()),
            images: vec![Media { id, name: "n.png".to_owned(), mime: "image/png".to_owned(), size: 3 }],
            resources: vec![ToolResource { uri: "a:b".to_owned(), name: Some("b".to_owned()), mime: None }],
            diffs: vec![ToolDiff { path: "f".to_owned(), text: "@@\n".to_owned() }],
        };
        assert_eq!(
            tool_details_json(&details),
            json!({
                "annotations": {"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
                "structured_content": {"a": 1},
                "images": [{"id": "ab", "filename": "n.png", "content_type": "image/png", "size": 3}],
                "resources": [{"uri": "a:b", "name": "b"}],
                "diffs": [{"path": "f", "text": "@@\n"}],
            })
        );
        let broken = ToolDetails { structured: Some("{\"a\":".to_owned()), ..ToolDetails::default() };
        assert_eq!(tool_details_json(&broken), json!({"structured_content": "{\"a\":"}));
    }
}
