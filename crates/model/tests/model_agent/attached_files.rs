//! The files of messages, as a model agent sends them.

use parlor_model::provider::{Document, ModelMessage, Picture};
use parlor_model::{ATTACHED_TEXT_PERCENT, Agent, BYTES_PER_TOKEN};
use parlor_vocab::{Media, MediaId};

use crate::common::RecordingContext;
use crate::provider::{ScriptedProvider, agent, calls, done, text};
use crate::{context, last_user_text, turn_with_default_model};

fn file(name: &str, mime: &str, size: u64) -> Media {
    let id = MediaId::parse(name).expect("a short id");
    Media { id, name: name.to_owned(), mime: mime.to_owned(), size }
}

#[tokio::test]
async fn images_and_documents_are_sent_texts_are_quoted_and_other_files_are_named() {
    let provider = ScriptedProvider::new([vec![calls(&[("read_file", "{}")])], vec![text("A cat."), done()]]);
    let mut turn = turn_with_default_model("what is this?");
    turn.input.media = vec![
        file("a.png", "image/png", 3),
        file("b.pdf", "application/pdf", 3),
        file("c.txt", "text/plain", 3),
        file("d.zip", "application/zip", 3),
    ];
    let picture = Picture::new("image/jpeg", b"jpg");
    let mut context =
        RecordingContext { file: Some(b"png".to_vec()), pictures: [picture.clone()].into(), ..context() };
    assert_eq!(agent(&provider).answer(&turn, &mut context).await, Ok(()));
    let requests = provider.requests();
    let ModelMessage::User { text, pictures, documents } = &requests[0].messages[0] else { panic!() };
    let parts = [
        "what is this?",
        "(The attached document is b.pdf (application/pdf, 3 bytes; tools can open it as /media/b.pdf, and pdftotext \
         prints its text).)",
        "The attached file c.txt (text/plain, 3 bytes; tools can open it as /media/c.txt):\n```\npng\n```",
        "(The content of an attached file is not shown here: d.zip (application/zip, 3 bytes; tools can open it as \
         /media/d.zip).)",
    ];
    assert_eq!(text, &parts.join("\n\n"));
    assert_eq!(pictures, &[Picture::new("image/png", b"png")]);
    assert_eq!(documents, &[Document::new("b.pdf", "application/pdf", b"png")]);
    let ModelMessage::Results(results) = requests[1].messages.last().unwrap() else { panic!() };
    assert_eq!(results[0].pictures, [picture]);
}

#[tokio::test]
async fn attached_texts_fill_at_most_their_share_of_the_window() {
    let provider = ScriptedProvider::new([vec![text("Long."), done()]]);
    let mut agent = agent(&provider);
    agent.models[0].context_window = 10_000;
    let most = 10_000 * ATTACHED_TEXT_PERCENT as usize / 100 * BYTES_PER_TOKEN;
    let content = "~".repeat(2 * most);
    let mut turn = turn_with_default_model("read");
    turn.input.media = ["long", "beyond"].map(|name| file(name, "text/plain", content.len() as u64)).to_vec();
    let mut context = RecordingContext { file: Some(content.into_bytes()), ..context() };
    assert_eq!(agent.answer(&turn, &mut context).await, Ok(()));
    let requests = provider.requests();
    let text = last_user_text(&requests[0].messages);
    assert_eq!(text.matches('~').count(), most, "{}", text.len());
    assert!(text.contains(&format!("[… {most} bytes are left out …]")), "{text}");
    assert!(text.contains("tools can open it as /media/long); its middle is left out here:"), "{text}");
    assert!(text.contains("not shown here: beyond ("), "{text}");
}

#[tokio::test]
async fn secrets_in_an_attached_text_are_removed() {
    let provider = ScriptedProvider::new([vec![text("Read."), done()]]);
    let mut turn = turn_with_default_model("read");
    turn.input.media = vec![file("a.txt", "text/plain", 13)];
    let file = Some(b"the key is S!".to_vec());
    let mut context = RecordingContext { file, secret: Some("S!".to_owned()), ..context() };
    assert_eq!(agent(&provider).answer(&turn, &mut context).await, Ok(()));
    let requests = provider.requests();
    let text = last_user_text(&requests[0].messages);
    assert!(text.contains("the key is [redacted]") && !text.contains("S!"), "{text}");
}
