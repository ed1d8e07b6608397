//! The blocks of Anthropic's answers: interleaved, and of unknown kinds.

use parlor_model::provider::ProviderKind;
use serde_json::{Value, json};

use crate::server::{Received, event, request, sent_back};

fn start(index: u32, block: Value) -> String {
    event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn more(index: u32, delta: Value) -> String {
    event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn stop(index: u32) -> String {
    event(&json!({"type": "content_block_stop", "index": index}))
}

fn text(index: u32, text: &str) -> String {
    more(index, json!({"type": "text_delta", "text": text}))
}

fn input(index: u32, text: &str) -> String {
    more(index, json!({"type": "input_json_delta", "partial_json": text}))
}

fn tool(index: u32, id: &str) -> String {
    start(index, json!({"type": "tool_use", "id": id, "name": "x", "input": {}}))
}

async fn receive(blocks: String, reason: &str) -> Received {
    let end = event(&json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}))
        + &event(&json!({"type": "message_stop"}));
    request(ProviderKind::Anthropic, &(blocks + &end)).await
}

#[tokio::test]
async fn interleaved_blocks_are_read() {
    let empty = json!({"type": "text", "text": ""});
    let blocks = start(0, empty) + &text(0, "I ") + &tool(1, "a") + &text(0, "look") + &input(1, "{}");
    let received_all = receive(blocks + &stop(0) + &stop(1), "tool_use").await;
    assert_eq!((received_all.text.as_str(), received_all.calls()), ("I look", vec![("a", "x", "{}")]));

    let blocks = tool(0, "a") + &tool(1, "b") + &input(0, "[0]") + &stop(0) + &input(1, "[1]") + &stop(1);
    assert_eq!(receive(blocks, "tool_use").await.calls(), [("a", "x", "[0]"), ("b", "x", "[1]")]);
}

#[tokio::test]
async fn unknown_blocks_are_ignored() {
    let cited = json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}});
    let blocks = start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}))
        + &input(0, "{\"query\":\"x\"}")
        + &stop(0)
        + &start(1, json!({"type": "text", "text": ""}))
        + &text(1, "found")
        + &more(1, cited)
        + &text(1, " it")
        + &stop(1);
    let received_all = receive(blocks.clone(), "end_turn").await;
    assert_eq!((received_all.text.as_str(), received_all.calls()), ("found it", vec![]));
    let received_all = receive(blocks + &tool(2, "a") + &input(2, "{}") + &stop(2), "tool_use").await;
    assert_eq!(received_all.calls(), [("a", "x", "{}")]);
}

#[tokio::test]
async fn an_interleaved_thinking_block_is_sent_back_completely() {
    let thinking_delta = |delta: Value| more(0, delta);
    let blocks = start(0, json!({"type": "thinking", "thinking": "", "signature": ""}))
        + &thinking_delta(json!({"type": "thinking_delta", "thinking": "hm "}))
        + &tool(1, "a")
        + &thinking_delta(json!({"type": "thinking_delta", "thinking": "hm"}))
        + &input(1, "{}")
        + &thinking_delta(json!({"type": "signature_delta", "signature": "signed"}));
    let end = event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}));
    let messages = sent_back(ProviderKind::Anthropic, &(blocks + &end)).await;
    let wanted = json!([
        {"type": "thinking", "thinking": "hm hm", "signature": "signed"},
        {"type": "tool_use", "id": "a", "name": "x", "input": {}},
    ]);
    assert_eq!(messages[0]["content"], wanted);
}
