//! One turn: makes client events of the events of its run.

use parlor_vocab::{
    QuestionEvent, RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate, StepEvent, StepId,
    StepKind, StreamKind, ToolEvent, UserInput,
};
use serde_json::{Value, json};

use super::chat::{Chat, Kind, ModelMessage, READY};
use super::code;
use super::image::{Image, ImageInput};
use super::machine::Outgoing;
use super::pending::ReplyTo;
use super::session_events::is_unqueued;
use super::state::State;
use super::text::{trim, units};
use super::tool_rounds::Rounds;
use crate::question::{question_json, settled_json};
use crate::tool_details::tool_details_json;

/// A running turn, or one that is being prepared.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: String,
    /// The request that waits to be answered when the turn is accepted.
    pub(super) reply_to: Option<ReplyTo>,
    /// The text of the prompt.
    pub(super) text: String,
    pub(super) image_inputs: Vec<ImageInput>,
    pub(super) images: Vec<Image>,
    /// The engine's session of the turn, and whether it is created for this turn.
    pub(super) session: Option<(SessionId, bool)>,
    /// The run of the turn, once it has started.
    pub(super) run: Option<RunId>,
    /// The run that the session will start for the prompt, after those of other clients.
    pub(super) queued: Option<RunId>,
    /// Whether another client of the session began the turn.
    pub(super) is_of_other_client: bool,
    /// The provider at the start of the turn.
    provider: String,
    /// The messages of this turn that are not in the session's history yet.
    pub(super) new_messages: Vec<ModelMessage>,
    /// The text of the agent's answer since the last assistant message.
    answer: String,
    /// The length, in UTF-16 units, of the assistant messages that this turn has sent.
    sent_units: usize,
    /// Whether the client is still adding text to the row that it shows last. A tool call ends the row.
    is_row_open: bool,
    /// The reasoning step that is being streamed, and its text so far.
    thought: Option<(StepId, String)>,
    rounds: Rounds,
    /// Steering texts that arrived before the run started.
    pub(super) early_steers: Vec<String>,
    /// The number of steering texts that the engine has, and that have not joined the run yet.
    pub(super) submitted_steers: usize,
    /// Steering texts that have joined the run, and that the agent reads at its next step.
    joined_steers: Vec<String>,
    pub(super) stop_reason: Option<StopReason>,
}

/// Why a turn is stopped.
#[derive(Debug)]
pub(super) enum StopReason {
    /// A client interrupted it.
    User,
    /// A client asked for a summary, which starts when the turn has ended.
    Summary(ReplyTo),
}

/// What a turn needs to send events.
pub(super) struct TurnContext<'a> {
    pub(super) chat: &'a mut Chat,
    pub(super) out: &'a mut Outgoing,
    pub(super) state: &'a State,
    pub(super) turn: &'a str,
    pub(super) new_messages: &'a [ModelMessage],
}

impl TurnContext<'_> {
    /// `more` with the ids of the session and the turn.
    pub(super) fn payload(&self, more: Value) -> Value {
        let mut payload = json!({"session_id": self.chat.id, "turn_id": self.turn});
        if let (Value::Object(payload), Value::Object(more)) = (&mut payload, more) {
            payload.extend(more);
        }
        payload
    }

    pub(super) fn send_estimate(&mut self) {
        self.chat.send_estimate(self.out, self.state, self.new_messages);
    }

    fn send_status(&mut self, label: &str) {
        self.chat.set_status(self.out, label, None);
    }

    fn send_event(&mut self, kind: &str, payload: Value) {
        let payload = self.payload(payload);
        self.out.send_event(kind, &payload);
    }

    /// Sends a `session.debug` event if the client has enabled them.
    pub(super) fn send_debug(&mut self, stage: &str, data: impl FnOnce() -> Value) {
        if self.state.super_debug {
            self.send_event("session.debug", json!({"stage": stage, "data": data()}));
        }
    }
}

impl Turn {
    pub(super) fn new(
        id: String,
        reply_to: Option<ReplyTo>,
        text: String,
        image_inputs: Vec<ImageInput>,
        provider: String,
    ) -> Self {
        Self {
            id,
            reply_to,
            text,
            image_inputs,
            images: Vec::new(),
            session: None,
            run: None,
            queued: None,
            is_of_other_client: false,
            provider,
            new_messages: Vec::new(),
            answer: String::new(),
            sent_units: 0,
            is_row_open: false,
            thought: None,
            rounds: Rounds::default(),
            early_steers: Vec::new(),
            submitted_steers: 0,
            joined_steers: Vec::new(),
            stop_reason: None,
        }
    }

    /// The number of steering texts that the agent has not read yet.
    pub(super) fn waiting_steers(&self) -> usize {
        self.early_steers.len() + self.submitted_steers + self.joined_steers.len()
    }

    /// Whether the agent has written any text.
    pub(super) fn has_answer(&self) -> bool {
        self.sent_units > 0 || !trim(&self.answer).is_empty()
    }

    /// Whether this update removes the turn's prompt from the queue of the session.
    pub(super) fn is_unqueued_by(&self, update: &SessionUpdate) -> bool {
        is_unqueued(self.queued.as_ref(), update)
    }

    /// Answers the request that the turn is accepted, unless that was done before.
    pub(super) fn accept(&mut self, chat: &str, out: &mut Outgoing) {
        if let Some(reply_to) = self.reply_to.take() {
            let result = json!({"session_id": chat, "turn_id": self.id, "accepted": true, "queued": false});
            out.send_result(&reply_to, result);
        }
    }

    /// Sends the first events of the turn when its run has started.
    pub(super) fn on_run_started(&mut self, chat: &mut Chat, out: &mut Outgoing, state: &State) {
        self.accept(&chat.id, out);
        if !chat.history.is_empty() && self.stop_reason.is_none() {
            chat.set_status(out, "compressing context...", Some(&self.id));
        }
        let label = if state.preferences.reasoning == "OFF" { "drafting response..." } else { "thinking..." };
        // A turn that is being stopped has another status.
        if self.stop_reason.is_none() {
            chat.set_status(out, label, Some(&self.id));
        }
        self.new_messages.push(ModelMessage::user(self.text.as_str(), self.images.clone()));
        chat.append(out, Kind::User, &self.text, &self.images);
        let request = state.super_debug.then(|| {
            let messages: Value = chat.history.iter().chain(&self.new_messages).map(ModelMessage::to_json).collect();
            json!({"model": state.preferences.model, "thinking": state.preferences.reasoning, "messages": messages})
        });
        let mut context = self.context(chat, out, state);
        context.send_estimate();
        if let Some(request) = request {
            context.send_debug("request", || request);
        }
    }

    fn context<'a>(&'a self, chat: &'a mut Chat, out: &'a mut Outgoing, state: &'a State) -> TurnContext<'a> {
        TurnContext { chat, out, state, turn: &self.id, new_messages: &self.new_messages }
    }

    /// Handles an update of the session. Returns the ending of the run once it has ended.
    pub(super) fn on_update(
        &mut self,
        chat: &mut Chat,
        out: &mut Outgoing,
        state: &State,
        seen: &SessionUpdate,
    ) -> Option<RunEnding> {
        match seen {
            SessionUpdate::Delta { run, stream, text } => {
                // The text of a subagent is not sent; its result goes to the agent of the turn.
                if self.run.as_ref() == Some(run) && !text.is_empty() {
                    self.on_delta(chat, out, state, stream, text);
                }
                None
            }
            SessionUpdate::Entry(entry) => match &entry.event {
                SessionEvent::Run { run, event, .. } if self.run.as_ref() == Some(run) => {
                    self.on_event(chat, out, state, event)
                }
                SessionEvent::Compacted { summary, .. } => {
                    self.on_compacted(chat, out, state, &summary.text);
                    None
                }
                SessionEvent::Run { .. }
                | SessionEvent::Created(_)
                | SessionEvent::Renamed { .. }
                | SessionEvent::AgentChosen(_)
                | SessionEvent::ModeChosen { .. }
                | SessionEvent::Queued(_)
                | SessionEvent::Unqueued { .. }
                | SessionEvent::Cleared
                | SessionEvent::MessageAdded(_) => None,
            },
        }
    }

    fn on_delta(
        &mut self,
        chat: &mut Chat,
        out: &mut Outgoing,
        state: &State,
        stream: &StreamKind,
        text: &str,
    ) {
        match stream {
            StreamKind::Message(_) => {
                self.close_round(chat, out, state);
                self.answer.push_str(text);
                self.is_row_open = true;
                let mut context = self.context(chat, out, state);
                context.send_status("drafting response...");
                let segments = json!([{"kind": "answer", "text": text}]);
                let chunk = json!({"thoughts": [], "answerText": text, "segments": segments});
                let mut payload = json!({"chunk": chunk});
                if context.out.extensions {
                    payload["text"] = Value::from(text);
                    payload["done"] = Value::Bool(false);
                }
                context.send_event("session.stream.chunk", payload);
            }
            StreamKind::Reasoning(step) => {
                self.close_round(chat, out, state);
                let thought = match &mut self.thought {
                    Some((known, thought)) if known == step => {
                        thought.push_str(text);
                        thought.clone()
                    }
                    other => other.insert((step.clone(), text.to_owned())).1.clone(),
                };
                let mut context = self.context(chat, out, state);
                context.send_status(&format!("thinking: {}", thought_title(text)));
                let segments = json!([{"kind": "thought", "text": text}]);
                let chunk = json!({"thoughts": [thought], "answerText": "", "segments": segments});
                context.send_event("session.stream.chunk", json!({"chunk": chunk}));
            }
            // The protocol has no deltas of tool inputs and outputs.
            StreamKind::ToolOutput(_) | StreamKind::ToolInput { .. } => {}
        }
    }

    fn close_round(&mut self, chat: &mut Chat, out: &mut Outgoing, state: &State) {
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.close(&mut self.context(chat, out, state));
        self.rounds = rounds;
    }

    fn on_event(
        &mut self,
        chat: &mut Chat,
        out: &mut Outgoing,
        state: &State,
        event: &RunEvent,
    ) -> Option<RunEnding> {
        match event {
            RunEvent::Step(StepEvent::Started { kind: StepKind::Planning | StepKind::Reasoning, .. }) => {
                self.close_round(chat, out, state);
                self.apply_steers(chat, out, state);
            }
            RunEvent::Step(StepEvent::Updated { headline, .. }) => {
                self.context(chat, out, state).send_status(headline)
            }
            RunEvent::Steered { input, .. } => self.on_steered(input),
            RunEvent::Step(StepEvent::Reasoned { .. }) => self.thought = None,
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                self.is_row_open = false;
                let mut rounds = std::mem::take(&mut self.rounds);
                rounds.on_call(&mut self.context(chat, out, state), call, tool, input);
                self.rounds = rounds;
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, details, duration_ms }) => {
                let mut rounds = std::mem::take(&mut self.rounds);
                let context = &mut self.context(chat, out, state);
                let details = details.as_deref().map(tool_details_json);
                rounds.on_result(context, call, Ok((output.clone(), details)), *duration_ms);
                self.rounds = rounds;
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => {
                let mut rounds = std::mem::take(&mut self.rounds);
                let context = &mut self.context(chat, out, state);
                rounds.on_result(context, call, Err(failure.clone()), *duration_ms);
                self.rounds = rounds;
            }
            RunEvent::Question(event) => {
                let (kind, payload) = match event {
                    QuestionEvent::Asked(question) => ("session.question.asked", question_json(question)),
                    QuestionEvent::Settled { question, outcome } => {
                        ("session.question.answered", settled_json(question.as_str(), outcome))
                    }
                };
                self.context(chat, out, state).send_event(kind, payload);
            }
            RunEvent::UsageAdded { .. } => self.close_round(chat, out, state),
            RunEvent::Ended { ending, .. } => {
                self.close_round(chat, out, state);
                return Some(ending.clone());
            }
            RunEvent::Started { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(StepEvent::Started { kind: StepKind::Tool, .. })
            | RunEvent::Step(StepEvent::Completed { .. } | StepEvent::Failed { .. })
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. } => {}
        }
        None
    }

    fn on_steered(&mut self, input: &UserInput) {
        self.submitted_steers = self.submitted_steers.saturating_sub(1);
        self.joined_steers.push(input.text.clone());
    }

    /// Shows the steering texts that have joined the run: the agent begins a new step and reads them.
    fn apply_steers(&mut self, chat: &mut Chat, out: &mut Outgoing, state: &State) {
        if self.joined_steers.is_empty() {
            return;
        }
        // Otherwise clients would add the rest of the answer to the row above the user's texts.
        if self.is_row_open {
            let answer = std::mem::take(&mut self.answer);
            self.send_answer(chat, out, answer);
        }
        for text in std::mem::take(&mut self.joined_steers) {
            chat.append(out, Kind::User, &text, &[]);
            self.context(chat, out, state).send_debug("steer_injected", || json!({"text": text}));
            self.new_messages.push(ModelMessage::user(text, Vec::new()));
        }
        chat.set_status(out, "steer applied; continuing...", None);
    }

    /// Sends an assistant message: all text of the turn since the last one.
    fn send_answer(&mut self, chat: &mut Chat, out: &mut Outgoing, text: String) {
        chat.append(out, Kind::Assistant, &text, &[]);
        self.sent_units += units(&text);
        self.is_row_open = false;
        self.new_messages.push(ModelMessage::assistant(text));
    }

    /// The agent has replaced the earlier conversation with a summary.
    fn on_compacted(&mut self, chat: &mut Chat, out: &mut Outgoing, state: &State, summary: &str) {
        chat.set_status(out, "compressing context...", Some(&self.id));
        super::compress::send_agent_summary(chat, out, state, "auto", Some(&self.id), summary);
        self.context(chat, out, state).send_estimate();
    }

    /// Sends the last events of the turn. Returns the request that wants a summary now.
    pub(super) fn finish(
        mut self,
        chat: &mut Chat,
        out: &mut Outgoing,
        state: &State,
        ending: &RunEnding,
    ) -> Option<ReplyTo> {
        let stop_reason = self.stop_reason.take();
        match ending {
            // An interrupted turn is reported as interrupted, even if its run completed at that moment.
            _ if stop_reason.is_some() => self.interrupted(chat, out, state, stop_reason.as_ref()),
            RunEnding::Stopped { .. } => self.interrupted(chat, out, state, None),
            RunEnding::Completed { .. } => self.completed(chat, out, state),
            RunEnding::Failed(failure) => self.failed(chat, out, state, &failure.message),
        }
        chat.set_status(out, READY, None);
        let late_count = self.early_steers.len() + self.joined_steers.len();
        if late_count > 0 {
            chat.append(out, Kind::System, &code::late_steers(late_count), &[]);
        }
        match stop_reason {
            Some(StopReason::Summary(reply_to)) => Some(reply_to),
            Some(StopReason::User) | None => None,
        }
    }

    fn completed(&mut self, chat: &mut Chat, out: &mut Outgoing, state: &State) {
        let answer = std::mem::take(&mut self.answer);
        if !answer.is_empty() {
            self.send_answer(chat, out, answer);
        } else if self.sent_units == 0 {
            self.send_answer(chat, out, code::NO_TEXT.to_owned());
        }
        let length = self.sent_units;
        self.remember(chat);
        let mut context = TurnContext { chat, out, state, turn: &self.id, new_messages: &[] };
        context.send_estimate();
        context.send_debug("response_final", || json!({"answer_length": length}));
        context.send_event("session.completed", json!({"answer_length": length}));
    }

    fn interrupted(
        &mut self,
        chat: &mut Chat,
        out: &mut Outgoing,
        state: &State,
        reason: Option<&StopReason>,
    ) {
        let is_partial = self.has_answer();
        let answer = trim(&self.answer).to_owned();
        let has_rest = !answer.is_empty();
        if has_rest {
            self.send_answer(chat, out, answer);
        }
        self.remember(chat);
        let mut context = TurnContext { chat, out, state, turn: &self.id, new_messages: &[] };
        if has_rest {
            context.send_estimate();
        }
        if !matches!(reason, Some(StopReason::Summary(_))) {
            context.chat.append(context.out, Kind::System, code::interrupted(is_partial), &[]);
        }
        context.send_event("session.interrupted", json!({"partial_output": is_partial}));
    }

    /// The turn failed: its prompt stays among the shown messages, and models do not see it again.
    fn failed(&mut self, chat: &mut Chat, out: &mut Outgoing, state: &State, reason: &str) {
        chat.append(out, Kind::System, &code::inference_error(reason), &[]);
        let mut context = TurnContext { chat, out, state, turn: &self.id, new_messages: &[] };
        context.send_estimate();
        send_turn_error(&mut context, reason);
    }

    /// The turn could not start, for this reason. `line` is the system message that clients show.
    pub(super) fn fail_before_start(
        &self,
        chat: &mut Chat,
        out: &mut Outgoing,
        state: &State,
        reason: &str,
        line: &str,
    ) {
        let is_interrupted = self.stop_reason.is_some();
        match &self.stop_reason {
            Some(StopReason::User) => chat.append(out, Kind::System, code::interrupted(false), &[]),
            Some(StopReason::Summary(_)) => {}
            None => chat.append(out, Kind::System, line, &[]),
        }
        let mut context = TurnContext { chat, out, state, turn: &self.id, new_messages: &[] };
        if is_interrupted {
            context.send_event("session.interrupted", json!({"partial_output": false}));
        } else {
            send_turn_error(&mut context, reason);
        }
        chat.set_status(out, READY, None);
    }

    fn remember(&mut self, chat: &mut Chat) {
        chat.remember(&mut self.new_messages);
        chat.provider = Some(self.provider.clone());
    }
}

fn send_turn_error(context: &mut TurnContext<'_>, reason: &str) {
    let mut payload = json!({"message": reason});
    if context.out.extensions {
        payload["code"] = Value::from("turn_failed");
    }
    context.send_event("session.error", payload);
}

/// A title for a thought: the bold text at its beginning, or else its first line.
fn thought_title(text: &str) -> String {
    let text = trim(text);
    let bold = text.strip_prefix("**").and_then(|rest| rest.split_once("**")).map(|(bold, _)| trim(bold));
    let line = text.lines().next().map(trim);
    let thought_title = bold.filter(|bold| !bold.is_empty()).or(line).filter(|line| !line.is_empty());
    thought_title.unwrap_or("reasoning").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thought_is_titled_by_its_first_words() {
        for (text, expected) in [
            ("**Looking Around** at it", "looking around"),
            ("First line\nsecond", "first line"),
            (" \n ", "reasoning"),
            ("**** x", "**** x"),
            ("**open", "**open"),
        ] {
            assert_eq!(thought_title(text), expected, "{text}");
        }
    }
}
