//! One turn: makes frames of the events of its run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use parlor_vocab::{
    RunEnding, RunEvent, RunId, SessionCommand, SessionEvent, SessionReply, SessionUpdate, StepEvent,
    StepKind, StreamKind, SubagentEvent, ToolCallId, ToolEvent, Usage,
};
use serde_json::{Map, Value};

use super::wire::{AssistantEvent, RpcEvent, TurnUsage};
use super::{LATE_FAILURE, PREVIEW_CHARS, code};
use crate::tool_details::tool_details_json;

/// A turn that is running.
#[derive(Debug)]
pub(super) struct Turn {
    /// The id of the prompt.
    pub(super) id: String,
    /// The key of the prompt's input, by which its run is recognized among those of other clients.
    key: String,
    /// When the prompt arrived.
    started: Instant,
    /// The run of the turn, once it has started.
    run: Option<RunId>,
    /// The run that the session will start for the prompt, after those of other clients.
    queued: Option<RunId>,
    totals: TurnTotals,
    /// The running subagents, by their runs.
    subagents: BTreeMap<RunId, Subagent>,
    /// The tool calls whose inputs the model is still writing.
    open_inputs: BTreeSet<ToolCallId>,
    /// The ids of the `abort` commands for this turn.
    pub(super) aborts: Vec<String>,
}

/// The usage of a turn, and the model that it names.
#[derive(Debug, Default)]
pub(super) struct TurnTotals {
    usage: Usage,
    /// The first model that reported usage; until then the model or agent of the run.
    model: Option<String>,
    has_usage: bool,
}

#[derive(Clone, Debug)]
struct Subagent {
    number: u64,
    name: String,
    started: Instant,
}

/// How a turn ended.
#[derive(Debug, PartialEq)]
pub(super) enum TurnEnd {
    Done,
    Cancelled,
    Failed(String),
}

impl Turn {
    pub(super) fn new(id: String, key: String, started: Instant) -> Self {
        Self {
            id,
            key,
            started,
            run: None,
            queued: None,
            totals: TurnTotals::default(),
            subagents: BTreeMap::new(),
            open_inputs: BTreeSet::new(),
            aborts: Vec::new(),
        }
    }

    /// Handles an update of the session: adds its frames, and returns the end of the turn once it has ended.
    /// `subagent_counter` counts the subagents of the connection.
    pub(super) fn on_update(
        &mut self,
        now: Instant,
        update: &SessionUpdate,
        subagent_counter: &mut u64,
        frames: &mut Vec<RpcEvent>,
    ) -> Option<TurnEnd> {
        match update {
            SessionUpdate::Delta { run, stream, text } => {
                self.on_delta(run, stream, text, frames);
                None
            }
            SessionUpdate::Entry(entry) => match &entry.event {
                SessionEvent::Run { run, event, .. } => {
                    self.on_event(now, run, event, subagent_counter, frames)
                }
                // The reply to the prompt may come later, even after another client has emptied the queue.
                SessionEvent::Queued(queued) if queued.input.key.as_deref() == Some(&self.key) => {
                    self.queued = Some(queued.run.clone());
                    None
                }
                // Another client has emptied the queue, or the parent has aborted the prompt.
                SessionEvent::Unqueued { runs }
                    if self.queued.as_ref().is_some_and(|queued| runs.contains(queued)) =>
                {
                    Some(TurnEnd::Cancelled)
                }
                SessionEvent::Created(_)
                | SessionEvent::Renamed { .. }
                | SessionEvent::AgentChosen(_)
                | SessionEvent::ModeChosen { .. }
                | SessionEvent::Queued(_)
                | SessionEvent::Unqueued { .. }
                | SessionEvent::Cleared
                | SessionEvent::Compacted { .. }
                | SessionEvent::MessageAdded(_) => None,
            },
        }
    }

    /// The session has accepted the prompt.
    pub(super) fn on_accepted(&mut self, reply: SessionReply) {
        match reply {
            SessionReply::Started(run) => drop(self.run.get_or_insert(run)),
            SessionReply::Queued { run, .. } => self.queued = Some(run),
            SessionReply::Steered(_)
            | SessionReply::Stopping(_)
            | SessionReply::Unqueued(_)
            | SessionReply::Compacted(_)
            | SessionReply::Done => {}
        }
    }

    /// The command that ends the turn. It names the run, because those of other clients may come before it.
    pub(super) fn stop_command(&self) -> SessionCommand {
        match (&self.run, &self.queued) {
            (None, Some(queued)) => SessionCommand::Unqueue(queued.clone()),
            (run, _) => SessionCommand::Stop { run: run.clone(), reason: None },
        }
    }

    /// The command for a turn that was not in the queue any more when it should be removed from it.
    pub(super) fn stop_command_after_queue(&self) -> SessionCommand {
        SessionCommand::Stop { run: self.run.clone().or_else(|| self.queued.clone()), reason: None }
    }

    fn on_delta(&mut self, run: &RunId, stream: &StreamKind, text: &str, frames: &mut Vec<RpcEvent>) {
        // The text of a subagent is not sent; its result goes to the agent of the turn.
        if self.run.as_ref() != Some(run) {
            return;
        }
        match stream {
            StreamKind::Message(_) => frames.push(text_delta(text)),
            StreamKind::Reasoning(_) => {
                let delta = text.to_owned();
                frames.push(message_update(AssistantEvent::ThinkingDelta { delta }));
            }
            StreamKind::ToolInput { call, tool } => {
                if self.open_inputs.insert(call.clone()) {
                    frames.push(tool_start(call, tool));
                }
                frames.push(tool_input_delta(call, text));
            }
            // The protocol has no deltas of tool output.
            StreamKind::ToolOutput(_) => {}
        }
    }

    /// Closes the calls whose inputs were not completed: the agent never makes them.
    fn close_open_inputs(&mut self, frames: &mut Vec<RpcEvent>) {
        for call in std::mem::take(&mut self.open_inputs) {
            frames.push(tool_input(&call, Value::Object(Map::new())));
            frames.push(tool_result(&call, code::CALL_CUT_OFF, None));
        }
    }

    fn on_event(
        &mut self,
        now: Instant,
        run: &RunId,
        event: &RunEvent,
        subagent_counter: &mut u64,
        frames: &mut Vec<RpcEvent>,
    ) -> Option<TurnEnd> {
        if let RunEvent::Started { parent: None, agent, model, input, .. } = event
            && (self.run.as_ref() == Some(run) || input.key.as_deref() == Some(&self.key))
        {
            self.run.get_or_insert_with(|| run.clone());
            self.totals.set_model(model.clone().unwrap_or_else(|| agent.to_string()));
            // The protocol has no frame for notices; parents show thoughts apart from the answer.
            if let Some(notice) = event.missing_agent_notice() {
                let delta = format!("{notice}\n");
                frames.push(message_update(AssistantEvent::ThinkingDelta { delta }));
            }
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
                    if !self.open_inputs.remove(call) {
                        frames.extend([tool_start(call, tool), tool_input_delta(call, input)]);
                    }
                    let input_json =
                        serde_json::from_str(input).unwrap_or_else(|_| Value::from(input.as_str()));
                    frames.push(tool_input(call, input_json));
                }
            },
            RunEvent::Tool(ToolEvent::Completed { call, output, details, .. }) if is_own => {
                frames.push(tool_result(call, output, details.as_deref().map(tool_details_json)));
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) if is_own => {
                frames.push(tool_result(call, &failure.message, None));
            }
            RunEvent::Subagent(SubagentEvent::Started { child, name, task }) => {
                *subagent_counter += 1;
                let subagent = Subagent { number: *subagent_counter, name: name.clone(), started: now };
                self.subagents.insert(child.clone(), subagent);
                frames.push(RpcEvent::SubagentStart {
                    subagent_id: *subagent_counter,
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
                        Ok(text) => success_preview(text),
                        Err(failure) => preview(&format!("error: {}", failure.message)),
                    };
                    frames.push(subagent.done(result_preview, *duration_ms as f64 / 1000.0));
                }
            }
            RunEvent::UsageAdded { usage, model } => self.totals.add(*usage, model.as_ref()),
            RunEvent::Step(StepEvent::Started { kind: StepKind::Planning | StepKind::Reasoning, .. })
                if is_own =>
            {
                self.close_open_inputs(frames);
            }
            RunEvent::Ended { ending, .. } if is_own => return Some(turn_end(ending)),
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Tool(
                ToolEvent::Progressed { .. } | ToolEvent::Completed { .. } | ToolEvent::Failed { .. },
            )
            | RunEvent::Question(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Ended { .. } => {}
        }
        None
    }

    /// Adds the last frames of the turn, with its response and the answers to its `abort` commands.
    pub(super) fn finish(mut self, now: Instant, end: TurnEnd, frames: &mut Vec<RpcEvent>) {
        self.close_open_inputs(frames);
        for subagent in self.subagents.into_values() {
            let seconds = now.saturating_duration_since(subagent.started).as_secs_f64();
            frames.push(subagent.done(code::SUBAGENT_CUT_OFF.to_owned(), seconds));
        }
        let is_late = now.saturating_duration_since(self.started) > LATE_FAILURE;
        if let TurnEnd::Failed(message) = &end
            && !is_late
        {
            frames.push(RpcEvent::Error { id: Some(self.id.clone()), message: message.clone() });
        }
        // A prompt that was taken out of the queue never became a turn.
        if self.run.is_some() {
            frames.push(RpcEvent::AgentEnd { usage: self.totals.into_wire() });
        }
        let body = match end {
            TurnEnd::Done => vec![("ok", Value::Bool(true))],
            TurnEnd::Cancelled => vec![("ok", Value::Bool(true)), ("cancelled", Value::Bool(true))],
            TurnEnd::Failed(message) => vec![("ok", Value::Bool(false)), ("error", Value::String(message))],
        };
        frames.push(response(self.id, "prompt", body));
        let aborted = |id| response(id, "abort", vec![("ok", Value::Bool(true))]);
        frames.extend(self.aborts.into_iter().map(aborted));
    }
}

impl TurnTotals {
    /// Sets the model or agent of the run, unless a model has reported usage.
    pub(super) fn set_model(&mut self, model: String) {
        self.model.get_or_insert(model);
    }

    pub(super) fn add(&mut self, usage: Usage, model: Option<&String>) {
        self.usage = self.usage.plus(usage);
        if let (false, Some(model)) = (self.has_usage, model) {
            self.model = Some(model.clone());
            self.has_usage = true;
        }
    }

    pub(super) fn into_wire(self) -> TurnUsage {
        let Self { usage, model, .. } = self;
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

fn turn_end(ending: &RunEnding) -> TurnEnd {
    match ending {
        RunEnding::Completed { .. } => TurnEnd::Done,
        RunEnding::Failed(failure) => TurnEnd::Failed(failure.message.clone()),
        RunEnding::Stopped { .. } => TurnEnd::Cancelled,
    }
}

fn message_update(event: AssistantEvent) -> RpcEvent {
    RpcEvent::MessageUpdate { event }
}

fn tool_start(call: &ToolCallId, tool: &str) -> RpcEvent {
    message_update(AssistantEvent::ToolcallStart { tool_id: call.to_string(), tool_name: tool.to_owned() })
}

fn tool_input_delta(call: &ToolCallId, delta: &str) -> RpcEvent {
    message_update(AssistantEvent::ToolcallInputDelta { tool_id: call.to_string(), delta: delta.to_owned() })
}

fn tool_input(call: &ToolCallId, input: Value) -> RpcEvent {
    message_update(AssistantEvent::ToolcallInput { tool_id: call.to_string(), input })
}

fn tool_result(call: &ToolCallId, result: &str, details: Option<Value>) -> RpcEvent {
    let (tool_id, result) = (call.to_string(), result.to_owned());
    message_update(AssistantEvent::ToolcallResult { tool_id, result, details })
}

pub(super) fn text_delta(text: &str) -> RpcEvent {
    message_update(AssistantEvent::TextDelta { delta: text.to_owned() })
}

fn preview(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS).collect()
}

/// The preview of a successful result. It must not begin with `error`, which means a failure.
fn success_preview(text: &str) -> String {
    let looks_failed = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if looks_failed { preview(&format!("ok: {text}")) } else { preview(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preview_of_a_success_never_begins_with_error() {
        assert_eq!(success_preview("Errors were found"), "ok: Errors were found");
        assert_eq!(success_preview("fine"), "fine");
        assert_eq!(success_preview("er"), "er");
        assert_eq!(success_preview("\u{e4}\u{e4}\u{e4}"), "\u{e4}\u{e4}\u{e4}");
        assert_eq!(preview(&"\u{e4}".repeat(200)).chars().count(), PREVIEW_CHARS);
    }
}
