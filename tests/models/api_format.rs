//! The three formats of model APIs, and the stream events of an answer in each of them.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use serde_json::{Value, json};

use crate::home::Home;

/// A format of model APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiFormat {
    Chat,
    Responses,
    Anthropic,
}

impl ApiFormat {
    pub(crate) const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Anthropic];

    fn provider(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "openai-responses",
            Self::Anthropic => "anthropic",
        }
    }

    /// A home whose agent uses a model of this format at `url`; `extra_settings` belong to the model.
    pub(crate) fn home(self, url: &str, extra_settings: &str) -> Home {
        let (provider, home) = (self.provider(), Home::new());
        let settings = format!(
            "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n\
             [models.mock]\nprovider = \"{provider}\"\nmodel = \"claude-sonnet-5\"\nbase_url = \"{url}/v1\"\n\
             api_key_env = \"SOME_API_KEY\"\nreasoning = \"low\"\n{extra_settings}"
        );
        home.configure("parlor.toml", &settings);
        for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
            std::fs::write(home.folder().join(format!("{name}.txt")), format!("content {number}\n")).unwrap();
        }
        home
    }

    /// The stream events of an answer with this text, up to but without its end.
    pub(crate) fn text(self, text: &str) -> String {
        match self {
            Self::Chat => data(&json!({"choices": [{"index": 0, "delta": {"content": text}}]})),
            Self::Responses => data(&json!({
                "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text,
            })),
            Self::Anthropic => {
                let start = json!({
                    "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
                });
                let delta = json!({
                    "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
                });
                event("content_block_start", &start) + &event("content_block_delta", &delta)
            }
        }
    }

    /// The stream events that end a text answer.
    pub(crate) fn end(self) -> String {
        match self {
            Self::Chat => {
                let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
                data(&stop) + "data: [DONE]\n\n"
            }
            Self::Responses => self.completed(&[]),
            Self::Anthropic => {
                let stop = json!({"type": "content_block_stop", "index": 0});
                event("content_block_stop", &stop) + &message_end("end_turn")
            }
        }
    }

    /// The stream events that end an answer which reached the limit of output tokens.
    pub(crate) fn end_at_limit(self) -> String {
        match self {
            Self::Chat => self.end().replace("\"stop\"", "\"length\""),
            Self::Responses => {
                let details =
                    "\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}";
                let end = self.completed(&[]).replace("response.completed", "response.incomplete");
                end.replace("\"status\":\"completed\"", details)
            }
            Self::Anthropic => self.end().replace("end_turn", "max_tokens"),
        }
    }

    /// A complete answer that calls `tool` with `input`, which need not be valid JSON.
    pub(crate) fn call(self, tool: &str, input: &str) -> String {
        match self {
            Self::Chat => {
                let function = json!({"name": tool, "arguments": input});
                let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
                let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
                data(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
                    + &data(&stop)
                    + "data: [DONE]\n\n"
            }
            Self::Responses => {
                let item = |arguments: &str| {
                    json!({
                        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool,
                        "arguments": arguments,
                    })
                };
                data(&json!({"type": "response.output_item.added", "output_index": 0, "item": item("")}))
                    + &data(&json!({
                        "type": "response.function_call_arguments.delta", "output_index": 0, "delta": input,
                    }))
                    + &data(
                        &json!({"type": "response.output_item.done", "output_index": 0, "item": item(input)}),
                    )
                    + &self.completed(&[item(input)])
            }
            Self::Anthropic => {
                let block = json!({"type": "tool_use", "id": "call_1", "name": tool, "input": {}});
                let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
                let piece = json!({"type": "input_json_delta", "partial_json": input});
                let delta = json!({"type": "content_block_delta", "index": 0, "delta": piece});
                let stop = json!({"type": "content_block_stop", "index": 0});
                event("content_block_start", &start)
                    + &event("content_block_delta", &delta)
                    + &event("content_block_stop", &stop)
                    + &message_end("tool_use")
            }
        }
    }

    fn completed(self, output: &[Value]) -> String {
        let usage = json!({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12});
        let response = json!({
            "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": output, "usage": usage,
        });
        data(&json!({"type": "response.completed", "response": response}))
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn event(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}

fn message_end(reason: &str) -> String {
    let delta = json!({
        "type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2},
    });
    event("message_delta", &delta) + &event("message_stop", &json!({"type": "message_stop"}))
}

/// Fails if a provider would reject the conversation in a request body: the result of every tool call must follow
/// directly, and there must be no result without a call.
pub(crate) fn assert_valid(body: &Value) {
    let items = body["messages"].as_array().or_else(|| body["input"].as_array()).expect("a conversation");
    let mut pending: Vec<String> = Vec::new();
    for item in items {
        let blocks: Vec<&Value> = item["content"].as_array().into_iter().flatten().collect();
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        let calls = item["tool_calls"].as_array().into_iter().flatten().map(|call| text(&call["id"]));
        let uses = blocks.iter().filter(|block| block["type"] == "tool_use").map(|block| text(&block["id"]));
        let function_call = (item["type"] == "function_call").then(|| text(&item["call_id"]));
        let new_calls: Vec<String> = calls.chain(uses).chain(function_call).collect();
        let tool = (item["role"] == "tool").then(|| text(&item["tool_call_id"]));
        let block_results = blocks
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| text(&block["tool_use_id"]));
        let output = (item["type"] == "function_call_output").then(|| text(&item["call_id"]));
        let results: Vec<String> = tool.into_iter().chain(block_results).chain(output).collect();
        if results.is_empty() && item["type"] != "function_call" {
            assert!(pending.is_empty(), "{pending:?} have no result before {item}");
        }
        for id in results {
            let index = pending.iter().position(|call| *call == id);
            pending.remove(index.unwrap_or_else(|| panic!("result {id} has no call")));
        }
        pending.extend(new_calls);
    }
    assert!(pending.is_empty(), "{pending:?} have no result");
}
