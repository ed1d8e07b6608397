//! Attachments reach a model: texts, PDFs, and files that no block shows as a path.

use serde_json::json;

use crate::child::Home;
use crate::scripted_server::{Reply, ScriptedServer};

const PDF: &[u8] = b"%PDF-1.4\n%%EOF\n";

#[tokio::test]
async fn attachments_reach_the_model() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "Read."}, "finish_reason": "stop"}]});
    let model = ScriptedServer::start(vec![Reply::Stream(format!("data: {chunk}\n\ndata: [DONE]\n\n"))]);
    let home = Home::new();
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n\
         [models.mock]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}/v1\"\n",
        model.url
    );
    std::fs::create_dir_all(home.state()).unwrap();
    std::fs::write(home.state().join("parlor.toml"), settings).unwrap();
    let long_text = "x".repeat(300 << 10);
    let files: [(&str, &[u8]); 4] = [
        ("plan.md", b"the plan is simple"),
        ("a.pdf", PDF),
        ("raw.bin", b"\0\x01"),
        ("long.log", long_text.as_bytes()),
    ];
    for (name, bytes) in files {
        std::fs::write(home.folder().join(name), bytes).unwrap();
    }
    let path = |name: &str| home.folder().join(name).display().to_string();
    let attachments: Vec<_> = files.iter().map(|(name, _)| json!({"path": path(name)})).collect();
    let mut child = home.child(&[]).await;
    let prompt = json!({"type": "prompt", "id": "1", "message": "read these", "attachments": attachments});
    let response = child.call(prompt).await;
    assert_eq!(response["ok"], true, "{response}");
    let body = model.bodies()[0].clone();
    let content = body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(content[0]["file"]["filename"], "a.pdf", "{content}");
    let text = content[1]["text"].as_str().unwrap();
    let named =
        format!("[user attached files: \"{}\", \"{}\"]\nread these", path("raw.bin"), path("long.log"));
    assert!(text.starts_with(&named), "{text}");
    assert!(text.contains("the plan is simple"), "{text}");
    let media = home.state().join("media").display().to_string();
    let as_path = format!("raw.bin (application/octet-stream, 2 bytes; tools can open it as {media}/");
    assert!(text.contains(&as_path), "{text}");
    assert!(text.contains("long.log (text/plain, 307200 bytes;") && text.contains("bytes are left out"));
    let history = child.history().await;
    assert_eq!(history[0].as_array().unwrap().len(), 3, "the text and two documents: {history:?}");
}
