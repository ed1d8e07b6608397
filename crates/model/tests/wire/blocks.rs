//! The blocks of Anthropic's answers, in turns and of kinds that nobody asked for.

use parlor_model::provider::ProviderKind;
use serde_json::{Value, json};

use crate::server::{Heard, ask, event, given_back};

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

async fn heard(blocks: String, reason: &str) -> Heard {
    let end = event(&json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}))
        + &event(&json!({"type": "message_stop"}));
    ask(ProviderKind::Anthropic, &(blocks + &end)).await
}

#[tokio::test]
async fn blocks_in_turns_are_read() {
    let empty = json!({"type": "text", "text": ""});
    let blocks = start(0, empty) + &text(0, "I ") + &tool(1, "a") + &text(0, "look") + &input(1, "{}");
    let heard_both = heard(blocks + &stop(0) + &stop(1), "tool_use").await;
    assert_eq!((heard_both.text.as_str(), heard_both.calls()), ("I look", vec![("a", "x", "{}")]));

    let blocks = tool(0, "a") + &tool(1, "b") + &input(0, "[0]") + &stop(0) + &input(1, "[1]") + &stop(1);
    assert_eq!(heard(blocks, "tool_use").await.calls(), [("a", "x", "[0]"), ("b", "x", "[1]")]);
}

#[tokio::test]
async fn what_nobody_asked_for_is_passed_over() {
    let cited = json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}});
    let blocks = start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}))
        + &input(0, "{\"query\":\"x\"}")
        + &stop(0)
        + &start(1, json!({"type": "text", "text": ""}))
        + &text(1, "found")
        + &more(1, cited)
        + &text(1, " it")
        + &stop(1);
    let heard_all = heard(blocks.clone(), "end_turn").await;
    assert_eq!((heard_all.text.as_str(), heard_all.calls()), ("found it", vec![]));
    let heard_all = heard(blocks + &tool(2, "a") + &input(2, "{}") + &stop(2), "tool_use").await;
    assert_eq!(heard_all.calls(), [("a", "x", "{}")]);
}

#[tokio::test]
async fn a_thought_in_turns_with_other_blocks_is_given_back_whole() {
    let thought = |delta: Value| more(0, delta);
    let blocks = start(0, json!({"type": "thinking", "thinking": "", "signature": ""}))
        + &thought(json!({"type": "thinking_delta", "thinking": "hm "}))
        + &tool(1, "a")
        + &thought(json!({"type": "thinking_delta", "thinking": "hm"}))
        + &input(1, "{}")
        + &thought(json!({"type": "signature_delta", "signature": "signed"}));
    let end = event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}));
    let said = given_back(ProviderKind::Anthropic, &(blocks + &end)).await;
    let wanted = json!([
        {"type": "thinking", "thinking": "hm hm", "signature": "signed"},
        {"type": "tool_use", "id": "a", "name": "x", "input": {}},
    ]);
    assert_eq!(said[0]["content"], wanted);
}
