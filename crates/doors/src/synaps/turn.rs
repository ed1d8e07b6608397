//! One turn: what happens in its run, as frames.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use parlor_vocab::{
    RunEnding, RunEvent, RunId, SessionEvent, SessionUpdate, StepEvent, StepKind, StreamKind, SubagentEvent,
    ToolCallId, ToolEvent, Usage,
};
use serde_json::{Map, Value};

use super::protocol::{AssistantEvent, RpcEvent, TurnUsage};
use super::{LATE_FAILURE, PREVIEW_CHARS, code};

/// A turn that is running.
#[derive(Debug)]
pub(super) struct Turn {
    /// The prompt's id.
    pub(super) id: String,
    /// When the prompt came.
    began: Instant,
    /// The run that answers, once it has started.
    run: Option<RunId>,
    usage: Usage,
    /// The first model that consumed something, else what the run was started with.
    model: Option<String>,
    has_consumed: bool,
    /// The subagents that work for it, by run.
    subagents: BTreeMap<RunId, Subagent>,
    /// The calls whose inputs are being written.
    writing: BTreeSet<ToolCallId>,
    /// The ids of those who asked to stop it.
    pub(super) aborts: Vec<String>,
}

#[derive(Clone, Debug)]
struct Subagent {
    number: u64,
    name: String,
    began: Instant,
}

/// How a turn ended.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    Done,
    Cancelled,
    Failed(String),
}

impl Turn {
    pub(super) fn new(id: String, began: Instant) -> Self {
        Self {
            id,
            began,
            run: None,
            usage: Usage::default(),
            model: None,
            has_consumed: false,
            subagents: BTreeMap::new(),
            writing: BTreeSet::new(),
            aborts: Vec::new(),
        }
    }

    /// Takes in what was seen in the session. `numbers` counts the subagents of the connection.
    pub(super) fn see(
        &mut self,
        now: Instant,
        seen: &SessionUpdate,
        numbers: &mut u64,
        frames: &mut Vec<RpcEvent>,
    ) -> Option<End> {
        match seen {
            SessionUpdate::Delta { run, subject, text } => {
                self.on_delta(run, subject, text, frames);
                None
            }
            SessionUpdate::Entry(entry) => match &entry.event {
                SessionEvent::Run { run, event, .. } => self.on_event(now, run, event, numbers, frames),
                SessionEvent::Created(_)
                | SessionEvent::Renamed { .. }
                | SessionEvent::Chosen(_)
                | SessionEvent::Queued(_)
                | SessionEvent::Unqueued { .. }
                | SessionEvent::Cleared
                | SessionEvent::Compacted { .. }
                | SessionEvent::MessageAdded(_) => None,
            },
        }
    }

    fn on_delta(&mut self, run: &RunId, subject: &StreamKind, text: &str, frames: &mut Vec<RpcEvent>) {
        // What a subagent says is for the turn, which says what it makes of it.
        if self.run.as_ref() != Some(run) {
            return;
        }
        let delta = text.to_owned();
        match subject {
            StreamKind::Message(_) => frames.push(update(AssistantEvent::TextDelta { delta })),
            StreamKind::Thought(_) => frames.push(update(AssistantEvent::ThinkingDelta { delta })),
            StreamKind::Input { call, tool } => {
                if self.writing.insert(call.clone()) {
                    frames.push(tool_start(call, tool));
                }
                frames.push(tool_input_delta(call, text));
            }
            // The dialect has the whole result only.
            StreamKind::Tool(_) => {}
        }
    }

    /// The calls whose inputs were being written are never made.
    fn end_writing(&mut self, frames: &mut Vec<RpcEvent>) {
        for call in std::mem::take(&mut self.writing) {
            frames.push(tool_input(&call, Value::Object(Map::new())));
            frames.push(tool_result(&call, code::NOT_CALLED));
        }
    }

    fn on_event(
        &mut self,
        now: Instant,
        run: &RunId,
        event: &RunEvent,
        numbers: &mut u64,
        frames: &mut Vec<RpcEvent>,
    ) -> Option<End> {
        if let RunEvent::Started { parent: None, agent, model, .. } = event {
            self.run.get_or_insert_with(|| run.clone());
            self.model.get_or_insert_with(|| model.clone().unwrap_or_else(|| agent.to_string()));
        }
        let is_own = self.run.as_ref() == Some(run);
        let subagent = self.subagents.get(run).cloned();
        if !is_own && subagent.is_none() {
            return None;
        }
        match event {
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => match subagent {
                Some(Subagent { number, name, .. }) => {
                    let status = format!("using {tool}");
                    frames.push(RpcEvent::SubagentUpdate { subagent_id: number, agent_name: name, status });
                }
                None => {
                    if !self.writing.remove(call) {
                        frames.extend([tool_start(call, tool), tool_input_delta(call, input)]);
                    }
                    let whole = serde_json::from_str(input).unwrap_or_else(|_| Value::from(input.as_str()));
                    frames.push(tool_input(call, whole));
                }
            },
            RunEvent::Tool(ToolEvent::Completed { call, output, .. }) if is_own => {
                frames.push(tool_result(call, output));
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) if is_own => {
                frames.push(tool_result(call, &failure.message));
            }
            RunEvent::Subagent(SubagentEvent::Started { child, name, task }) => {
                *numbers += 1;
                let subagent = Subagent { number: *numbers, name: name.clone(), began: now };
                self.subagents.insert(child.clone(), subagent);
                frames.push(RpcEvent::SubagentStart {
                    subagent_id: *numbers,
                    agent_name: name.clone(),
                    task_preview: preview(task),
                });
            }
            RunEvent::Subagent(SubagentEvent::Updated { child, status }) => {
                if let Some(Subagent { number, name, .. }) = self.subagents.get(child).cloned() {
                    let status = status.clone();
                    frames.push(RpcEvent::SubagentUpdate { subagent_id: number, agent_name: name, status });
                }
            }
            RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms }) => {
                if let Some(subagent) = self.subagents.remove(child) {
                    let result_preview = match result {
                        Ok(text) => good_preview(text),
                        Err(failure) => preview(&format!("error: {}", failure.message)),
                    };
                    frames.push(subagent.done(result_preview, *duration_ms as f64 / 1000.0));
                }
            }
            RunEvent::Consumed { usage, model } => {
                self.usage = self.usage.plus(*usage);
                if let (false, Some(model)) = (self.has_consumed, model) {
                    self.model = Some(model.clone());
                    self.has_consumed = true;
                }
            }
            RunEvent::Step(StepEvent::Started { kind: StepKind::Planning | StepKind::Reasoning, .. })
                if is_own =>
            {
                self.end_writing(frames);
            }
            RunEvent::Ended { ending, .. } if is_own => return Some(end(ending)),
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Tool(
                ToolEvent::Progressed { .. } | ToolEvent::Completed { .. } | ToolEvent::Failed { .. },
            )
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Ended { .. } => {}
        }
        None
    }

    /// The last frames of the turn, its response and the answers to those who stopped it included.
    pub(super) fn finish(mut self, now: Instant, end: End, frames: &mut Vec<RpcEvent>) {
        self.end_writing(frames);
        for subagent in self.subagents.into_values() {
            let seconds = now.saturating_duration_since(subagent.began).as_secs_f64();
            frames.push(subagent.done(code::CUT_OFF.to_owned(), seconds));
        }
        let is_late = now.saturating_duration_since(self.began) > LATE_FAILURE;
        if let End::Failed(message) = &end
            && !is_late
        {
            frames.push(RpcEvent::Error { id: Some(self.id.clone()), message: message.clone() });
        }
        frames.push(RpcEvent::AgentEnd { usage: turn_usage(self.usage, self.model) });
        let body = match end {
            End::Done => vec![("ok", Value::Bool(true))],
            End::Cancelled => vec![("ok", Value::Bool(true)), ("cancelled", Value::Bool(true))],
            End::Failed(message) => vec![("ok", Value::Bool(false)), ("error", Value::String(message))],
        };
        frames.push(response(self.id, "prompt", body));
        let aborted = |id| response(id, "abort", vec![("ok", Value::Bool(true))]);
        frames.extend(self.aborts.into_iter().map(aborted));
    }
}

impl Subagent {
    fn done(self, result_preview: String, duration_secs: f64) -> RpcEvent {
        let (subagent_id, agent_name) = (self.number, self.name);
        RpcEvent::SubagentDone { subagent_id, agent_name, result_preview, duration_secs }
    }
}

/// The answer to a command.
pub(super) fn response(id: String, command: &str, body: Vec<(&str, Value)>) -> RpcEvent {
    let body = body.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    RpcEvent::Response { id, command: command.to_owned(), body }
}

fn end(ending: &RunEnding) -> End {
    match ending {
        RunEnding::Completed { .. } => End::Done,
        RunEnding::Failed(failure) => End::Failed(failure.message.clone()),
        RunEnding::Stopped { .. } => End::Cancelled,
    }
}

fn update(event: AssistantEvent) -> RpcEvent {
    RpcEvent::MessageUpdate { event }
}

fn tool_start(call: &ToolCallId, tool: &str) -> RpcEvent {
    update(AssistantEvent::ToolcallStart { tool_id: call.to_string(), tool_name: tool.to_owned() })
}

fn tool_input_delta(call: &ToolCallId, delta: &str) -> RpcEvent {
    update(AssistantEvent::ToolcallInputDelta { tool_id: call.to_string(), delta: delta.to_owned() })
}

fn tool_input(call: &ToolCallId, input: Value) -> RpcEvent {
    update(AssistantEvent::ToolcallInput { tool_id: call.to_string(), input })
}

fn tool_result(call: &ToolCallId, result: &str) -> RpcEvent {
    update(AssistantEvent::ToolcallResult { tool_id: call.to_string(), result: result.to_owned() })
}

fn turn_usage(usage: Usage, model: Option<String>) -> TurnUsage {
    TurnUsage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_input_tokens: usage.cache_read_tokens,
        cache_creation_input_tokens: usage.cache_write_tokens,
        cache_creation_5m: None,
        cache_creation_1h: None,
        model,
    }
}

fn preview(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS).collect()
}

/// The preview of a good result, which must not look like a failed one.
fn good_preview(text: &str) -> String {
    let looks_failed = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if looks_failed { preview(&format!("ok: {text}")) } else { preview(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_result_never_looks_like_a_failed_one() {
        assert_eq!(good_preview("Errors were found"), "ok: Errors were found");
        assert_eq!(good_preview("fine"), "fine");
        assert_eq!(good_preview("er"), "er");
        assert_eq!(good_preview("\u{e4}\u{e4}\u{e4}"), "\u{e4}\u{e4}\u{e4}");
        assert_eq!(preview(&"\u{e4}".repeat(200)).chars().count(), PREVIEW_CHARS);
    }
}
