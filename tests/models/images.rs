//! Images in messages and in tool results, in each API format.
use parlor_vocab::NamedFile;
use serde_json::Value;

use crate::aimock::Aimock;
use crate::api_format::{ApiFormat, assert_valid};
use crate::model_session::{ModelSession, kind_of};
use crate::scripted_server::{Reply, ScriptedServer};

/// A PNG image of one red pixel.
pub(crate) const RED: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

fn red_as_base64() -> String {
    base64_simd::STANDARD.encode_to_string(RED)
}

fn count(body: &Value, text: &str) -> usize {
    body.to_string().matches(text).count()
}

#[tokio::test]
async fn an_image_and_a_text_in_a_message_are_sent() {
    for api in ApiFormat::ALL {
        let mut mock = Aimock::start();
        let session = ModelSession::start(kind_of(api), &mock.url).await;
        let files = vec![
            NamedFile { name: "red.png".to_owned(), bytes: RED.to_vec() },
            NamedFile { name: "notes.txt".to_owned(), bytes: b"plain words".to_vec() },
        ];
        let answer = session.send("look at this", files).await.unwrap();
        assert_eq!(answer, "A small red square.", "{api:?}");
        session.close().await;
        let body = mock.requests().pop().unwrap()["body"].clone();
        assert!(count(&body, "notes.txt") == 1 && count(&body, "plain words") == 1, "{api:?}: {body}");
        assert!(count(&body, "image") > 0, "{api:?}: {body}");
    }
}

#[tokio::test]
async fn an_image_of_a_tool_result_is_sent_in_each_format() {
    for api in ApiFormat::ALL {
        // aimock converts the requests that it records, so this test uses the scripted server.
        let server = ScriptedServer::start(vec![
            Reply::Stream(api.call("read_file", r#"{"path":"red.png"}"#)),
            Reply::Stream(api.text("It is red.") + &api.end()),
        ]);
        let session = ModelSession::start(kind_of(api), &server.url).await;
        std::fs::write(session.folder().join("red.png"), RED).unwrap();
        assert_eq!(session.send("show me red", Vec::new()).await.as_deref(), Ok("It is red."), "{api:?}");
        session.close().await;
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
