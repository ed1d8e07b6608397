//! The client's side of the protocol: what parlor sends to a SketchUp runtime for its own clients.
//!
//! These functions only encode and decode. The runtime serves one call per connection: `hello` and its reply, then one
//! call and its reply. Its console serves any number of lines.

use parlor_vocab::{Caller, RubyJob, UpstreamError};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::wire::{HelloParams, Reply, method, request};
use super::{MAX_REQUEST_BYTES, RUNTIME_VERSION};

/// The `hello` to the runtime's bridge, with its newline.
pub fn hello(caller: &Caller, token: Option<&str>, pid: u64) -> Vec<u8> {
    let params = HelloParams {
        name: "parlor".to_owned(),
        version: RUNTIME_VERSION.to_owned(),
        agent: if caller.agent.is_empty() { "unknown".to_owned() } else { caller.agent.clone() },
        pid,
        token: token.map(str::to_owned),
        workspace: caller.workspace.clone(),
        features: Vec::new(),
        nonce: None,
    };
    line(request(&"hello", method::HELLO, &params))
}

/// The `hello` to the runtime's console, with its newline.
pub fn console_hello(token: Option<&str>, pid: u64) -> Vec<u8> {
    let mut params = json!({"name": "parlor", "version": RUNTIME_VERSION, "pid": pid});
    if let Some(token) = token {
        params["token"] = token.into();
    }
    line(request(&"hello", method::HELLO, &params))
}

/// The request for `job`, with its newline. `None` if the runtime has no such call, or if the line is longer than the
/// runtime accepts.
pub fn call(job: &RubyJob) -> Option<Vec<u8>> {
    let tool = |name: &str, arguments: Value| {
        request(&1, method::TOOLS_CALL, &json!({"name": name, "arguments": arguments}))
    };
    let frame = match job {
        RubyJob::Snippet { code } => tool("eval_ruby", json!({"code": code})),
        RubyJob::File { path } => tool("eval_ruby_file", json!({"file_path": path})),
        RubyJob::RestartRuby => tool("reload_extension", json!({})),
        RubyJob::PingUpstream => tool("ping", json!({})),
        RubyJob::ListResources => request(&1, method::RESOURCES_LIST, &json!({})),
        RubyJob::Upstream(model) => {
            #[derive(serde::Serialize)]
            struct Params<'a> {
                name: &'a str,
                arguments: &'a RawValue,
            }
            let arguments = serde_json::from_str(&model.arguments).ok()?;
            request(&1, method::TOOLS_CALL, &Params { name: model.tool, arguments })
        }
        RubyJob::ConsoleLine { code, .. } => request(&1, method::EVAL, &json!({"code": code})),
        RubyJob::Tool { .. } => return None,
    };
    let line = line(frame);
    (line.len() <= MAX_REQUEST_BYTES).then_some(line)
}

/// Decodes a reply of the runtime: its result as raw JSON, or its error.
pub fn reply(line: &[u8]) -> Result<String, UpstreamError> {
    let unanswered = |reason: String| UpstreamError::Unanswered { reason };
    let reply: Reply<'_> = serde_json::from_slice(line)
        .map_err(|error| unanswered(format!("its reply is no reply: {error}")))?;
    match (reply.error, reply.result) {
        (Some(error), _) => {
            let data = error.data.map(|data| data.get().to_owned()).filter(|data| data.starts_with('{'));
            Err(UpstreamError::Refused { code: error.code, message: error.message, data })
        }
        (None, Some(result)) if result.get().starts_with('{') => Ok(result.get().to_owned()),
        (None, _) => Err(unanswered("its reply has no result".to_owned())),
    }
}

/// Whether the runtime failed to parse the request, as it does after reading half a line. Then it did nothing, and the
/// caller may try again.
pub fn was_misread(failure: &UpstreamError) -> bool {
    matches!(failure, UpstreamError::Refused { code, .. } if *code == super::code::PARSE_FAILED)
}

fn line(mut frame: Vec<u8>) -> Vec<u8> {
    frame.push(b'\n');
    frame
}

#[cfg(test)]
mod tests {
    use parlor_vocab::UpstreamCall;

    use super::*;

    #[test]
    fn arguments_and_results_are_passed_on_unchanged() {
        let arguments = r#"{"width": 1920.0,"shots":[1e3]}"#.to_owned();
        let job = RubyJob::Upstream(UpstreamCall { tool: "take_screenshot", arguments, paths: Vec::new() });
        let line = String::from_utf8(call(&job).unwrap()).unwrap();
        assert!(line.contains(r#""arguments":{"width": 1920.0,"shots":[1e3]}"#), "{line}");
        assert_eq!(
            reply(br#"{"jsonrpc":"2.0","result":{"area": 1.50},"id":1}"#).unwrap(),
            r#"{"area": 1.50}"#
        );
    }

    #[test]
    fn a_console_gets_eval_requests_and_a_token_if_there_is_one() {
        let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
        assert!(!text(console_hello(None, 1)).contains("token"));
        assert!(text(console_hello(Some("theirs"), 1)).contains(r#""token":"theirs""#));
        let job = RubyJob::ConsoleLine { session: "s1".to_owned(), number: 1, code: "x".to_owned() };
        let line = text(call(&job).unwrap());
        assert!(line.contains(r#""method":"eval","params":{"code":"x"}"#), "{line}");
    }

    #[test]
    fn a_line_above_the_limit_is_not_sent() {
        let around = call(&RubyJob::Snippet { code: String::new() }).unwrap().len();
        let code = |size: usize| RubyJob::Snippet { code: "x".repeat(size) };
        assert!(call(&code(MAX_REQUEST_BYTES - around)).is_some());
        assert!(call(&code(MAX_REQUEST_BYTES - around + 1)).is_none());
    }

    #[test]
    fn an_invalid_reply_is_an_unanswered_call() {
        for line in ["", "{}", "[]", r#"{"result":null}"#, r#"{"result":5}"#] {
            assert!(matches!(reply(line.as_bytes()), Err(UpstreamError::Unanswered { .. })), "{line}");
        }
        let refused = reply(br#"{"error":{"code":-32700,"message":"Parse error"},"id":null}"#).unwrap_err();
        assert!(was_misread(&refused));
    }
}
