//! The tool calls of a turn, grouped into rounds, and the `session.tool.*` events that report them.
//!
//! Clients match each result with the oldest open call. So the calls of tools that run concurrently are reported strictly
//! one after another, and a result that arrives early waits here. A round ends when the agent continues with something
//! else.

use std::collections::VecDeque;

use parlor_vocab::{Failure, FailureCode, ToolCallId};
use serde_json::{Map, Value, json};

use super::code;
use super::turn::TurnContext;

/// The tool that runs commands. A command that fails is a result for agents and an error for clients.
const SHELL: &str = "shell";

/// The tool calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The number of the open round, or of the last one.
    number: usize,
    is_open: bool,
    /// The calls whose results were not sent yet, in their order.
    calls: VecDeque<Call>,
    /// The calls of the open round whose results were sent.
    completed: Vec<CompletedCall>,
}

#[derive(Debug)]
struct Call {
    id: ToolCallId,
    tool: String,
    input: Value,
    is_started: bool,
    result: Option<(CallResult, u64)>,
}

/// The output of a call with its details, or why it failed.
pub(super) type CallResult = Result<(String, Option<Value>), Failure>;

#[derive(Debug)]
struct CompletedCall {
    call: String,
    executed: Value,
    is_ok: bool,
}

impl Rounds {
    /// Handles a tool call.
    pub(super) fn on_call(
        &mut self,
        context: &mut TurnContext<'_>,
        id: &ToolCallId,
        tool: &str,
        input: &str,
    ) {
        if !self.is_open {
            self.is_open = true;
            self.number += 1;
        }
        let input = serde_json::from_str(input).ok().filter(Value::is_object);
        self.calls.push_back(Call {
            id: id.clone(),
            tool: tool.to_owned(),
            input: input.unwrap_or_else(|| Value::Object(Map::new())),
            is_started: false,
            result: None,
        });
        self.send_ready(context);
    }

    /// Handles the result of a tool call.
    pub(super) fn on_result(
        &mut self,
        context: &mut TurnContext<'_>,
        id: &ToolCallId,
        result: CallResult,
        duration_ms: u64,
    ) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id) {
            call.result = Some((result, duration_ms));
        }
        self.send_ready(context);
    }

    /// Sends the events that are next in order.
    fn send_ready(&mut self, context: &mut TurnContext<'_>) {
        while let Some(first) = self.calls.front_mut() {
            if !first.is_started {
                first.is_started = true;
                send_call_started(context, self.number, first);
            }
            let Some((result, duration_ms)) = first.result.take() else { return };
            let (result, details) = match result {
                Ok((output, details)) => (Ok(output), details),
                Err(failure) => (Err(failure), None),
            };
            let executed = executed(first, result);
            let is_ok = executed["ok"] == true;
            send_call_completed(context, self.number, first, &executed, details, duration_ms);
            self.completed.push(CompletedCall { call: first.id.to_string(), executed, is_ok });
            self.calls.pop_front();
        }
    }

    /// Ends the open round, if the results of all its calls were sent. The agent continues with something else.
    pub(super) fn close(&mut self, context: &mut TurnContext<'_>) {
        if !self.is_open || !self.calls.is_empty() {
            return;
        }
        self.is_open = false;
        let completed = std::mem::take(&mut self.completed);
        let executed: Vec<&Value> = completed.iter().map(|completed| &completed.executed).collect();
        let data = json!({"toolRound": self.number, "executed": executed});
        let mut payload = context.payload(json!({"data": data}));
        if context.out.extensions {
            payload["results"] = completed
                .iter()
                .map(|CompletedCall { call, executed, is_ok }| {
                    json!({"tool_call_id": call, "tool_name": executed["name"], "ok": is_ok,
                           "output": executed["result"]})
                })
                .collect();
        }
        context.out.send_event("session.tool.results", &payload);
        context.send_debug("tool_results", || data);
        // The protocol has one estimate for each call, and one more for each that failed.
        let failed = completed.iter().filter(|completed| !completed.is_ok).count();
        (0..completed.len() + failed).for_each(|_| context.send_estimate());
    }
}

fn send_call_started(context: &mut TurnContext<'_>, round: usize, call: &Call) {
    let call_json = json!({"name": call.tool, "input": call.input, "providerToolName": call.tool, "callId": call.id.as_str()});
    let data = json!({"toolRound": round, "call": call_json});
    let mut payload = context.payload(json!({"data": data}));
    if context.out.extensions {
        payload["tool_call_id"] = Value::from(call.id.as_str());
        payload["tool_name"] = Value::from(call.tool.as_str());
        payload["tool_input"] = call.input.clone();
    }
    context.out.send_event("session.tool.call.started", &payload);
    context.send_debug("tool_call_started", || data);
    context.send_estimate();
}

fn send_call_completed(
    context: &mut TurnContext<'_>,
    round: usize,
    call: &Call,
    executed: &Value,
    details: Option<Value>,
    duration_ms: u64,
) {
    let data = json!({"toolRound": round, "executed": executed});
    let mut payload = context.payload(json!({"data": data}));
    if context.out.extensions {
        payload["tool_call_id"] = Value::from(call.id.as_str());
        payload["tool_name"] = Value::from(call.tool.as_str());
        payload["ok"] = executed["ok"].clone();
        payload["duration_ms"] = Value::from(duration_ms);
        if let Some(details) = details {
            payload["details"] = details;
        }
    }
    context.out.send_event("session.tool.call.completed", &payload);
    context.send_debug("tool_call_completed", || data);
}

/// The result of a call, as events show it.
fn executed(call: &Call, result: Result<String, Failure>) -> Value {
    match result {
        Ok(output) => match command_error(&call.tool, &output) {
            None => json!({"name": call.tool, "ok": true, "input": call.input, "result": output}),
            Some(error) => {
                json!({"name": call.tool, "ok": false, "input": call.input, "result": output, "error": error})
            }
        },
        Err(failure) => {
            let failure_status = failure_status(&failure);
            let mut details =
                json!({"callId": call.id.as_str(), "tool": call.tool, "status": failure_status});
            let error = match (&failure.code, failure_status) {
                (FailureCode::Cancelled, _) => {
                    details["aborted"] = Value::Bool(true);
                    // The first line says what happened; the others are what the command had written.
                    if let Some((_, output)) = failure.message.split_once('\n') {
                        details["stdout"] = Value::from(output);
                    }
                    code::TOOL_ABORTED.to_owned()
                }
                (_, "not_found") => code::unknown_tool(&call.tool),
                (_, "invalid_input") => {
                    details["message"] = Value::from(failure.message.as_str());
                    failure.message
                }
                _ => failure.message,
            };
            json!({"name": call.tool, "ok": false, "input": call.input, "result": details, "error": error})
        }
    }
}

/// Why the command of the tool `shell` failed, if it did. The last line of the tool's output says how the command ended.
fn command_error(tool: &str, output: &str) -> Option<String> {
    let ending =
        output.lines().next_back().filter(|_| tool == SHELL)?.strip_prefix('[')?.strip_suffix(']')?;
    match ending.strip_prefix("exit code ") {
        Some("0") => None,
        Some(code) => code.parse::<i32>().ok().map(code::command_failed),
        None => ending.starts_with("killed by signal ").then(|| code::COMMAND_KILLED.to_owned()),
    }
}

/// Whether the tool does not exist, its input was invalid, or it failed otherwise.
fn failure_status(failure: &Failure) -> &'static str {
    if failure.code == FailureCode::UnknownTool {
        "not_found"
    } else if failure.code == FailureCode::InvalidInput {
        "invalid_input"
    } else {
        "error"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_of_a_command_tells_how_it_ended() {
        for (output, expected) in [
            ("x\n[exit code 0]", None),
            ("[exit code 1]\n[exit code 0]", None),
            ("x\n[exit code 3]", Some("process failed (exit code 3)")),
            ("x\n[killed by signal 9]", Some("process failed (no exit code)")),
            ("x\n[exit code many]", None),
            ("[exit code 3] x", None),
            ("", None),
        ] {
            assert_eq!(command_error(SHELL, output).as_deref(), expected, "{output}");
        }
        assert_eq!(command_error("read_file", "x\n[exit code 3]"), None);
    }
}
