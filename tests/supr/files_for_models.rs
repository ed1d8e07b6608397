//! Files of `media.send` reach a model: texts, PDFs, and others as a path.

use serde_json::json;

use crate::client::Client;
use crate::scripted_server::{Reply, ScriptedServer};
use crate::server::Server;

const PDF: &[u8] = b"%PDF-1.4\n%%EOF\n";

#[tokio::test]
async fn text_and_pdf_files_reach_the_model() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "Read."}, "finish_reason": "stop"}]});
    let model = ScriptedServer::start(vec![Reply::Stream(format!("data: {chunk}\n\ndata: [DONE]\n\n"))]);
    let home = tempfile::tempdir().unwrap();
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n\
         [models.mock]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}/v1\"\n",
        model.url
    );
    std::fs::write(home.path().join("parlor.toml"), settings).unwrap();
    let server = Server::on(home.path());
    let mut client = Client::connect(server.http, "session_id=a").await;
    let base64 = |bytes: &[u8]| base64_simd::STANDARD.encode_to_string(bytes);
    let attachments = json!([
        {"data": base64(b"the plan is simple"), "filename": "plan.md", "content_type": "text/markdown"},
        {"data": base64(PDF), "filename": "a.pdf", "content_type": "application/pdf"},
        {"data": base64(b"\0\x01"), "filename": "raw.bin", "content_type": "application/octet-stream"},
    ]);
    let payload = json!({"attachments": attachments, "caption": "read these"});
    client.send(&json!({"type": "media.send", "payload": payload})).await;
    client.until("run.completed").await;
    let body = model.bodies()[0].clone();
    let content = body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let url = format!("data:application/pdf;base64,{}", base64(PDF));
    assert_eq!(content[0]["file"], json!({"filename": "a.pdf", "file_data": url}), "{content}");
    let text = content[1]["text"].as_str().unwrap();
    assert!(text.contains("read these") && text.contains("the plan is simple"), "{text}");
    let media = server.home.join("media").display().to_string();
    assert!(text.contains("raw.bin (application/octet-stream, 2 bytes; tools can open it as "), "{text}");
    assert!(text.contains(&media), "{text}");
}
