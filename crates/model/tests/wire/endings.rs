//! The ends of answers: complete, truncated, failed and interrupted.

use parlor_model::provider::{MAX_ANSWER_BYTES, ProviderKind, StopReason};
use serde_json::{Value, json};

use crate::server::{data, delta, event, finish, request};

#[tokio::test]
async fn an_answer_with_a_finish_reason_is_complete() {
    let text = delta(&json!({"content": "all of it"}));
    let call = delta(&json!({"tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}},
    ]}));
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35,
        "prompt_tokens_details": {"cached_tokens": 10}}});
    let received =
        request(ProviderKind::OpenAi, &(text + &call + &finish("tool_calls") + &data(&usage))).await;
    assert_eq!((received.text.as_str(), received.calls()), ("all of it", vec![("a", "x", "{}")]));
    let done = received.end.unwrap();
    assert_eq!(
        (done.usage.input_tokens, done.usage.cache_read_tokens, done.usage.output_tokens),
        (20, 10, 5)
    );
    assert_eq!(done.stop, StopReason::Complete);
}

#[tokio::test]
async fn the_last_non_zero_usage_counts() {
    let usage =
        |read: u32, write: u32| json!({"prompt_tokens": read, "completion_tokens": write, "total_tokens": 0});
    let frame = |choices: Value, usage: Value| data(&json!({"choices": choices, "usage": usage}));
    let last = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    let stream = frame(json!([{"index": 0, "delta": {"content": "hi"}}]), usage(10, 1))
        + &frame(last, usage(10, 2))
        + &frame(json!([]), usage(1000, 500))
        + &frame(json!([]), usage(0, 0));
    for end in ["", "data: [DONE]\n\n"] {
        let usage = request(ProviderKind::OpenAi, &format!("{stream}{end}")).await.end.unwrap().usage;
        assert_eq!((usage.input_tokens, usage.output_tokens), (1000, 500));
    }
}

#[tokio::test]
async fn an_answer_without_a_finish_reason_is_incomplete() {
    for kind in [ProviderKind::OpenAi, ProviderKind::OpenRouter] {
        let received = request(kind, &delta(&json!({"content": "half"}))).await;
        assert_eq!(received.end.unwrap_err().code().as_str(), "MODEL_UNAVAILABLE");
    }
}

#[tokio::test]
async fn an_error_after_the_finish_reason_is_an_error() {
    let error = data(&json!({"error": {"message": "overloaded", "type": "overloaded_error"}}));
    let received = request(ProviderKind::OpenAi, &(finish("stop") + &error)).await;
    assert_eq!(received.end.unwrap_err().code().as_str(), "MODEL_BUSY");
}

#[tokio::test]
async fn a_truncated_answer_has_the_stop_reason_length() {
    for end in ["", "data: [DONE]\n\n"] {
        let received =
            request(ProviderKind::OpenAi, &(delta(&json!({"content": "half"})) + &finish("length") + end))
                .await;
        assert_eq!(received.end.unwrap().stop, StopReason::Length);
    }
}

#[tokio::test]
async fn an_anthropic_answer_is_complete_without_its_last_frame() {
    let usage = json!({"input_tokens": 20, "cache_read_input_tokens": 10, "output_tokens": 1});
    let start = event(&json!({"type": "message_start", "message": {"usage": usage}}));
    let block =
        |block: Value| event(&json!({"type": "content_block_start", "index": 0, "content_block": block}));
    let more = |delta: Value| event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    let call = block(json!({"type": "tool_use", "id": "a", "name": "x", "input": {}}))
        + &more(json!({"type": "input_json_delta", "partial_json": "{}"}))
        + &event(&json!({"type": "content_block_stop", "index": 0}));
    let thinking = block(json!({"type": "thinking", "thinking": "", "signature": ""}))
        + &more(json!({"type": "thinking_delta", "thinking": "hm"}))
        + &event(&json!({"type": "content_block_stop", "index": 0}));
    let text =
        block(json!({"type": "text", "text": ""})) + &more(json!({"type": "text_delta", "text": "hi"}));
    let stop = event(&json!({
        "type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 5},
    }));
    let received = request(ProviderKind::Anthropic, &format!("{start}{thinking}{text}{stop}")).await;
    let done = received.end.unwrap();
    assert_eq!((received.text.as_str(), done.stop), ("hi", StopReason::Length));
    assert_eq!(
        (done.usage.input_tokens, done.usage.cache_read_tokens, done.usage.output_tokens),
        (20, 10, 5)
    );
    let received = request(ProviderKind::Anthropic, &format!("{start}{call}{stop}")).await;
    assert_eq!(received.calls(), [("a", "x", "{}")]);
    let sealed = block(json!({"type": "redacted_thinking", "data": "sealed"}));
    let received = request(ProviderKind::Anthropic, &format!("{start}{sealed}{call}{stop}")).await;
    assert_eq!(received.calls(), [("a", "x", "{}")]);
    assert_eq!(received.end.unwrap().provider_state.bytes(), "sealed".len(), "the redacted block is kept");
    let received = request(ProviderKind::Anthropic, &format!("{start}{text}")).await;
    assert_eq!(received.end.unwrap_err().code().as_str(), "MODEL_UNAVAILABLE");
}

#[tokio::test]
async fn a_refusal_is_read_as_text() {
    let chat = delta(&json!({"role": "assistant", "content": "", "refusal": null}))
        + &delta(&json!({"refusal": "I will "}))
        + &delta(&json!({"refusal": "not."}))
        + &delta(&json!({"content": " Sorry."}))
        + &delta(&json!({"refusal": " No."}))
        + &finish("stop");
    for end in ["", "data: [DONE]\n\n"] {
        let received = request(ProviderKind::OpenAi, &format!("{chat}{end}")).await;
        assert_eq!(received.text, "I will not. Sorry. No.");
        assert_eq!(received.end.unwrap().stop, StopReason::Complete);
    }
    let more = |text: &str| data(&json!({"type": "response.refusal.delta", "delta": text}));
    let stream = more("I will ") + &more("not.") + &completed("completed", &json!({"model": "m"}));
    let received = request(ProviderKind::OpenAiResponses, &stream).await;
    assert_eq!((received.text.as_str(), received.end.unwrap().stop), ("I will not.", StopReason::Complete));
}

#[tokio::test]
async fn refusals_and_inputs_count_for_the_answer_limit() {
    let much = "x".repeat(1 << 20);
    let refusal = delta(&json!({"refusal": much}));
    let call = delta(&json!({"tool_calls": [{"id": "a", "function": {"name": "x", "arguments": much}}]}));
    let item = json!({"type": "response.function_call_arguments.delta", "output_index": 7, "delta": much});
    for (kind, frame, shown) in [
        (ProviderKind::OpenAi, refusal, MAX_ANSWER_BYTES),
        (ProviderKind::OpenAi, call, 0),
        (ProviderKind::OpenAiResponses, data(&item), 0),
    ] {
        let received = request(kind, &frame.repeat(MAX_ANSWER_BYTES / much.len() + 1)).await;
        let error = received.end.unwrap_err();
        assert_eq!((error.code().as_str(), received.text.len()), ("MODEL_REFUSED", shown), "{error}");
        assert!(error.to_string().contains("is longer than"), "{error}");
    }
}

#[tokio::test]
async fn an_incomplete_responses_answer_has_a_stop_reason() {
    for (reason, stop) in
        [("content_filter", StopReason::Filtered), ("max_output_tokens", StopReason::Length)]
    {
        for model in [json!({"model": "m"}), json!({})] {
            let mut more = model;
            more["incomplete_details"] = json!({"reason": reason});
            let received = request(ProviderKind::OpenAiResponses, &completed("incomplete", &more)).await;
            assert_eq!(received.end.unwrap().stop, stop, "{more}");
        }
    }
}

#[tokio::test]
async fn a_responses_answer_is_complete_with_a_minimal_last_frame() {
    let item = |arguments: &str| json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": arguments});
    let usage = json!({
        "input_tokens": 30, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 10},
    });
    let stream = data(&json!({"type": "response.output_text.delta", "delta": "hi"}))
        + &data(&json!({"type": "response.output_item.added", "output_index": 1, "item": item("")}))
        + &data(&json!({"type": "response.output_item.done", "output_index": 1, "item": item("{}")}));
    let received = request(
        ProviderKind::OpenAiResponses,
        &(stream.clone() + &completed("completed", &json!({"usage": usage}))),
    )
    .await;
    assert_eq!((received.text.as_str(), received.calls()), ("hi", vec![("a", "x", "{}")]));
    let done = received.end.unwrap();
    assert_eq!(
        (done.usage.input_tokens, done.usage.cache_read_tokens, done.usage.output_tokens, done.stop),
        (20, 10, 5, StopReason::Complete)
    );
    let received = request(ProviderKind::OpenAiResponses, &stream).await;
    assert_eq!(received.end.unwrap_err().code().as_str(), "MODEL_UNAVAILABLE", "the last frame is required");
}

#[tokio::test]
async fn a_failed_responses_answer_is_classified() {
    let error = json!({"code": "rate_limit_exceeded", "message": "slower, please"});
    for more in [json!({"error": error, "model": "m"}), json!({"error": error})] {
        let received = request(ProviderKind::OpenAiResponses, &completed("failed", &more)).await;
        let error = received.end.unwrap_err();
        assert_eq!(error.code().as_str(), "MODEL_BUSY", "{error}");
        assert!(error.to_string().contains("slower, please"), "{error}");
    }
}

#[tokio::test]
async fn a_failed_answer_makes_no_calls() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]});
    for (more, code, word) in [
        (json!({}), "MODEL_UNAVAILABLE", "no reason given"),
        (json!({"error": {"type": "overloaded", "message": "later"}}), "MODEL_BUSY", "later"),
    ] {
        let mut choice = json!({"index": 0, "delta": {}, "finish_reason": "error"});
        choice["error"] = more["error"].clone();
        for end in ["", "data: [DONE]\n\n"] {
            let stream = delta(&call) + &data(&json!({"choices": [choice]})) + end;
            let error = request(ProviderKind::OpenAi, &stream).await.end.unwrap_err();
            assert_eq!(error.code().as_str(), code, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    let item = json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"});
    let done = data(&json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    for more in [
        json!({"status": "failed", "error": {"code": "server_error", "message": "later"}, "model": "m"}),
        json!({"status": "cancelled", "output": [item], "error": null}),
        json!({"error": {"code": "server_error", "message": "later"}}),
    ] {
        let stream = format!("{done}{}", completed("completed", &more));
        let error = request(ProviderKind::OpenAiResponses, &stream).await.end.unwrap_err();
        assert_eq!(error.code().as_str(), "MODEL_UNAVAILABLE", "{error}");
    }
}

#[tokio::test]
async fn an_ollama_error_is_reported() {
    let half = json!({"message": {"role": "assistant", "content": "an \"error\""}});
    let received =
        request(ProviderKind::Ollama, &format!("{half}\n{}\n", json!({"error": "out of memory"}))).await;
    let error = received.end.unwrap_err();
    assert_eq!((received.text.as_str(), error.code().as_str()), ("an \"error\"", "MODEL_UNAVAILABLE"));
    assert!(error.to_string().contains("out of memory"), "{error}");
}

/// The last frame of the responses format, with `more` members.
fn completed(status: &str, more: &Value) -> String {
    let mut response = json!({"id": "r", "object": "response", "created_at": 1, "status": status});
    for (name, value) in more.as_object().into_iter().flatten() {
        response[name] = value.clone();
    }
    data(&json!({"type": format!("response.{status}"), "response": response}))
}
