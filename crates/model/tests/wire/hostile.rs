//! Hostile answers, which are refused or ignored.

use parlor_model::provider::{MAX_ANSWER_PARTS, ProviderKind};
use serde_json::json;

use crate::server::{delta, event, finish, request, request_raw};

#[tokio::test]
async fn compressed_responses_are_neither_requested_nor_accepted() {
    let stream = delta(&json!({"content": "hi"})) + &finish("stop");
    for coding in ["gzip", "br", "zstd", "deflate", "gzip, identity", "x-gzip"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nconnection: close\r\n\r\n");
        let received = request_raw(ProviderKind::OpenAi, &(head + &stream)).await;
        assert!(received.head.contains("accept-encoding: identity\r\n"), "{}", received.head);
        let error = received.end.unwrap_err();
        assert_eq!(error.code().as_str(), "MODEL_REFUSED", "{error}");
        assert!(error.to_string().contains(&format!("content-encoding: {coding}")), "{error}");
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nconnection: close\r\n\r\n";
    assert_eq!(request_raw(ProviderKind::OpenAi, &(head.to_owned() + &stream)).await.text, "hi");
}

#[tokio::test]
async fn a_compressed_error_is_classified_by_its_status() {
    let head = "HTTP/1.1 429 No\r\ncontent-encoding: gzip\r\nretry-after: 7\r\nconnection: close\r\n\r\nxx";
    let error = request_raw(ProviderKind::OpenAi, head).await.end.unwrap_err();
    assert_eq!((error.code().as_str(), error.retry_after().unwrap().as_secs()), ("MODEL_BUSY", 7), "{error}");
    assert!(error.to_string().contains("429: its text is packed (content-encoding: gzip)"), "{error}");
}

#[tokio::test]
async fn a_stream_with_any_content_type_is_read() {
    let stream = delta(&json!({"content": "hi"})) + &finish("stop");
    for line in ["content-type: text/plain", "content-type: application/json", "x: y"] {
        let head = format!("HTTP/1.1 200 OK\r\n{line}\r\nconnection: close\r\n\r\n");
        assert_eq!(request_raw(ProviderKind::OpenAi, &(head + &stream)).await.text, "hi", "{line}");
    }
}

#[tokio::test]
async fn deeply_nested_json_is_ignored() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let end = delta(&json!({"content": "hi"})) + &finish("stop");
    for frame in [deep.clone(), format!("{{\"choices\":{deep}}}"), format!("{{\"x\":{deep},\"choices\":[]}}")]
    {
        let received = request(ProviderKind::OpenAi, &format!("data: {frame}\n\n{end}")).await;
        assert_eq!(received.text, "hi");
    }
    let error =
        request(ProviderKind::OpenAi, &format!("data: {{\"error\":{deep}}}\n\n")).await.end.unwrap_err();
    assert_eq!(error.code().as_str(), "MODEL_UNAVAILABLE", "{error}");
}

#[tokio::test]
async fn switches_between_text_and_reasoning_are_limited() {
    let more =
        |delta: serde_json::Value| event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    let both = more(json!({"text": "a"})) + &more(json!({"thinking": "b"}));
    let received = request(ProviderKind::Anthropic, &both.repeat(MAX_ANSWER_PARTS)).await;
    assert!(received.end.unwrap_err().to_string().contains("changes between text and thoughts"));
}
