//! Images in messages and in tool results, in each API format.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

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

use crate::aimock::Aimock;
use crate::api_format::{ApiFormat, assert_valid};
use crate::scripted_server::{Reply, ScriptedServer};

/// A PNG image of one red pixel.
const RED: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

fn sessions_with_model(api: ApiFormat, url: &str, folder: &std::path::Path) -> Sessions {
    let kind = match api {
        ApiFormat::Chat => ProviderKind::OpenAi,
        ApiFormat::Responses => ProviderKind::OpenAiResponses,
        ApiFormat::Anthropic => ProviderKind::Anthropic,
    };
    let key = Arc::new(FixedKey(Ok(Some(Key::new("k")))));
    let connection = Connection::new(kind, Some(&format!("{url}/v1")), key, Routing::default());
    let agent = ModelAgent::new("Model agent", Model::new("mock", "claude-sonnet-5", Arc::new(connection)));
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

/// Sends a message with files in a new session; returns the answer.
async fn send(sessions: &Sessions, folder: &std::path::Path, text: &str, files: Vec<NamedFile>) -> String {
    let new_session = NewSession {
        title: None,
        door: "test".to_owned(),
        folder: folder.to_owned(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    };
    let session = sessions.create(None, new_session).await.unwrap();
    let media = sessions.store_media(files).await.unwrap();
    let input = UserInput { text: text.to_owned(), media, ..UserInput::default() };
    let mut watcher = sessions.watch(&session, Seq::START).await;
    sessions.execute(&session, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await.unwrap();
    let mut answer = String::new();
    loop {
        let SessionUpdate::Entry(entry) = watcher.next().await.unwrap() else { continue };
        let SessionEvent::Run { event, .. } = &entry.event else { continue };
        if let RunEvent::Message(MessageEvent::Completed { text, .. }) = event {
            answer.clone_from(text);
        }
        if matches!(event, RunEvent::Ended { .. }) {
            sessions.close().await;
            return answer;
        }
    }
}

fn red_as_base64() -> String {
    base64_simd::STANDARD.encode_to_string(RED)
}

fn count(body: &Value, text: &str) -> usize {
    body.to_string().matches(text).count()
}

#[tokio::test]
async fn an_image_in_a_message_is_sent_and_another_file_is_named() {
    for api in ApiFormat::ALL {
        let folder = tempfile::tempdir().unwrap();
        let mut mock = Aimock::start();
        let sessions = sessions_with_model(api, &mock.url, folder.path());
        let files = vec![
            NamedFile { name: "red.png".to_owned(), bytes: RED.to_vec() },
            NamedFile { name: "notes.txt".to_owned(), bytes: b"plain".to_vec() },
        ];
        assert_eq!(
            send(&sessions, folder.path(), "look at this", files).await,
            "A small red square.",
            "{api:?}"
        );
        let body = mock.requests().pop().unwrap()["body"].clone();
        assert!(count(&body, "notes.txt") == 1, "{api:?}: {body}");
        assert!(count(&body, "image") > 0, "{api:?}: {body}");
    }
}

#[tokio::test]
async fn an_image_of_a_tool_result_is_sent_in_each_format() {
    for api in ApiFormat::ALL {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("red.png"), RED).unwrap();
        // aimock converts the requests that it records, so this test uses the scripted server.
        let server = ScriptedServer::start(vec![
            Reply::Stream(api.call("read_file", r#"{"path":"red.png"}"#)),
            Reply::Stream(api.text("It is red.") + &api.end()),
        ]);
        let sessions = sessions_with_model(api, &server.url, folder.path());
        assert_eq!(send(&sessions, folder.path(), "show me red", Vec::new()).await, "It is red.", "{api:?}");
        let body = &server.bodies()[1];
        assert_valid(body);
        assert_eq!(count(body, &red_as_base64()), 1, "{api:?}: {body}");
        let marker = match api {
            ApiFormat::Chat => "image_url",
            ApiFormat::Responses => "input_image",
            ApiFormat::Anthropic => r#""media_type":"image/png""#,
        };
        assert!(count(body, marker) >= 1, "{api:?}: {body}");
    }
}
