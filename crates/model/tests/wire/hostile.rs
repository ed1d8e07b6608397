//! Answers that are not taken, whatever they hold.

use parlor_model::provider::{MAX_ANSWER_PARTS, ProviderKind};
use serde_json::json;

use crate::server::{answered, ask, delta, event, finish};

#[tokio::test]
async fn nothing_packed_is_taken_and_nothing_packed_is_asked_for() {
    let stream = delta(&json!({"content": "hi"})) + &finish("stop");
    for coding in ["gzip", "br", "zstd", "deflate", "gzip, identity", "x-gzip"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nconnection: close\r\n\r\n");
        let heard = answered(ProviderKind::OpenAi, &(head + &stream)).await;
        assert!(heard.head.contains("accept-encoding: identity\r\n"), "{}", heard.head);
        let error = heard.end.unwrap_err();
        assert_eq!(error.code().as_str(), "MODEL_REFUSED", "{error}");
        assert!(error.to_string().contains(&format!("content-encoding: {coding}")), "{error}");
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nconnection: close\r\n\r\n";
    assert_eq!(answered(ProviderKind::OpenAi, &(head.to_owned() + &stream)).await.text, "hi");
}

#[tokio::test]
async fn a_packed_error_is_judged_by_its_status() {
    let head = "HTTP/1.1 429 No\r\ncontent-encoding: gzip\r\nretry-after: 7\r\nconnection: close\r\n\r\nxx";
    let error = answered(ProviderKind::OpenAi, head).await.end.unwrap_err();
    assert_eq!((error.code().as_str(), error.retry_after().unwrap().as_secs()), ("MODEL_BUSY", 7), "{error}");
    assert!(error.to_string().contains("429: its text is packed (content-encoding: gzip)"), "{error}");
}

#[tokio::test]
async fn a_stream_is_read_whatever_its_type_is_called() {
    let stream = delta(&json!({"content": "hi"})) + &finish("stop");
    for line in ["content-type: text/plain", "content-type: application/json", "x: y"] {
        let head = format!("HTTP/1.1 200 OK\r\n{line}\r\nconnection: close\r\n\r\n");
        assert_eq!(answered(ProviderKind::OpenAi, &(head + &stream)).await.text, "hi", "{line}");
    }
}

#[tokio::test]
async fn json_of_any_depth_is_passed_over() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let end = delta(&json!({"content": "hi"})) + &finish("stop");
    for frame in [deep.clone(), format!("{{\"choices\":{deep}}}"), format!("{{\"x\":{deep},\"choices\":[]}}")]
    {
        let heard = ask(ProviderKind::OpenAi, &format!("data: {frame}\n\n{end}")).await;
        assert_eq!(heard.text, "hi");
    }
    let error = ask(ProviderKind::OpenAi, &format!("data: {{\"error\":{deep}}}\n\n")).await.end.unwrap_err();
    assert_eq!(error.code().as_str(), "MODEL_UNAVAILABLE", "{error}");
}

#[tokio::test]
async fn an_answer_does_not_change_between_text_and_thoughts_for_ever() {
    let more =
        |delta: serde_json::Value| event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    let both = more(json!({"text": "a"})) + &more(json!({"thinking": "b"}));
    let heard = ask(ProviderKind::Anthropic, &both.repeat(MAX_ANSWER_PARTS)).await;
    assert!(heard.end.unwrap_err().to_string().contains("changes between text and thoughts"));
}
