//! One turn: what happens in its run, as events.

use parlor_vocab::{
    RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate, StepEvent, StepId, StepKind,
    StreamKind, ToolEvent, UserInput,
};
use serde_json::{Value, json};

use super::chat::{Chat, Kind, READY, SaidText};
use super::code;
use super::image::{Image, Wanted};
use super::machine::Out;
use super::pending::To;
use super::round::Rounds;
use super::state::State;
use super::text::{trim, units};

/// A turn at work.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: String,
    /// Who waits to hear that it was accepted.
    pub(super) to: Option<To>,
    /// What is sent.
    pub(super) text: String,
    pub(super) wanted: Vec<Wanted>,
    pub(super) images: Vec<Image>,
    /// Where it runs, once that is known, and whether that session is made for it.
    pub(super) session: Option<(SessionId, bool)>,
    /// The run that answers, once it has started.
    pub(super) run: Option<RunId>,
    /// The provider that it began with.
    provider: String,
    /// What was said to the agent in this turn.
    pub(super) said: Vec<SaidText>,
    /// All that the agent has said.
    answer: String,
    /// The thought that is being thought, and where.
    thought: Option<(StepId, String)>,
    rounds: Rounds,
    /// Texts that came before the run had started.
    pub(super) early: Vec<String>,
    /// How many texts were handed to the engine, and not seen to have joined yet.
    pub(super) handed_on: usize,
    /// Texts that have joined it, and that the agent has not got to yet.
    due: Vec<String>,
    pub(super) stopping: Option<Stopping>,
}

/// Why a turn is being stopped.
#[derive(Debug)]
pub(super) enum Stopping {
    /// Somebody interrupted it.
    ByUser,
    /// For a summary that somebody asked for.
    ForSummary(To),
}

/// What a turn speaks with.
pub(super) struct Scene<'a> {
    pub(super) chat: &'a mut Chat,
    pub(super) out: &'a mut Out,
    pub(super) state: &'a State,
    pub(super) turn: &'a str,
    pub(super) said: &'a [SaidText],
}

impl Scene<'_> {
    /// `more`, with the names of the session and the turn.
    pub(super) fn payload(&self, more: Value) -> Value {
        let mut payload = json!({"session_id": self.chat.id, "turn_id": self.turn});
        if let (Value::Object(payload), Value::Object(more)) = (&mut payload, more) {
            payload.extend(more);
        }
        payload
    }

    pub(super) fn estimate(&mut self) {
        self.chat.tell_estimate(self.out, self.state, self.said);
    }

    fn status(&mut self, label: &str) {
        self.chat.status(self.out, label, None);
    }

    fn event(&mut self, kind: &str, payload: Value) {
        let payload = self.payload(payload);
        self.out.event(kind, &payload);
    }

    /// Tells what only those want to know who look for mistakes.
    pub(super) fn debug(&mut self, stage: &str, data: impl FnOnce() -> Value) {
        if self.state.super_debug {
            self.event("session.debug", json!({"stage": stage, "data": data()}));
        }
    }
}

impl Turn {
    pub(super) fn new(
        id: String,
        to: Option<To>,
        text: String,
        wanted: Vec<Wanted>,
        provider: String,
    ) -> Self {
        Self {
            id,
            to,
            text,
            wanted,
            images: Vec::new(),
            session: None,
            run: None,
            provider,
            said: Vec::new(),
            answer: String::new(),
            thought: None,
            rounds: Rounds::default(),
            early: Vec::new(),
            handed_on: 0,
            due: Vec::new(),
            stopping: None,
        }
    }

    /// How many texts the agent has not got to yet.
    pub(super) fn steers(&self) -> usize {
        self.early.len() + self.handed_on + self.due.len()
    }

    /// Whether the agent has said anything.
    pub(super) fn has_said(&self) -> bool {
        !trim(&self.answer).is_empty()
    }

    /// Tells who asked that it was accepted, if that was not told yet.
    pub(super) fn accept(&mut self, chat: &str, out: &mut Out) {
        if let Some(to) = self.to.take() {
            let result = json!({"session_id": chat, "turn_id": self.id, "accepted": true, "queued": false});
            out.answer(&to, result);
        }
    }

    /// The run has started.
    pub(super) fn begin(&mut self, chat: &mut Chat, out: &mut Out, state: &State) {
        self.accept(&chat.id, out);
        if !chat.history.is_empty() && self.stopping.is_none() {
            chat.status(out, "compressing context...", Some(&self.id));
        }
        let label = if state.kept.reasoning == "OFF" { "drafting response..." } else { "thinking..." };
        // One that is being stopped already says so.
        if self.stopping.is_none() {
            chat.status(out, label, Some(&self.id));
        }
        self.said.push(SaidText::user(self.text.as_str(), self.images.clone()));
        chat.append(out, Kind::User, &self.text, &self.images);
        let request = state.super_debug.then(|| {
            let messages: Value = chat.history.iter().chain(&self.said).map(SaidText::to_json).collect();
            json!({"model": state.kept.model, "thinking": state.kept.reasoning, "messages": messages})
        });
        let mut scene = self.scene_of(chat, out, state);
        scene.estimate();
        if let Some(request) = request {
            scene.debug("request", || request);
        }
    }

    fn scene_of<'a>(&'a self, chat: &'a mut Chat, out: &'a mut Out, state: &'a State) -> Scene<'a> {
        Scene { chat, out, state, turn: &self.id, said: &self.said }
    }

    /// Takes in what was seen in the session. Returns how the run ended, once it has.
    pub(super) fn see(
        &mut self,
        chat: &mut Chat,
        out: &mut Out,
        state: &State,
        seen: &SessionUpdate,
    ) -> Option<RunEnding> {
        match seen {
            SessionUpdate::Delta { run, subject, text } => {
                // What a subagent says is for the agent, which says what it makes of it.
                if self.run.as_ref() == Some(run) && !text.is_empty() {
                    self.delta(chat, out, state, subject, text);
                }
                None
            }
            SessionUpdate::Entry(entry) => match &entry.event {
                SessionEvent::Run { run, event, .. } if self.run.as_ref() == Some(run) => {
                    self.on_event(chat, out, state, event)
                }
                SessionEvent::Compacted { summary, .. } => {
                    self.summarized(chat, out, state, &summary.text);
                    None
                }
                SessionEvent::Run { .. }
                | SessionEvent::Created(_)
                | SessionEvent::Renamed { .. }
                | SessionEvent::Chosen(_)
                | SessionEvent::Queued(_)
                | SessionEvent::Unqueued { .. }
                | SessionEvent::Cleared
                | SessionEvent::MessageAdded(_) => None,
            },
        }
    }

    fn delta(&mut self, chat: &mut Chat, out: &mut Out, state: &State, subject: &StreamKind, text: &str) {
        match subject {
            StreamKind::Message(_) => {
                self.close_round(chat, out, state);
                self.answer.push_str(text);
                let mut scene = self.scene_of(chat, out, state);
                scene.status("drafting response...");
                let segments = json!([{"kind": "answer", "text": text}]);
                let chunk = json!({"thoughts": [], "answerText": text, "segments": segments});
                let mut payload = json!({"chunk": chunk});
                if scene.out.extensions {
                    payload["text"] = Value::from(text);
                    payload["done"] = Value::Bool(false);
                }
                scene.event("session.stream.chunk", payload);
            }
            StreamKind::Thought(step) => {
                self.close_round(chat, out, state);
                let thought = match &mut self.thought {
                    Some((known, thought)) if known == step => {
                        thought.push_str(text);
                        thought.clone()
                    }
                    other => other.insert((step.clone(), text.to_owned())).1.clone(),
                };
                let mut scene = self.scene_of(chat, out, state);
                scene.status(&format!("thinking: {}", title(text)));
                let segments = json!([{"kind": "thought", "text": text}]);
                let chunk = json!({"thoughts": [thought], "answerText": "", "segments": segments});
                scene.event("session.stream.chunk", json!({"chunk": chunk}));
            }
            // The dialect has the whole call and the whole result only.
            StreamKind::Tool(_) | StreamKind::Input { .. } => {}
        }
    }

    fn close_round(&mut self, chat: &mut Chat, out: &mut Out, state: &State) {
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.close(&mut self.scene_of(chat, out, state));
        self.rounds = rounds;
    }

    fn on_event(
        &mut self,
        chat: &mut Chat,
        out: &mut Out,
        state: &State,
        event: &RunEvent,
    ) -> Option<RunEnding> {
        match event {
            RunEvent::Step(StepEvent::Started { kind: StepKind::Planning | StepKind::Reasoning, .. }) => {
                self.close_round(chat, out, state);
                self.apply_steers(chat, out, state);
            }
            RunEvent::Step(StepEvent::Updated { headline, .. }) => {
                self.scene_of(chat, out, state).status(headline)
            }
            RunEvent::Steered { input, .. } => self.on_steered(input),
            RunEvent::Step(StepEvent::Reasoned { .. }) => self.thought = None,
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                let mut rounds = std::mem::take(&mut self.rounds);
                rounds.called(&mut self.scene_of(chat, out, state), call, tool, input);
                self.rounds = rounds;
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, duration_ms }) => {
                let mut rounds = std::mem::take(&mut self.rounds);
                let scene = &mut self.scene_of(chat, out, state);
                rounds.returned(scene, call, Ok(output.clone()), *duration_ms);
                self.rounds = rounds;
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => {
                let mut rounds = std::mem::take(&mut self.rounds);
                let scene = &mut self.scene_of(chat, out, state);
                rounds.returned(scene, call, Err(failure.clone()), *duration_ms);
                self.rounds = rounds;
            }
            RunEvent::Consumed { .. } => self.close_round(chat, out, state),
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
        self.handed_on = self.handed_on.saturating_sub(1);
        self.due.push(input.text.clone());
    }

    /// The agent begins another step, and knows by then what was said to it meanwhile.
    fn apply_steers(&mut self, chat: &mut Chat, out: &mut Out, state: &State) {
        if self.due.is_empty() {
            return;
        }
        for text in std::mem::take(&mut self.due) {
            chat.append(out, Kind::User, &text, &[]);
            self.scene_of(chat, out, state).debug("steer_injected", || json!({"text": text}));
            self.said.push(SaidText::user(text, Vec::new()));
        }
        chat.status(out, "steer applied; continuing...", None);
    }

    /// The agent has put a summary in the place of what was said before.
    fn summarized(&mut self, chat: &mut Chat, out: &mut Out, state: &State, summary: &str) {
        chat.status(out, "compressing context...", Some(&self.id));
        super::compress::tell(chat, out, state, "auto", Some(&self.id), summary);
        self.scene_of(chat, out, state).estimate();
    }

    /// The last events of the turn. Returns who wants a summary now.
    pub(super) fn finish(
        mut self,
        chat: &mut Chat,
        out: &mut Out,
        state: &State,
        ending: &RunEnding,
    ) -> Option<To> {
        let stopping = self.stopping.take();
        match ending {
            // What somebody interrupted is interrupted, however it ended at that moment.
            _ if stopping.is_some() => self.interrupted(chat, out, state, stopping.as_ref()),
            RunEnding::Stopped { .. } => self.interrupted(chat, out, state, None),
            RunEnding::Completed { .. } => self.completed(chat, out, state),
            RunEnding::Failed(failure) => self.failed(chat, out, state, &failure.message),
        }
        chat.status(out, READY, None);
        let late = self.early.len() + self.due.len();
        if late > 0 {
            chat.append(out, Kind::System, &code::late_steers(late), &[]);
        }
        match stopping {
            Some(Stopping::ForSummary(to)) => Some(to),
            Some(Stopping::ByUser) | None => None,
        }
    }

    fn completed(&mut self, chat: &mut Chat, out: &mut Out, state: &State) {
        let text = if self.answer.is_empty() { code::NO_TEXT } else { self.answer.as_str() };
        chat.append(out, Kind::Assistant, text, &[]);
        let length = units(text);
        self.said.push(SaidText::assistant(text));
        self.remember(chat);
        let mut scene = Scene { chat, out, state, turn: &self.id, said: &[] };
        scene.estimate();
        scene.debug("response_final", || json!({"answer_length": length}));
        scene.event("session.completed", json!({"answer_length": length}));
    }

    fn interrupted(&mut self, chat: &mut Chat, out: &mut Out, state: &State, why: Option<&Stopping>) {
        let is_partial = self.has_said();
        if is_partial {
            let partial = trim(&self.answer).to_owned();
            chat.append(out, Kind::Assistant, &partial, &[]);
            self.said.push(SaidText::assistant(partial));
        }
        self.remember(chat);
        let mut scene = Scene { chat, out, state, turn: &self.id, said: &[] };
        if is_partial {
            scene.estimate();
        }
        if !matches!(why, Some(Stopping::ForSummary(_))) {
            scene.chat.append(scene.out, Kind::System, code::interrupted(is_partial), &[]);
        }
        scene.event("session.interrupted", json!({"partial_output": is_partial}));
    }

    /// It failed: what was asked stays to be seen, and is not gone on with.
    fn failed(&mut self, chat: &mut Chat, out: &mut Out, state: &State, why: &str) {
        chat.append(out, Kind::System, &code::inference_error(why), &[]);
        let mut scene = Scene { chat, out, state, turn: &self.id, said: &[] };
        scene.estimate();
        tell_error(&mut scene, why);
    }

    /// It could not begin, for this reason; `line` is what is shown of it.
    pub(super) fn not_begun(&self, chat: &mut Chat, out: &mut Out, state: &State, why: &str, line: &str) {
        let is_interrupted = self.stopping.is_some();
        match &self.stopping {
            Some(Stopping::ByUser) => chat.append(out, Kind::System, code::interrupted(false), &[]),
            Some(Stopping::ForSummary(_)) => {}
            None => chat.append(out, Kind::System, line, &[]),
        }
        let mut scene = Scene { chat, out, state, turn: &self.id, said: &[] };
        if is_interrupted {
            scene.event("session.interrupted", json!({"partial_output": false}));
        } else {
            tell_error(&mut scene, why);
        }
        chat.status(out, READY, None);
    }

    fn remember(&mut self, chat: &mut Chat) {
        chat.remember(&mut self.said);
        chat.provider = Some(self.provider.clone());
    }
}

fn tell_error(scene: &mut Scene<'_>, why: &str) {
    let mut payload = json!({"message": why});
    if scene.out.extensions {
        payload["code"] = Value::from("turn_failed");
    }
    scene.event("session.error", payload);
}

/// A few words for what is thought: what stands in bold at its beginning, else its first line.
fn title(text: &str) -> String {
    let text = trim(text);
    let bold = text.strip_prefix("**").and_then(|rest| rest.split_once("**")).map(|(bold, _)| trim(bold));
    let line = text.lines().next().map(trim);
    let title = bold.filter(|bold| !bold.is_empty()).or(line).filter(|line| !line.is_empty());
    title.unwrap_or("reasoning").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thought_is_called_by_its_first_words() {
        for (text, expected) in [
            ("**Looking Around** at it", "looking around"),
            ("First line\nsecond", "first line"),
            (" \n ", "reasoning"),
            ("**** x", "**** x"),
            ("**open", "**open"),
        ] {
            assert_eq!(title(text), expected, "{text}");
        }
    }
}
