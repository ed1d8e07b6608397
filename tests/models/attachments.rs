//! Text files, PDFs and other files of messages, in the form of each provider's API.

use parlor_model::provider::ProviderKind;
use parlor_vocab::{FailureCode, NamedFile};
use serde_json::{Value, json};

use crate::api_format::{ApiFormat, assert_valid};
use crate::model_session::{ModelSession, answer, kind_of};
use crate::scripted_server::{Reply, ScriptedServer};

const PDF: &[u8] = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";

fn file(name: &str, bytes: &[u8]) -> Vec<NamedFile> {
    vec![NamedFile { name: name.to_owned(), bytes: bytes.to_vec() }]
}

fn pdf_as_base64() -> String {
    base64_simd::STANDARD.encode_to_string(PDF)
}

/// The parts of the last user message of a request.
fn last_parts(body: &Value) -> Vec<Value> {
    let messages = ["messages", "input", "contents"].iter().find_map(|member| body[member].as_array());
    let last = messages.and_then(|messages| messages.last()).expect("a message");
    let content = if last["content"].is_null() { &last["parts"] } else { &last["content"] };
    content.as_array().cloned().unwrap_or_else(|| vec![json!({"text": content})])
}

/// The text of the last user message of a request.
fn last_text(body: &Value) -> String {
    let parts = last_parts(body);
    let text = parts.iter().find_map(|part| part["text"].as_str());
    text.unwrap_or_else(|| panic!("no text: {parts:?}")).to_owned()
}

#[tokio::test]
async fn a_text_file_is_a_part_of_the_message_and_stays_in_the_conversation() {
    for kind in ProviderKind::ALL {
        let fine = || Reply::Stream(answer(kind, "Fine."));
        let server = ScriptedServer::start(vec![fine(), fine()]);
        let session = ModelSession::start(kind, &server.url).await;
        let notes = file("notes.md", "# Notes\nbuy ```milk```\n".as_bytes());
        session.send("read this", notes).await.unwrap();
        session.send("and now", Vec::new()).await.unwrap();
        session.close().await;
        for (body, text) in server.bodies().iter().zip(["read this", "and now"]) {
            assert!(last_text(body).contains(text), "{kind:?}: {body}");
            let quoted = "notes.md (text/plain, 23 bytes;";
            assert!(body.to_string().contains(quoted), "{kind:?}: {body}");
            let content = r"````\n# Notes\nbuy ```milk```\n````";
            assert!(body.to_string().contains(content), "{kind:?}: {body}");
        }
    }
}

#[tokio::test]
async fn a_pdf_is_a_document_where_the_api_has_one() {
    for kind in ProviderKind::ALL {
        let server = ScriptedServer::start(vec![Reply::Stream(answer(kind, "Fine."))]);
        let session = ModelSession::start(kind, &server.url).await;
        assert_eq!(session.send("read this", file("a.pdf", PDF)).await.as_deref(), Ok("Fine."), "{kind:?}");
        session.close().await;
        let body = &server.bodies()[0];
        let (base64, url) = (pdf_as_base64(), format!("data:application/pdf;base64,{}", pdf_as_base64()));
        let expected = match kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter => {
                json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}})
            }
            ProviderKind::OpenAiResponses => {
                json!({"type": "input_file", "filename": "a.pdf", "file_data": url})
            }
            ProviderKind::Anthropic => {
                let source = json!({"type": "base64", "media_type": "application/pdf", "data": base64});
                json!({"type": "document", "title": "a.pdf", "source": source})
            }
            ProviderKind::Gemini => {
                json!({"inline_data": {"mime_type": "application/pdf", "data": base64}})
            }
            ProviderKind::Ollama => {
                assert!(!body.to_string().contains(&base64), "{body}");
                assert!(last_text(body).contains("a.pdf (application/pdf,"), "{body}");
                assert!(last_text(body).contains("tools can open it as /"), "{body}");
                continue;
            }
        };
        assert_eq!(last_parts(body)[0], expected, "{kind:?}");
    }
}

#[tokio::test]
async fn a_pdf_that_a_server_refuses_is_named_with_its_path() {
    for kind in ProviderKind::ALL.into_iter().filter(|kind| *kind != ProviderKind::Ollama) {
        let refusal =
            Reply::Body(400, "application/json", r#"{"error":{"message":"unknown part type: file"}}"#);
        let server = ScriptedServer::start(vec![refusal, Reply::Stream(answer(kind, "Fine."))]);
        let session = ModelSession::start(kind, &server.url).await;
        assert_eq!(session.send("read this", file("a.pdf", PDF)).await.as_deref(), Ok("Fine."), "{kind:?}");
        session.close().await;
        let bodies = server.bodies();
        assert!(bodies[0].to_string().contains(&pdf_as_base64()), "{kind:?}: {}", bodies[0]);
        assert!(!bodies[1].to_string().contains(&pdf_as_base64()), "{kind:?}: {}", bodies[1]);
        assert!(last_text(&bodies[1]).contains("tools can open it as /"), "{kind:?}: {}", bodies[1]);
    }
}

#[tokio::test]
async fn read_file_opens_an_attached_file_and_nothing_else_of_its_folder() {
    for api in ApiFormat::ALL {
        // The paths are known only when the session exists, so each call has a server of its own.
        let content = b"id,name\n1,\xffada\n";
        let fine = || Reply::Stream(api.text("Fine.") + &api.end());
        let first = ScriptedServer::start(vec![fine()]);
        let session = ModelSession::start(kind_of(api), &first.url).await;
        session.send("read this", file("people.csv", content)).await.unwrap();
        let text = last_text(&first.bodies()[0]);
        assert!(text.contains("people.csv (application/octet-stream, 15 bytes;"), "{api:?}: {text}");
        let path = text.split("tools can open it as ").nth(1).unwrap().split(')').next().unwrap().to_owned();
        let other = format!("{}0", path.split_at(path.len() - 1).0);
        let call = |path: &str| Reply::Stream(api.call("read_file", &json!({"path": path}).to_string()));
        let second = ScriptedServer::start(vec![call(&path), call(&other), fine()]);
        let session = session.restart(kind_of(api), &second.url).await;
        session.send("again", file("people.csv", content)).await.unwrap();
        let results = session.tool_results().await;
        session.close().await;
        assert!(results[0].as_ref().unwrap().contains("ada"), "{api:?}: {results:?}");
        assert_eq!(results[1].as_ref().unwrap_err().code, FailureCode::PathRefused, "{api:?}: {results:?}");
        second.bodies().iter().for_each(assert_valid);
    }
}
