//! Calls in all variants that servers send.

use parlor_model::provider::{MAX_ANSWER_CALLS, ProviderKind};
use serde_json::{Value, json};

use crate::server::{data, delta, event, finish, request, sent_back};

const CHAT: [ProviderKind; 2] = [ProviderKind::OpenAi, ProviderKind::OpenRouter];

fn done() -> String {
    finish("tool_calls") + "data: [DONE]\n\n"
}

fn pieces(calls: &[Value]) -> String {
    calls.iter().map(|call| delta(&json!({"tool_calls": [call]}))).collect::<String>() + &done()
}

#[tokio::test]
async fn a_large_call_number_is_accepted() {
    let call = json!({"index": 4_000_000_000_u32, "id": "a", "function": {"name": "x", "arguments": "{}"}});
    for kind in CHAT {
        let received = request(kind, &pieces(std::slice::from_ref(&call))).await;
        assert_eq!(received.calls(), [("a", "x", "{}")], "{kind:?}");
    }
}

#[tokio::test]
async fn interleaved_calls_are_separated() {
    for first in [0, 1] {
        let second = first + 1;
        let stream = pieces(&[
            json!({"index": first, "id": "a", "function": {"name": "x", "arguments": ""}}),
            json!({"index": second, "id": "b", "function": {"name": "y", "arguments": ""}}),
            json!({"index": second, "function": {"arguments": "{\"n\""}}),
            json!({"index": first, "function": {"arguments": "{\"m\":"}}),
            json!({"index": second, "function": {"arguments": ":2}"}}),
            json!({"index": first, "function": {"arguments": "1}"}}),
        ]);
        let received = request(ProviderKind::OpenAi, &stream).await;
        assert_eq!(received.calls(), [("a", "x", "{\"m\":1}"), ("b", "y", "{\"n\":2}")]);
        assert_eq!(
            (received.streamed_input("a").as_str(), received.streamed_input("b").as_str()),
            ("{\"m\":1}", "{\"n\":2}")
        );
        assert_eq!(
            received.inputs[0],
            ("b".to_owned(), "y".to_owned(), "{\"n\"".to_owned()),
            "pieces keep their order"
        );
    }
}

#[tokio::test]
async fn complete_calls_are_read_with_numbers_or_ids() {
    let call =
        |id: Value, n: u32| json!({"id": id, "function": {"name": "x", "arguments": format!("[{n}]")}});
    let both = json!({"tool_calls": [call(json!("a"), 1), call(json!("b"), 2)]});
    let received = request(ProviderKind::OpenAi, &(delta(&both) + &done())).await;
    assert_eq!(received.calls(), [("a", "x", "[1]"), ("b", "x", "[2]")]);
    let numbered =
        |n: u32, id: &str| json!({"index": n, "id": id, "function": {"name": "x", "arguments": "{}"}});
    for (id, stream) in
        [("", [numbered(0, ""), numbered(1, "")]), ("same", [numbered(0, "same"), numbered(1, "same")])]
    {
        let received = request(ProviderKind::OpenAi, &pieces(&stream)).await;
        assert_eq!(received.calls(), [(id, "x", "{}"), (id, "x", "{}")]);
        let streamed = if id.is_empty() { "" } else { "{}" };
        assert_eq!(received.streamed_input(id), streamed, "without a unique id the input is not streamed");
    }
}

#[tokio::test]
async fn a_call_in_the_last_frame_is_read() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": {"n": 1}}});
    let last = json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
    let received = request(ProviderKind::OpenAi, &(data(&last) + "data: [DONE]\n\n")).await;
    assert_eq!(received.calls(), [("a", "x", "{\"n\":1}")]);
}

#[tokio::test]
async fn an_answer_with_too_many_calls_is_refused() {
    let call =
        |n: usize| json!({"index": n, "id": n.to_string(), "function": {"name": "x", "arguments": "{}"}});
    let calls: Vec<Value> = (0..=MAX_ANSWER_CALLS).map(call).collect();
    let received = request(ProviderKind::OpenAi, &pieces(&calls)).await;
    assert_eq!(received.end.unwrap_err().code().as_str(), "MODEL_REFUSED");
}

#[tokio::test]
async fn chat_reasoning_is_sent_back_with_calls() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]});
    let (text, call) = (delta(&json!({"content": "I look", "reasoning_content": null})), delta(&call));
    let reasoning = |member: &str| delta(&json!({member: "hm "})) + &delta(&json!({member: "hm"}));
    for (kind, end) in CHAT.into_iter().zip([done(), finish("tool_calls")]) {
        let back = async |frames: &str| sent_back(kind, &format!("{frames}{end}")).await;
        let messages = back(&(reasoning("reasoning_content") + &text + &call)).await;
        assert_eq!(
            (&messages[0]["reasoning_content"], &messages[0]["content"]),
            (&json!("hm hm"), &json!("I look"))
        );
        assert_eq!(messages[0]["tool_calls"].as_array().unwrap().len(), 1, "{messages:?}");
        // Servers with another member may not accept this one.
        for frames in [text.clone() + &call, reasoning("reasoning") + &text + &call] {
            let messages = back(&frames).await;
            assert!(messages[0].get("reasoning_content").is_none(), "{messages:?}");
        }
        let received = request(kind, &(reasoning("reasoning_content") + &text + &end)).await;
        assert_eq!(received.end.unwrap().provider_state.bytes(), 0, "without calls it is not sent back");
    }
}

#[tokio::test]
async fn anthropic_signatures_are_kept_with_calls() {
    let block = |index: u32, block: Value| {
        event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let more = |index: u32, delta: Value| {
        event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
    };
    let stop = |index: u32| event(&json!({"type": "content_block_stop", "index": index}));
    let tool = |index: u32, id: &str| {
        block(index, json!({"type": "tool_use", "id": id, "name": "x", "input": {}}))
            + &more(index, json!({"type": "input_json_delta", "partial_json": "{ \"n\""}))
            + &more(index, json!({"type": "input_json_delta", "partial_json": ": 1 }"}))
            + &stop(index)
    };
    let stream = block(0, json!({"type": "thinking", "thinking": "", "signature": ""}))
        + &more(0, json!({"type": "thinking_delta", "thinking": "hm"}))
        + &more(0, json!({"type": "signature_delta", "signature": "signed"}))
        + &stop(0)
        + &tool(1, "a")
        + &tool(2, "b")
        + &event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}))
        + &event(&json!({"type": "message_stop"}));
    let received = request(ProviderKind::Anthropic, &stream).await;
    assert_eq!(received.calls(), [("a", "x", "{ \"n\": 1 }"), ("b", "x", "{ \"n\": 1 }")]);
    assert_eq!(received.inputs.len(), 4, "{:?}", received.inputs);
    assert_eq!(received.streamed_input("b"), "{ \"n\": 1 }");
    assert!(received.end.unwrap().provider_state.bytes() >= "signed".len());
}

#[tokio::test]
async fn responses_reasoning_is_kept_with_calls() {
    let item = |arguments: &str| json!({"type": "function_call", "id": "f", "call_id": "a", "name": "x", "arguments": arguments});
    let reasoning = json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "sealed"});
    let response = json!({
        "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": [],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    });
    let stream = data(&json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}))
        + &data(&json!({"type": "response.output_item.added", "output_index": 1, "item": item("")}))
        + &data(&json!({
            "type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"n\":",
        }))
        + &data(&json!({"type": "response.output_item.done", "output_index": 1, "item": item("{\"n\":1}")}))
        + &data(&json!({"type": "response.completed", "response": response}));
    let received = request(ProviderKind::OpenAiResponses, &stream).await;
    assert_eq!(received.calls(), [("a", "x", "{\"n\":1}")]);
    assert_eq!(received.streamed_input("a"), "{\"n\":1}");
    assert!(received.end.unwrap().provider_state.bytes() >= "sealed".len());
}

#[tokio::test]
async fn interleaved_anthropic_calls_are_separated() {
    let start = |index: u32, id: &str| {
        let block = json!({"type": "tool_use", "id": id, "name": "x", "input": {}});
        event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let more = |index: u32, text: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": text});
        event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
    };
    let stop = |index: u32| event(&json!({"type": "content_block_stop", "index": index}));
    let stream = start(0, "a")
        + &start(1, "b")
        + &more(1, "{\"n\"")
        + &more(0, "{\"m\":")
        + &more(1, ":2}")
        + &more(0, "1}")
        + &stop(0)
        + &stop(1)
        + &start(2, "c")
        + &stop(2)
        + &event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}))
        + &event(&json!({"type": "message_stop"}));
    let received = request(ProviderKind::Anthropic, &stream).await;
    assert_eq!(received.calls(), [("a", "x", "{\"m\":1}"), ("b", "x", "{\"n\":2}"), ("c", "x", "")]);
    assert_eq!(
        (received.streamed_input("a").as_str(), received.streamed_input("b").as_str()),
        ("{\"m\":1}", "{\"n\":2}")
    );
}

#[tokio::test]
async fn the_first_input_of_an_anthropic_call_is_a_default() {
    let all = json!({"n": 1});
    for (first, pieces, made) in [
        (&all, vec![], "{\"n\":1}"),
        (&all, vec![""], "{\"n\":1}"),
        (&all, vec!["{\"n\":", "2}"], "{\"n\":2}"),
        (&json!({}), vec![], ""),
    ] {
        let block = json!({"type": "tool_use", "id": "a", "name": "x", "input": first});
        let more = |text: &str| {
            let delta = json!({"type": "input_json_delta", "partial_json": text});
            event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
        };
        let stream = event(&json!({"type": "content_block_start", "index": 0, "content_block": block}))
            + &pieces.into_iter().map(more).collect::<String>()
            + &event(&json!({"type": "content_block_stop", "index": 0}))
            + &event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}))
            + &event(&json!({"type": "message_stop"}));
        assert_eq!(request(ProviderKind::Anthropic, &stream).await.calls(), [("a", "x", made)]);
    }
}

#[tokio::test]
async fn each_anthropic_block_is_a_separate_call() {
    let stop = event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}))
        + &event(&json!({"type": "message_stop"}));
    for (index, id) in [(json!(0), ""), (Value::Null, "same"), (json!(0), "same")] {
        let call = |text: &str| {
            let block = json!({"type": "tool_use", "id": id, "name": "x", "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": text});
            event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
                + &event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
                + &event(&json!({"type": "content_block_stop", "index": index}))
        };
        let received =
            request(ProviderKind::Anthropic, &(call("") + &call("{}") + &call("{\"n\":1}") + &stop)).await;
        assert_eq!(received.calls(), [(id, "x", ""), (id, "x", "{}"), (id, "x", "{\"n\":1}")], "{index}");
    }
}

#[tokio::test]
async fn a_responses_call_that_is_only_in_the_last_frame_is_read() {
    let call = json!({"type": "function_call", "id": "f", "call_id": "a", "name": "x", "arguments": "{}"});
    let response = json!({
        "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m",
        "output": [{"type": "reasoning", "id": "r", "summary": []}, call],
    });
    let stream = data(&json!({"type": "response.completed", "response": response}));
    let received = request(ProviderKind::OpenAiResponses, &stream).await;
    assert_eq!(received.calls(), [("a", "x", "{}")]);
}

#[tokio::test]
async fn gemini_and_ollama_calls_are_read() {
    let call = |n: u32| json!({"functionCall": {"id": n.to_string(), "name": "x", "args": {"n": n}}, "thoughtSignature": "signed"});
    let content = json!({"role": "model", "parts": [call(1), call(2)]});
    let answer = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    let received = request(ProviderKind::Gemini, &data(&answer)).await;
    let inputs: Vec<&str> = received.calls().iter().map(|(_, _, input)| *input).collect();
    assert_eq!(inputs, ["{\"n\":1}", "{\"n\":2}"]);
    assert_eq!(received.inputs.len(), 2, "{:?}", received.inputs);
    assert!(received.end.unwrap().provider_state.bytes() >= "signed".len());

    let call = |n: u32| json!({"function": {"name": "x", "arguments": {"n": n}}});
    let calls = json!({"message": {"role": "assistant", "content": "", "tool_calls": [call(1), call(2)]}});
    let received = request(
        ProviderKind::Ollama,
        &format!("{calls}\n{}\n", json!({"done": true, "done_reason": "stop"})),
    )
    .await;
    let inputs: Vec<&str> = received.calls().iter().map(|(_, _, input)| *input).collect();
    assert_eq!(inputs, ["{\"n\":1}", "{\"n\":2}"]);
}
