//! Turns each event of a run into an activity, the event on the wire: all fields of its envelope (`sequence`,
//! `idempotency_key`, …) and its data.

use parlor_vocab::{
    Entry, ErrorScope, Failure, Media, MessageEvent, MessageId, QuestionEvent, RunEnding, RunEvent, RunId,
    StepEvent, StepKind, SubagentEvent, ToolCallId, ToolEvent, Usage, UserInput,
};
use serde_json::{Map, Value, json};

use super::code;
use super::encode::object;
use super::fence::fenced;
use super::preview::{self, truncated};
use super::run::Run;
use super::wire::{Activity, VERSION};
use crate::question::{question_json, sender, settled_json};
use crate::tool_details::tool_details_json;

/// A run event together with what its activity needs.
pub(super) struct ActivityEvent<'a> {
    pub(super) session: &'a str,
    /// The id of the run.
    pub(super) id: &'a RunId,
    pub(super) run: &'a Run,
    /// The number of the event within the run, from 1.
    pub(super) sequence: u64,
    pub(super) event: &'a RunEvent,
    /// The log entry of the event, with its id and its time.
    pub(super) entry: &'a Entry,
    /// Whether the event happened before the connection began.
    pub(super) replay: bool,
    /// Whether the client knows the format `plain`.
    pub(super) plain_text: PlainText,
}

/// How the output of a program is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainText {
    /// To a client with `stream=1`: the text is exactly the deltas that it got before.
    AsPlain,
    /// To any other client, which shows all texts as markdown: in a fenced block.
    AsFencedMarkdown,
}

impl ActivityEvent<'_> {
    /// The activity on the wire.
    pub(super) fn activity(&self) -> Activity {
        let (event_type, mut data) = self.kind_and_data();
        data.insert("agent_id".to_owned(), Value::String(self.run.agent.clone()));
        if let Some(key) = &self.run.refused_key {
            data.insert("input".to_owned(), json!({"key": key}));
        }
        let (trace_id, span_id) = self.run.trace.clone().unzip();
        Activity {
            v: VERSION.to_owned(),
            event_id: self.entry.id.to_string(),
            event_type: event_type.to_owned(),
            timestamp: self.entry.at.rfc3339(),
            sequence: self.sequence,
            session_id: self.session.to_owned(),
            run_id: self.id.to_string(),
            parent_run_id: self.run.parent.as_ref().map(ToString::to_string),
            agent_id: Some(self.run.agent.clone()),
            trace_id,
            span_id,
            idempotency_key: format!("{}_{}", self.id, self.sequence),
            replay: self.replay,
            data,
        }
    }

    /// The `event_type` of the activity.
    pub(super) fn kind(&self) -> &'static str {
        self.kind_and_data().0
    }

    fn kind_and_data(&self) -> (&'static str, Map<String, Value>) {
        let (kind, data) = match self.event {
            RunEvent::Started { input, message, .. } => ("run.started", started(input, message.as_str())),
            RunEvent::Steered { input, message } => (
                "message.received",
                json!({"message_id": message.as_str(), "role": "user", "text": input.text}),
            ),
            RunEvent::Message(MessageEvent::Started { message }) => (
                "message.started",
                json!({"message_id": message.as_str(), "role": "assistant", "channel": "final"}),
            ),
            RunEvent::Message(MessageEvent::Completed { message, text, .. }) => {
                ("message.completed", self.message(message, text))
            }
            RunEvent::Step(StepEvent::Started { step, kind, title }) => (
                "step.started",
                json!({"step_id": step.as_str(), "kind": step_kind(*kind), "title": title, "status": "in_progress"}),
            ),
            RunEvent::Step(StepEvent::Updated { step, headline, percent }) => (
                "step.updated",
                json!({"step_id": step.as_str(), "headline": headline, "progress": progress(*percent)}),
            ),
            RunEvent::Step(StepEvent::Completed { step, summary, duration_ms }) => {
                ("step.completed", step_completed(step.as_str(), summary, *duration_ms))
            }
            RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }) => {
                ("step.failed", step_failed(step.as_str(), failure, *duration_ms))
            }
            RunEvent::Step(StepEvent::Reasoned { step, text }) => {
                ("reasoning.summary", json!({"step_id": step.as_str(), "text": text, "style": "concise"}))
            }
            RunEvent::Tool(_) => self.tool(),
            RunEvent::Question(QuestionEvent::Asked(question)) => ("question.asked", question_json(question)),
            RunEvent::Question(QuestionEvent::Settled { question, outcome }) => {
                ("question.answered", settled_json(question.as_str(), outcome))
            }
            // The protocol has no nested runs, so a subagent's run is a step of its parent run.
            RunEvent::Subagent(SubagentEvent::Started { child, name, task }) => (
                "step.started",
                json!({"step_id": child.as_str(), "kind": "tool", "status": "in_progress",
                       "title": format!("{name}: {}", truncated(task, preview::TITLE_CHARS))}),
            ),
            RunEvent::Subagent(SubagentEvent::Updated { child, status }) => {
                ("step.updated", json!({"step_id": child.as_str(), "headline": status}))
            }
            RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms }) => match result {
                Ok(answer) => {
                    let summary = truncated(answer, preview::RESULT_CHARS);
                    ("step.completed", step_completed(child.as_str(), &summary, *duration_ms))
                }
                Err(failure) => ("step.failed", step_failed(child.as_str(), failure, *duration_ms)),
            },
            RunEvent::ErrorRaised { scope, failure } => ("error.raised", self.error_raised(scope, failure)),
            RunEvent::UsageAdded { usage, model } => ("usage.recorded", consumed(usage, model.as_deref())),
            RunEvent::Ended { ending, duration_ms } => ended(ending, *duration_ms),
        };
        (kind, object(data))
    }

    fn message(&self, id: &MessageId, text: &str) -> Value {
        let route = if self.run.is_agent_explicit { "explicit" } else { "default" };
        // The output of a program is not markdown, even if it looks like it.
        let (text, format) = match (self.run.repeats_tool_output(id, text), self.plain_text) {
            (true, PlainText::AsPlain) => (text.into(), "plain"),
            (true, PlainText::AsFencedMarkdown) => (fenced(text), "markdown"),
            (false, _) => (text.into(), "markdown"),
        };
        let mut data = json!({"message_id": id.as_str(), "text": text, "format": format,
                              "resolved_agent_id": self.run.agent, "route_matched_by": route});
        if let (Some(model), Some(data)) = (&self.run.model, data.as_object_mut()) {
            data.insert("model_used".to_owned(), Value::String(model.clone()));
        }
        data
    }

    fn tool(&self) -> (&'static str, Value) {
        match self.event {
            RunEvent::Tool(ToolEvent::Called { step, call, tool, input }) => (
                "tool.called",
                json!({"step_id": step.as_str(), "tool_call_id": call.as_str(), "tool_name": tool,
                       "display_name": format!("Using {tool}"), "arg_preview": preview::arguments_preview(input),
                       "status": "in_progress"}),
            ),
            RunEvent::Tool(ToolEvent::Progressed { call, message, percent }) => {
                let mut data = self.call_data(call);
                data.insert("message".to_owned(), Value::from(message.as_str()));
                data.insert("progress".to_owned(), progress(*percent));
                ("tool.progress", Value::Object(data))
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, details, duration_ms }) => {
                let mut data = self.call_data(call);
                data.insert("status".to_owned(), Value::from("completed"));
                data.insert("duration_ms".to_owned(), Value::from(*duration_ms));
                data.insert("result_preview".to_owned(), truncated(output, preview::RESULT_CHARS).into());
                if let Some(details) = details {
                    data.insert("details".to_owned(), tool_details_json(details));
                }
                ("tool.completed", Value::Object(data))
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => {
                let mut data = self.call_data(call);
                data.insert("status".to_owned(), Value::from("failed"));
                data.insert("error_code".to_owned(), Value::from(code::TOOL_ERROR));
                data.insert("reason_code".to_owned(), Value::from(failure.code.as_str()));
                data.insert("message".to_owned(), truncated(&failure.message, preview::RESULT_CHARS).into());
                data.insert("retryable".to_owned(), Value::from(failure.retryable));
                data.insert("duration_ms".to_owned(), Value::from(*duration_ms));
                ("tool.failed", Value::Object(data))
            }
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Question(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. }
            | RunEvent::Ended { .. } => unreachable!("the caller passes tool events only"),
        }
    }

    /// The members that the activities of every tool call have.
    fn call_data(&self, id: &ToolCallId) -> Map<String, Value> {
        let mut data = object(json!({"tool_call_id": id.as_str()}));
        if let Some(call) = self.run.call(id) {
            data.insert("step_id".to_owned(), Value::from(call.step.as_str()));
            data.insert("tool_name".to_owned(), Value::from(call.tool.as_str()));
        }
        data
    }

    fn error_raised(&self, scope: &ErrorScope, failure: &Failure) -> Value {
        let mut data = match scope {
            ErrorScope::Run => object(json!({"scope": "run", "code": failure.code.as_str()})),
            ErrorScope::Tool(call) => {
                let mut data = self.call_data(call);
                data.insert("scope".to_owned(), Value::from("tool"));
                data.insert("code".to_owned(), Value::from(code::TOOL_ERROR));
                data.insert("reason_code".to_owned(), Value::from(failure.code.as_str()));
                data
            }
        };
        data.insert("message".to_owned(), Value::from(failure.message.as_str()));
        data.insert("retryable".to_owned(), Value::from(failure.retryable));
        Value::Object(data)
    }
}

fn started(input: &UserInput, message: &str) -> Value {
    let mut data = json!({
        "title": truncated(&input.text, preview::TITLE_CHARS),
        "goal": truncated(&input.text, preview::GOAL_CHARS),
        "input_summary": truncated(&input.text, preview::SUMMARY_CHARS),
        "initiator": "user",
        "mode": "interactive",
        "capabilities": ["tools", "chat"],
        "input": {"message_id": message, "text": input.text, "media": input.media.iter().map(file).collect::<Value>(), "key": input.key},
    });
    if let Some(by) = &input.by {
        data["by"] = sender(by);
    }
    data
}

fn file(media: &Media) -> Value {
    json!({"id": media.id.as_str(), "filename": media.name, "content_type": media.mime, "size": media.size})
}

fn step_kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Planning => "planning",
        StepKind::Reasoning => "reasoning",
        StepKind::Tool => "tool",
    }
}

/// A number from 0 to 1.
fn progress(percent: u8) -> Value {
    Value::from(f64::from(percent.min(100)) / 100.0)
}

fn step_completed(step: &str, summary: &str, duration_ms: u64) -> Value {
    json!({"step_id": step, "summary": summary, "status": "completed",
           "duration_ms": duration_ms, "duration": duration_ms})
}

fn step_failed(step: &str, failure: &Failure, duration_ms: u64) -> Value {
    json!({"step_id": step, "message": failure.message, "status": "failed",
           "error_code": code::TOOL_ERROR, "reason_code": failure.code.as_str(), "duration_ms": duration_ms})
}

fn consumed(usage: &Usage, model: Option<&str>) -> Value {
    json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
           "cache_read_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens,
           "cost_micros": usage.cost_micros, "model": model})
}

fn ended(ending: &RunEnding, duration_ms: u64) -> (&'static str, Value) {
    match ending {
        RunEnding::Completed { message } => (
            "run.completed",
            json!({"status": "completed", "outcome": "success", "duration_ms": duration_ms,
                   "final_message_id": message.as_ref().map_or("", |message| message.as_str())}),
        ),
        RunEnding::Failed(failure) => ("run.failed", failed(failure)),
        RunEnding::Stopped { cause, message } => (
            "run.failed",
            json!({"status": "failed", "error_code": code::RUN_CANCELLED, "message": cause.reason(),
                   "retryable": false, "final_message_id": message.as_str(), "duration_ms": duration_ms}),
        ),
    }
}

fn failed(failure: &Failure) -> Value {
    json!({"status": "failed", "error_code": failure.code.as_str(), "message": failure.message,
           "retryable": failure.retryable})
}
