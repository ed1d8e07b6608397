//! Images of messages and of tools, as each form has them.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::sync::Arc;

use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::provider::{Connection, FixedKey, Key, ProviderKind, Routing};
use parlor_model::{Model, ModelAgent};
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, MessageEvent, NamedFile, NewSession, RunEvent, Seq, SessionCommand, SessionEvent,
    SessionUpdate, UserInput, WhenBusy,
};
use serde_json::Value;

use crate::forms::{Form, assert_valid};
use crate::mock::Mock;
use crate::server::{Deed, Server};

/// A red square.
const RED: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

fn house(form: Form, url: &str, folder: &std::path::Path) -> Sessions {
    let kind = match form {
        Form::Chat => ProviderKind::OpenAi,
        Form::Responses => ProviderKind::OpenAiResponses,
        Form::Anthropic => ProviderKind::Anthropic,
    };
    let key = Arc::new(FixedKey(Ok(Some(Key::new("k")))));
    let connection = Connection::new(kind, Some(&format!("{url}/v1")), key, Routing::default());
    let agent = ModelAgent::new("Mind", Model::new("mock", "claude-sonnet-5", Arc::new(connection)));
    let clock = Arc::new(SystemClock);
    Sessions::new(SessionDeps {
        log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
        agents: Agents::new(AgentId::parse("main").unwrap(), Arc::new(agent)),
        media: MediaStore::open(folder).unwrap(),
        tools: Toolbox::standard(ShellTool::default()),
        env: Arc::new([]),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    })
}

/// Says `text` with files, and gives back what was answered.
async fn say(house: &Sessions, folder: &std::path::Path, text: &str, files: Vec<NamedFile>) -> String {
    let new_session = NewSession {
        title: None,
        door: "test".to_owned(),
        folder: folder.to_owned(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    };
    let session = house.create(None, new_session).await.unwrap();
    let media = house.store_media(files).await.unwrap();
    let input = UserInput { text: text.to_owned(), media, ..UserInput::default() };
    let mut watcher = house.watch(&session, Seq::START).await;
    house.ask(&session, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await.unwrap();
    let mut said = String::new();
    loop {
        let SessionUpdate::Entry(entry) = watcher.next().await.unwrap() else { continue };
        let SessionEvent::Run { event, .. } = &entry.event else { continue };
        if let RunEvent::Message(MessageEvent::Completed { text, .. }) = event {
            said.clone_from(text);
        }
        if matches!(event, RunEvent::Ended { .. }) {
            house.close().await;
            return said;
        }
    }
}

fn base64() -> String {
    base64_simd::STANDARD.encode_to_string(RED)
}

fn count(body: &Value, wanted: &str) -> usize {
    body.to_string().matches(wanted).count()
}

#[tokio::test]
async fn the_image_of_a_message_is_seen_and_another_file_is_named() {
    for form in Form::ALL {
        let folder = tempfile::tempdir().unwrap();
        let mut mock = Mock::start();
        let house = house(form, &mock.url, folder.path());
        let files = vec![
            NamedFile { name: "red.png".to_owned(), bytes: RED.to_vec() },
            NamedFile { name: "notes.txt".to_owned(), bytes: b"plain".to_vec() },
        ];
        assert_eq!(
            say(&house, folder.path(), "look at this", files).await,
            "A small red square.",
            "{form:?}"
        );
        let body = mock.requests().pop().unwrap()["body"].clone();
        assert!(count(&body, "notes.txt") == 1, "{form:?}: {body}");
        assert!(count(&body, "image") > 0, "{form:?}: {body}");
    }
}

#[tokio::test]
async fn the_image_of_a_tool_is_seen_where_the_form_has_a_place_for_it() {
    for form in Form::ALL {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("red.png"), RED).unwrap();
        // aimock tells what it was sent in words of its own, so this looks at the bytes.
        let server = Server::start(vec![
            Deed::Answer(form.call("read_file", r#"{"path":"red.png"}"#)),
            Deed::Answer(form.text("It is red.") + &form.end()),
        ]);
        let house = house(form, &server.url, folder.path());
        assert_eq!(say(&house, folder.path(), "show me red", Vec::new()).await, "It is red.", "{form:?}");
        let body = &server.bodies()[1];
        assert_valid(body);
        assert_eq!(count(body, &base64()), 1, "{form:?}: {body}");
        let place = match form {
            Form::Chat => "image_url",
            Form::Responses => "input_image",
            Form::Anthropic => r#""media_type":"image/png""#,
        };
        assert!(count(body, place) >= 1, "{form:?}: {body}");
    }
}
