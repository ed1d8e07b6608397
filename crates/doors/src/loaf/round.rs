//! The tools of a turn, round by round.
//!
//! Clients match what came of a tool with the call that came first, so calls are told strictly one after
//! another, also where tools work side by side: what is done too early waits here. A round is over when the
//! agent goes on to something else.

use std::collections::VecDeque;

use parlor_vocab::{Failure, FailureCode, ToolCallId};
use serde_json::{Map, Value, json};

use super::code;
use super::turn::Scene;

/// The tools of a turn.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The number of the round that is open, or was last.
    number: usize,
    is_open: bool,
    /// The calls whose end was not told yet, in their order.
    calls: VecDeque<Call>,
    /// What came of those that were told.
    done: Vec<Done>,
}

#[derive(Debug)]
struct Call {
    id: ToolCallId,
    tool: String,
    input: Value,
    is_told: bool,
    result: Option<(Result<String, Failure>, u64)>,
}

#[derive(Debug)]
struct Done {
    call: String,
    executed: Value,
    is_ok: bool,
}

impl Rounds {
    /// A tool is called.
    pub(super) fn called(&mut self, scene: &mut Scene<'_>, id: &ToolCallId, tool: &str, input: &str) {
        if !self.is_open {
            self.is_open = true;
            self.number += 1;
        }
        let input = serde_json::from_str(input).ok().filter(Value::is_object);
        self.calls.push_back(Call {
            id: id.clone(),
            tool: tool.to_owned(),
            input: input.unwrap_or_else(|| Value::Object(Map::new())),
            is_told: false,
            result: None,
        });
        self.tell(scene);
    }

    /// A tool is done.
    pub(super) fn returned(
        &mut self,
        scene: &mut Scene<'_>,
        id: &ToolCallId,
        result: Result<String, Failure>,
        duration_ms: u64,
    ) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id) {
            call.result = Some((result, duration_ms));
        }
        self.tell(scene);
    }

    /// Tells what can be told in order.
    fn tell(&mut self, scene: &mut Scene<'_>) {
        while let Some(first) = self.calls.front_mut() {
            if !first.is_told {
                first.is_told = true;
                tell_started(scene, self.number, first);
            }
            let Some((result, duration_ms)) = first.result.take() else { return };
            let is_ok = result.is_ok();
            let executed = executed(first, result);
            tell_completed(scene, self.number, first, &executed, duration_ms);
            self.done.push(Done { call: first.id.to_string(), executed, is_ok });
            self.calls.pop_front();
        }
    }

    /// The agent goes on to something else: the round is over, if all its tools are.
    pub(super) fn close(&mut self, scene: &mut Scene<'_>) {
        if !self.is_open || !self.calls.is_empty() {
            return;
        }
        self.is_open = false;
        let done = std::mem::take(&mut self.done);
        let executed: Vec<&Value> = done.iter().map(|done| &done.executed).collect();
        let data = json!({"toolRound": self.number, "executed": executed});
        let mut payload = scene.payload(json!({"data": data}));
        if scene.out.extensions {
            payload["results"] = done
                .iter()
                .map(|Done { call, executed, is_ok }| {
                    json!({"tool_call_id": call, "tool_name": executed["name"], "ok": is_ok,
                           "output": executed["result"]})
                })
                .collect();
        }
        scene.out.event("session.tool.results", &payload);
        scene.debug("tool_results", || data);
        // One for each call, and one more for each that failed.
        let failed = done.iter().filter(|done| !done.is_ok).count();
        (0..done.len() + failed).for_each(|_| scene.estimate());
    }
}

fn tell_started(scene: &mut Scene<'_>, round: usize, call: &Call) {
    let told = json!({"name": call.tool, "input": call.input, "providerToolName": call.tool, "callId": call.id.as_str()});
    let data = json!({"toolRound": round, "call": told});
    let mut payload = scene.payload(json!({"data": data}));
    if scene.out.extensions {
        payload["tool_call_id"] = Value::from(call.id.as_str());
        payload["tool_name"] = Value::from(call.tool.as_str());
        payload["tool_input"] = call.input.clone();
    }
    scene.out.event("session.tool.call.started", &payload);
    scene.debug("tool_call_started", || data);
    scene.estimate();
}

fn tell_completed(scene: &mut Scene<'_>, round: usize, call: &Call, executed: &Value, duration_ms: u64) {
    let data = json!({"toolRound": round, "executed": executed});
    let mut payload = scene.payload(json!({"data": data}));
    if scene.out.extensions {
        payload["tool_call_id"] = Value::from(call.id.as_str());
        payload["tool_name"] = Value::from(call.tool.as_str());
        payload["ok"] = executed["ok"].clone();
        payload["duration_ms"] = Value::from(duration_ms);
    }
    scene.out.event("session.tool.call.completed", &payload);
    scene.debug("tool_call_completed", || data);
}

/// What came of a call.
fn executed(call: &Call, result: Result<String, Failure>) -> Value {
    match result {
        Ok(output) => json!({"name": call.tool, "ok": true, "input": call.input, "result": output}),
        Err(failure) => {
            let status = status(&failure);
            let mut about = json!({"callId": call.id.as_str(), "tool": call.tool, "status": status});
            let error = match (&failure.code, status) {
                (FailureCode::Cancelled, _) => {
                    about["aborted"] = Value::Bool(true);
                    code::TOOL_ABORTED.to_owned()
                }
                (_, "not_found") => code::unknown_tool(&call.tool),
                (_, "invalid_input") => {
                    about["message"] = Value::from(failure.message.as_str());
                    failure.message
                }
                _ => failure.message,
            };
            json!({"name": call.tool, "ok": false, "input": call.input, "result": about, "error": error})
        }
    }
}

fn status(failure: &Failure) -> &'static str {
    match failure.code {
        FailureCode::UnknownTool => "not_found",
        FailureCode::InvalidInput => "invalid_input",
        _ => "error",
    }
}
