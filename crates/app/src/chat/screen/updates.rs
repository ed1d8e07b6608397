//! What the events of a session change on the screen.

use parlor_engine::escaped;
use parlor_vocab::{
    Entry, ErrorScope, Failure, HistoryItem, MessageEvent, QuestionEvent, QuestionOutcome, Role, RunEnding,
    RunEvent, RunId, SessionEvent, SessionUpdate, StepEvent, StreamKind, SubagentEvent, ToolEvent, Usage,
    UserInput,
};
use ratatui_core::text::{Line, Span};

use super::super::exchange::DOOR;
use super::markdown::markdown;
use super::parts::{Content, LiveText, Part, PartId};
use super::state::{Effect, JoinedSession, LONG_RUN, LineKind, LiveRun, Screen};
use super::tool_call::ToolCall;
use super::wrap::{Prefix, clean, wrap};

impl Screen {
    pub(super) fn update(&mut self, update: &SessionUpdate) -> Vec<Effect> {
        match update {
            SessionUpdate::Delta { run, stream, text } => {
                self.delta(run, stream, text);
                Vec::new()
            }
            SessionUpdate::Entry(entry) => self.entry(entry),
        }
    }

    fn delta(&mut self, run: &RunId, stream: &StreamKind, piece: &str) {
        let now = self.now;
        let Some(live) = &mut self.run else { return };
        if live.run != *run {
            // The text of a subagent is for the agent; people see that it moves.
            if let (Some(part), StreamKind::Message(_)) = (live.part(&PartId::Subagent(run.clone())), stream)
                && let Content::Tool(call) = &mut part.content
            {
                call.push_output(piece);
                return;
            }
            if !matches!(stream, StreamKind::ToolOutput(_)) {
                return;
            }
        }
        match stream {
            StreamKind::Message(message) => {
                let last_result = live.last_result.clone();
                let part = live
                    .part_or_new(PartId::Message(message.clone()), || Content::Message(LiveText::default()));
                if let Content::Message(text) = &mut part.content {
                    text.push(piece);
                    if let Some(result) = last_result {
                        text.compare_with_output(&result);
                    }
                }
            }
            StreamKind::Reasoning(step) => {
                let part = live.part_or_new(PartId::Reasoning(step.clone()), || Content::Reasoning {
                    text: LiveText::default(),
                    since: now,
                    took: None,
                });
                if let Content::Reasoning { text, .. } = &mut part.content {
                    text.push(piece);
                }
            }
            StreamKind::ToolOutput(call) => {
                if let Some(part) = live.part(&PartId::Tool(run.clone(), call.clone()))
                    && let Content::Tool(call) = &mut part.content
                {
                    call.push_output(piece);
                }
            }
            StreamKind::ToolInput { tool, .. } => {
                live.status = Some(format!("writing a call of {}", clean(tool)))
            }
        }
    }

    fn entry(&mut self, entry: &Entry) -> Vec<Effect> {
        let is_counted = entry.seq <= self.counted;
        match &entry.event {
            SessionEvent::Run { run, event, .. } => {
                if let RunEvent::UsageAdded { usage, .. } = event {
                    self.add_usage(*usage, is_counted);
                }
                return self.run_event(run, event);
            }
            SessionEvent::Renamed { title } => self.header.title = Some(title.clone()),
            SessionEvent::AgentChosen(choice) => {
                if let Some(agent) = &choice.agent {
                    self.header.agent = agent.as_str().to_owned();
                }
                if choice.model.is_some() {
                    self.header.model.clone_from(&choice.model);
                }
            }
            SessionEvent::ModeChosen { mode } => self.header.mode = *mode,
            SessionEvent::Queued(queued) => {
                self.queue.push_back((queued.run.clone(), queued.input.text.clone()));
            }
            SessionEvent::Unqueued { runs } => self.queue.retain(|(run, _)| !runs.contains(run)),
            SessionEvent::Cleared => self.notice("The history was cleared."),
            SessionEvent::Compacted { summary, .. } => {
                self.notice("The conversation so far was replaced by a summary:");
                let lines = markdown(&clean(&summary.text), self.columns, self.theme);
                self.emit(LineKind::Block, lines);
            }
            SessionEvent::MessageAdded(message) if message.role == Role::System => {
                let text = message.text.clone();
                self.notice(&text);
            }
            SessionEvent::Created(_) | SessionEvent::MessageAdded(_) => {}
        }
        Vec::new()
    }

    fn add_usage(&mut self, usage: Usage, is_counted: bool) {
        if !is_counted {
            self.usage = self.usage.plus(usage);
        }
        if let Some(live) = &mut self.run {
            live.usage = live.usage.plus(usage);
        }
    }

    fn run_event(&mut self, run: &RunId, event: &RunEvent) -> Vec<Effect> {
        match event {
            RunEvent::Started { parent: None, agent, model, input, .. } => {
                self.header.agent = agent.as_str().to_owned();
                self.header.model.clone_from(model);
                self.begin_run(run, input);
                if let Some(notice) = event.missing_agent_notice() {
                    self.notice(&notice);
                }
            }
            RunEvent::Started { parent: Some(_), .. } => {}
            RunEvent::Steered { input, .. } => self.steered(input),
            RunEvent::Question(question) => return self.question_event(question),
            RunEvent::Ended { ending, duration_ms } => return self.run_ended(run, ending, *duration_ms),
            RunEvent::ErrorRaised { scope: ErrorScope::Run, failure } => {
                let text = format!("Error: {}", failure_text(failure));
                self.finish_parts();
                self.error(&text);
            }
            // The failure of the tool is shown with its call.
            RunEvent::ErrorRaised { scope: ErrorScope::Tool(_), .. } | RunEvent::UsageAdded { .. } => {}
            RunEvent::Message(event) => self.message_event(run, event),
            RunEvent::Step(event) => self.step_event(run, event),
            RunEvent::Tool(event) => self.tool_event(run, event),
            RunEvent::Subagent(event) => self.subagent_event(event),
        }
        Vec::new()
    }

    fn begin_run(&mut self, run: &RunId, input: &UserInput) {
        self.queue.retain(|(queued, _)| queued != run);
        self.user_message(&input.text, sender_of(input).as_deref());
        for media in &input.media {
            self.notice(&format!("  with {}", media.name));
        }
        self.run = Some(LiveRun {
            run: run.clone(),
            since: self.now,
            parts: Vec::new(),
            is_stopping: false,
            status: None,
            usage: Usage::default(),
            last_result: None,
        });
    }

    /// A text was added to the run: what the agent wrote before stands above it.
    fn steered(&mut self, input: &UserInput) {
        self.flush_parts();
        self.user_message(&input.text, sender_of(input).as_deref());
    }

    /// Finishes all parts as they are, except for running tools, which move below.
    fn flush_parts(&mut self) {
        self.finish_parts();
        let Some(live) = &mut self.run else { return };
        for part in &mut live.parts {
            if let Content::Message(text) = &mut part.content {
                let whole = text.text().to_owned();
                text.complete(&whole);
            }
        }
        self.finish_parts();
    }

    fn message_event(&mut self, run: &RunId, event: &MessageEvent) {
        let Some(live) = self.run.as_mut().filter(|live| live.run == *run) else { return };
        match event {
            MessageEvent::Started { .. } => live.status = None,
            MessageEvent::Completed { message, text: whole, media } => {
                let last_result = live.last_result.take();
                let part = live
                    .part_or_new(PartId::Message(message.clone()), || Content::Message(LiveText::default()));
                if let Content::Message(text) = &mut part.content {
                    text.complete(whole);
                    if let Some(result) = last_result {
                        text.compare_with_output(&result);
                    }
                }
                self.finish_parts();
                for media in media {
                    self.notice(&format!("attached: {} ({}, {} bytes)", media.name, media.mime, media.size));
                }
            }
        }
    }

    fn step_event(&mut self, run: &RunId, event: &StepEvent) {
        let now = self.now;
        let Some(live) = self.run.as_mut().filter(|live| live.run == *run) else { return };
        match event {
            StepEvent::Updated { headline, .. } => live.status = Some(clean(headline).replace('\n', " ")),
            StepEvent::Reasoned { step, text: whole } => {
                let part = live.part_or_new(PartId::Reasoning(step.clone()), || Content::Reasoning {
                    text: LiveText::default(),
                    since: now,
                    took: None,
                });
                if let Content::Reasoning { text, since, took } = &mut part.content {
                    text.complete(whole);
                    *took = Some(now.saturating_sub(*since));
                }
            }
            StepEvent::Started { .. } | StepEvent::Completed { .. } | StepEvent::Failed { .. } => {
                live.status = None
            }
        }
    }

    fn tool_event(&mut self, run: &RunId, event: &ToolEvent) {
        let Some(live) = &mut self.run else { return };
        let is_main = live.run == *run;
        let id = |call| PartId::Tool(run.clone(), call);
        match event {
            ToolEvent::Called { call, tool, input, .. } => {
                live.status = None;
                live.part_or_new(id(call.clone()), || Content::Tool(ToolCall::new(tool, input)));
            }
            ToolEvent::Progressed { message, .. } if is_main => {
                live.status = Some(clean(message).replace('\n', " "));
            }
            ToolEvent::Progressed { .. } => {}
            ToolEvent::Completed { call, output, duration_ms, .. } => {
                live.finish_tool(&id(call.clone()), Ok(output), *duration_ms, is_main);
            }
            ToolEvent::Failed { call, failure, duration_ms } => {
                live.finish_tool(&id(call.clone()), Err(&failure.message), *duration_ms, is_main);
            }
        }
    }

    fn subagent_event(&mut self, event: &SubagentEvent) {
        let Some(live) = &mut self.run else { return };
        match event {
            SubagentEvent::Started { child, name, task } => {
                live.part_or_new(PartId::Subagent(child.clone()), || {
                    Content::Tool(ToolCall::new(name, task))
                });
            }
            SubagentEvent::Updated { child, status } => {
                if let Some(part) = live.part(&PartId::Subagent(child.clone()))
                    && let Content::Tool(call) = &mut part.content
                {
                    call.set_status(status);
                }
            }
            SubagentEvent::Done { child, result, duration_ms } => {
                let text = result.as_deref().map_err(|failure| failure.message.as_str());
                live.finish_tool(&PartId::Subagent(child.clone()), text, *duration_ms, false);
            }
        }
    }

    fn question_event(&mut self, event: &QuestionEvent) -> Vec<Effect> {
        match event {
            QuestionEvent::Asked(question) => {
                let title = escaped(&question.title);
                self.question = Some((question.clone(), self.now));
                vec![Effect::Notify(format!("parlor asks: {title}"))]
            }
            QuestionEvent::Settled { question, outcome } => {
                if self.question.as_ref().is_some_and(|(asked, _)| asked.id == *question)
                    && let Some((question, _)) = self.question.take()
                {
                    self.settled(&escaped(&question.title), outcome);
                }
                Vec::new()
            }
        }
    }

    fn settled(&mut self, title: &str, outcome: &QuestionOutcome) {
        let (word, style) = match outcome {
            QuestionOutcome::Answered { .. } if outcome.is_allowed() => ("Allowed", self.theme.success()),
            QuestionOutcome::Answered { .. } => ("Denied", self.theme.error()),
            QuestionOutcome::Expired => ("Nobody answered in time, so it is denied", self.theme.error()),
            QuestionOutcome::Withdrawn => return,
        };
        let by = match outcome {
            QuestionOutcome::Answered { by: Some(by), .. } if by.door != DOOR => {
                format!(" by {}", escaped(by.client.as_ref().unwrap_or(&by.door)))
            }
            QuestionOutcome::Answered { .. } | QuestionOutcome::Expired | QuestionOutcome::Withdrawn => {
                String::new()
            }
        };
        let spans =
            [Span::styled(format!("{word}{by}: "), style), Span::styled(title.to_owned(), self.theme.dim())];
        let lines = wrap(&spans, self.columns, &Prefix::default());
        self.emit(LineKind::Short, lines);
    }

    fn run_ended(&mut self, run: &RunId, ending: &RunEnding, duration_ms: u64) -> Vec<Effect> {
        if self.run.as_ref().is_none_or(|live| live.run != *run) {
            return Vec::new();
        }
        if let Some(live) = &mut self.run {
            live.end_parts(self.now);
        }
        self.finish_parts();
        (self.run, self.question) = (None, None);
        let word = match ending {
            RunEnding::Completed { .. } => "has answered",
            RunEnding::Failed(failure) => {
                self.error(&format!("Failed: {}", failure_text(failure)));
                "has failed"
            }
            RunEnding::Stopped { cause, .. } => {
                self.notice(&format!("Stopped: {}", cause.reason()));
                return Vec::new();
            }
        };
        let is_long = u128::from(duration_ms) >= LONG_RUN.as_millis();
        let text = format!("{} {word}", clean(&self.header.agent));
        is_long.then_some(Effect::Notify(text)).into_iter().collect()
    }

    pub(super) fn join(&mut self, joined: JoinedSession) {
        self.leave_session();
        if let Some(agent) = joined.agent {
            self.header.agent = agent;
            self.header.model = joined.model;
        }
        if let Some(mode) = joined.mode {
            self.header.mode = mode;
        }
        (self.header.session, self.header.title) = (Some(joined.id), joined.title);
        (self.usage, self.counted) = (joined.usage, joined.head);
        self.queue = joined.queue.into();
        if joined.is_cut {
            self.notice("Older messages are left out; parlor replay prints them.");
        }
        for item in &joined.tail {
            self.history_item(item);
        }
    }

    pub(super) fn leave_session(&mut self) {
        if let Some(live) = &mut self.run {
            live.end_parts(self.now);
            self.finish_parts();
        }
        (self.run, self.question) = (None, None);
        self.queue.clear();
        (self.header.session, self.header.title) = (None, None);
        (self.usage, self.counted) = Default::default();
    }

    fn history_item(&mut self, item: &HistoryItem) {
        let (width, theme) = (self.columns, self.theme);
        match item {
            HistoryItem::Message(message) => match message.role {
                Role::User => self.user_message(&message.text, None),
                Role::Assistant => {
                    let lines = markdown(&clean(&message.text), width, theme);
                    self.emit(LineKind::Block, lines);
                }
                Role::System => self.notice(&message.text),
            },
            HistoryItem::ToolUse(tool) => {
                let mut call = ToolCall::new(&tool.tool, &tool.input);
                if let Some(result) = &tool.result {
                    let text = result.as_deref().map_err(|failure| failure.message.as_str());
                    call.finish(text, 0);
                }
                let lines: Vec<Line<'static>> = call.lines(width, theme);
                self.emit(LineKind::Short, lines);
            }
            HistoryItem::UnfinishedRun { ending: RunEnding::Failed(failure), .. } => {
                self.error(&format!("Failed: {}", failure_text(failure)));
            }
            HistoryItem::UnfinishedRun { .. } => {}
        }
    }
}

impl LiveRun {
    fn part(&mut self, id: &PartId) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.id == *id)
    }

    fn part_or_new(&mut self, id: PartId, content: impl FnOnce() -> Content) -> &mut Part {
        let index = self.parts.iter().position(|part| part.id == id).unwrap_or_else(|| {
            self.parts.push(Part { id, content: content() });
            self.parts.len() - 1
        });
        self.parts.get_mut(index).expect("the part was found or added")
    }

    fn finish_tool(&mut self, id: &PartId, text: Result<&str, &str>, duration_ms: u64, is_main: bool) {
        let Some(part) = self.part(id) else { return };
        let Content::Tool(call) = &mut part.content else { return };
        call.finish(text, duration_ms);
        let result = call.result_text().map(str::to_owned);
        if is_main {
            self.last_result = result;
        }
    }

    /// Ends what is still open when the run ends.
    fn end_parts(&mut self, now: std::time::Duration) {
        for part in &mut self.parts {
            match &mut part.content {
                Content::Message(text) => text.complete(""),
                Content::Reasoning { since, took: took @ None, .. } => {
                    *took = Some(now.saturating_sub(*since))
                }
                Content::Reasoning { .. } => {}
                Content::Tool(call) if call.is_finished() => {}
                Content::Tool(call) => call.finish(Err("was stopped"), 0),
            }
        }
    }
}

/// The client that sent an input, unless it is a chat like this one.
fn sender_of(input: &UserInput) -> Option<String> {
    let by = input.by.as_ref().filter(|by| by.door != DOOR)?;
    Some(by.client.as_ref().unwrap_or(&by.door).clone())
}

fn failure_text(failure: &Failure) -> String {
    let retry = if failure.retryable { "; trying again may work" } else { "" };
    format!("{} ({}{retry})", failure.message, failure.code)
}
