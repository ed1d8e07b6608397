//! Makes `session/update`s and the answers of prompts from what a watch reports.

use std::path::Path;
use std::time::Instant;

use agent_client_protocol_schema::v1::{
    CompactionStatus, CompactionUpdate, ConfigOptionUpdate, ContentBlock, ContentChunk, Cost,
    CurrentModeUpdate, Notice, NoticeSeverity, ResourceLink, SessionInfoUpdate, SessionUpdate, StopReason,
    ToolCall, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use parlor_vocab as vocab;
use parlor_vocab::{
    Entry, ErrorScope, Failure, Media, Message, MessageEvent, MessageId, Role, RunEnding, RunEvent, RunId,
    SessionEvent, StepEvent, StreamKind, SubagentEvent, ToolCallId, ToolEvent, UserInput,
};

use super::commands::commands_update;
use super::encode::{chunk, pieces, text};
use super::open_session::{Call, Effect, Gates, OpenSession};
use super::options::{OptionChange, OptionValues};
use super::params::AcpParams;
use super::{OUTPUT_INTERVAL, code, options, tool_call};

/// What all updates depend on.
pub(super) struct Context<'a> {
    pub(super) params: &'a AcpParams,
    pub(super) gates: Gates,
    pub(super) now: Instant,
}

/// Adds an update.
pub(super) fn push(effects: &mut Vec<Effect>, update: SessionUpdate) {
    effects.push(Effect::Update(Box::new(update)));
}

impl OpenSession {
    /// Handles a report of the watch.
    pub(super) fn on_update(
        &mut self,
        context: &Context<'_>,
        update: &vocab::SessionUpdate,
        effects: &mut Vec<Effect>,
    ) {
        match update {
            vocab::SessionUpdate::Entry(entry) => self.on_entry(context, entry, effects),
            vocab::SessionUpdate::Delta { run, stream, text } => {
                if !self.subagents.contains(run) {
                    self.on_delta(context, run, stream, text, effects);
                }
            }
        }
    }

    fn on_entry(&mut self, context: &Context<'_>, entry: &Entry, effects: &mut Vec<Effect>) {
        self.last = entry.seq;
        match &entry.event {
            SessionEvent::Created(new_session) => {
                self.options = OptionValues { choice: new_session.choice.clone(), mode: None };
            }
            SessionEvent::Renamed { title } => {
                let update = SessionInfoUpdate::new().title(title.clone()).updated_at(entry.at.rfc3339());
                push(effects, SessionUpdate::SessionInfoUpdate(update));
            }
            SessionEvent::AgentChosen(choice) => {
                self.on_choice(context, &OptionChange::Agent(choice.clone()), effects);
            }
            SessionEvent::ModeChosen { mode } => {
                self.on_choice(context, &OptionChange::Mode(*mode), effects);
            }
            // A queued input of this connection is recognized by the machine.
            SessionEvent::Queued(_) => {}
            SessionEvent::Unqueued { runs } => {
                for run in runs {
                    if let Some(prompt) = self.take_prompt_of(run) {
                        effects.push(Effect::Answer(prompt.id, Ok(StopReason::Cancelled)));
                    }
                }
                self.answer_unsent(effects);
            }
            SessionEvent::Cleared => {
                let note = "The conversation was cleared here: the agent does not see what is above.";
                push_agent_text(effects, entry.id.as_str(), note);
            }
            SessionEvent::Compacted { summary, .. } if context.gates.compaction => {
                let update =
                    CompactionUpdate::new(summary.id.as_str().to_owned(), CompactionStatus::Completed)
                        .summary(pieces(&summary.text).take(1).map(text).collect::<Vec<_>>());
                push(effects, SessionUpdate::CompactionUpdate(update));
            }
            SessionEvent::Compacted { .. } => {}
            SessionEvent::MessageAdded(message) => push_message(context, message, effects),
            SessionEvent::Run { run, event, .. } => self.on_run_event(context, run, event, effects),
        }
    }

    /// Another client, or this one, has changed an option.
    fn on_choice(&mut self, context: &Context<'_>, change: &OptionChange, effects: &mut Vec<Effect>) {
        if let Some(index) = self.unseen_choices.iter().position(|unseen| unseen == change) {
            self.unseen_choices.remove(index);
            // The answer to a later change of this connection has been sent, or will be.
            if !self.unseen_choices.is_empty() {
                return;
            }
        }
        let options = self.options.changed(change);
        if options == self.options {
            return;
        }
        self.options = options;
        // The answer to a pending choice comes before the updates that follow from it.
        if !self.is_replaying() && self.pending_choices == 0 {
            self.show_options(context, effects);
            self.show_new_commands(context, effects);
            if matches!(change, OptionChange::Mode(_)) {
                self.show_mode(context, effects);
            }
        }
    }

    /// Shows the policy's mode, in the form for clients without options.
    pub(super) fn show_mode(&self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let mode = self.options.mode.unwrap_or(context.params.mode);
        push(effects, SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.as_str())));
    }

    /// Shows the slash commands of the session's agent.
    pub(super) fn show_commands(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let agent = options::current_agent(context.params, &self.options.choice);
        self.commands_shown = agent.map(|agent| agent.id.clone());
        push(effects, commands_update(context.params, &self.options.choice));
    }

    /// Shows the slash commands if the client knows those of another agent.
    pub(super) fn show_new_commands(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let agent = options::current_agent(context.params, &self.options.choice);
        if agent.map(|agent| &agent.id) != self.commands_shown.as_ref() {
            self.show_commands(context, effects);
        }
    }

    /// Shows all options with their present values.
    pub(super) fn show_options(&self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let options = options::options(context.params, &self.options);
        push(effects, SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options)));
    }

    /// Tells the user what has to be told about this session, once.
    pub(super) fn show_note(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        // Without notices it would begin the conversation, so it waits for the first turn.
        if (context.gates.notices || self.active.is_some())
            && let Some(note) = self.note.take()
        {
            let id = self.active.as_ref().map_or_else(String::new, |run| format!("{run}/note"));
            self.notice(context, &id, note, effects);
        }
    }

    fn on_run_event(
        &mut self,
        context: &Context<'_>,
        run: &RunId,
        event: &RunEvent,
        effects: &mut Vec<Effect>,
    ) {
        if let RunEvent::Started { parent: Some(_), .. } = event {
            self.subagents.insert(run.clone());
        }
        if let RunEvent::Question(event) = event {
            return self.on_question_event(event, effects);
        }
        if self.subagents.contains(run) {
            if matches!(event, RunEvent::Ended { .. }) {
                self.subagents.remove(run);
            }
            return;
        }
        match event {
            RunEvent::Started { input, message, .. } => {
                self.active = Some(run.clone());
                self.show_input(context, input, message, effects);
                if !self.is_replaying() {
                    self.show_note(context, effects);
                }
                if let Some(notice) = event.missing_agent_notice() {
                    self.notice(context, run.as_str(), notice, effects);
                }
            }
            RunEvent::Steered { input, message } => self.show_input(context, input, message, effects),
            RunEvent::Message(MessageEvent::Started { message }) => {
                self.open_messages.insert(message.to_string());
            }
            RunEvent::Message(MessageEvent::Completed { message, text, media }) => {
                let was_open = self.open_messages.remove(message.as_str());
                // A client that has cancelled its turn need not be told so by the agent.
                if !was_open && self.is_cancelled(run) {
                    return;
                }
                let shown = self.shown_bytes.remove(message.as_str()).unwrap_or_default();
                push_agent_text(effects, message.as_str(), text.get(shown..).unwrap_or_default());
                for block in links(context, media) {
                    push(effects, SessionUpdate::AgentMessageChunk(chunk(message.as_str(), block)));
                }
            }
            RunEvent::Step(StepEvent::Reasoned { step, text: thought }) => {
                let id = thought_id(run, step.as_str());
                let shown = self.shown_bytes.remove(&id).unwrap_or_default();
                push_thought(effects, &id, thought.get(shown..).unwrap_or_default());
            }
            // Only headlines for people, which the updates of texts and tools say better.
            RunEvent::Step(_) => {}
            // Handled above, because subagents ask too.
            RunEvent::Question(_) => {}
            RunEvent::Tool(event) => self.on_tool_event(context, run, event, effects),
            RunEvent::Subagent(event) => on_subagent_event(event, effects),
            RunEvent::ErrorRaised { scope: ErrorScope::Run, failure } => {
                if context.gates.notices && !self.is_replaying() {
                    let notice = Notice::new(NoticeSeverity::Warning, failure.message.clone());
                    push(effects, SessionUpdate::Notice(notice));
                }
            }
            RunEvent::ErrorRaised { scope: ErrorScope::Tool(_), .. } => {}
            RunEvent::UsageAdded { usage, model } => {
                self.last_usage = Some((*usage, model.clone()));
                self.cost_micros = self.cost_micros.saturating_add(usage.cost_micros);
            }
            RunEvent::Ended { ending, .. } => self.on_ended(context, run, ending, effects),
        }
    }

    /// Shows the message of a user, unless the client has just sent it.
    fn show_input(
        &mut self,
        context: &Context<'_>,
        input: &UserInput,
        message: &MessageId,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(key) = input.key.as_ref().filter(|_| !self.is_replaying())
            && (self.prompts.iter().any(|prompt| prompt.key == *key) || self.steering.remove(key))
        {
            return;
        }
        push_user_message(context, message, &input.text, &input.media, effects);
    }

    fn is_cancelled(&self, run: &RunId) -> bool {
        use super::prompts::PromptStage::Accepted;
        let is_of_run = |prompt: &&super::prompts::Prompt| matches!(&prompt.stage, Accepted { run: own, .. } if own == run);
        self.prompts.iter().find(is_of_run).is_some_and(|prompt| prompt.is_cancelled)
    }

    /// Tells people something that is no part of the conversation.
    fn notice(&self, context: &Context<'_>, id: &str, notice: String, effects: &mut Vec<Effect>) {
        if !context.gates.notices {
            return push_agent_text(effects, id, &notice);
        }
        if !self.is_replaying() {
            push(effects, SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, notice)));
        }
    }

    fn on_delta(
        &mut self,
        context: &Context<'_>,
        run: &RunId,
        stream: &StreamKind,
        text: &str,
        effects: &mut Vec<Effect>,
    ) {
        match stream {
            StreamKind::Message(message) => {
                *self.shown_bytes.entry(message.to_string()).or_default() += text.len();
                push_agent_text(effects, message.as_str(), text);
            }
            StreamKind::Reasoning(step) => {
                let id = thought_id(run, step.as_str());
                push_thought(effects, &id, text);
                *self.shown_bytes.entry(id).or_default() += text.len();
            }
            StreamKind::ToolInput { call, tool } => {
                if !self.calls.contains_key(call) {
                    self.calls.insert(call.clone(), Call::new(run.clone(), tool.clone()));
                    let shown = ToolCall::new(call.as_str().to_owned(), tool.clone()).name(tool.clone());
                    push(effects, SessionUpdate::ToolCall(shown.status(ToolCallStatus::Pending)));
                }
            }
            StreamKind::ToolOutput(call) => self.on_output(context, call, text, effects),
        }
    }

    fn on_output(&mut self, context: &Context<'_>, id: &ToolCallId, text: &str, effects: &mut Vec<Effect>) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.output.push(text);
        if context.gates.terminal_output && tool_call::has_terminal(&call.tool) {
            return push_terminal_output(effects, id, text);
        }
        call.has_unshown_output = true;
        show_output(context.now, id, call, effects);
    }

    /// Shows the output of running tools to a client without display terminals, as far as its time has come.
    pub(super) fn show_outputs(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for (id, call) in &mut self.calls {
            show_output(now, id, call, effects);
        }
    }

    /// When output that was held back may be shown.
    pub(super) fn next_output_at(&self) -> Option<Instant> {
        let waiting = self.calls.values().filter(|call| call.has_unshown_output);
        waiting.filter_map(|call| call.shown_at).map(|shown| shown + OUTPUT_INTERVAL).min()
    }

    fn on_tool_event(
        &mut self,
        context: &Context<'_>,
        run: &RunId,
        event: &ToolEvent,
        effects: &mut Vec<Effect>,
    ) {
        match event {
            ToolEvent::Called { call, tool, input, .. } => {
                let is_shown = self.calls.contains_key(call);
                let entry =
                    self.calls.entry(call.clone()).or_insert_with(|| Call::new(run.clone(), tool.clone()));
                entry.is_called = true;
                push_called(context, &self.folder, call, tool, input, is_shown, effects);
            }
            ToolEvent::Progressed { .. } => {}
            ToolEvent::Completed { call, output, details, .. } => {
                let (tool, shown) = self.take_call(call);
                let result = tool_call::result(&tool, output);
                let fields = ToolCallUpdateFields::new()
                    .status(ToolCallStatus::Completed)
                    .raw_output(tool_call::raw_output(&result, details.as_deref()));
                if context.gates.terminal_output && tool_call::has_terminal(&tool) {
                    push_terminal_output(effects, call, &tool_call::unshown_output(result.output, &shown));
                    let exit = tool_call::terminal_exit(call.as_str(), result.exit_code);
                    let update = ToolCallUpdate::new(call.as_str().to_owned(), fields).meta(exit);
                    return push(effects, SessionUpdate::ToolCallUpdate(update));
                }
                // A diff stays: content replaces what was there.
                let fields = match tool.as_str() {
                    "edit_file" => fields,
                    _ => fields.content(tool_call::contents(output, details.as_deref())),
                };
                push_call_update(effects, call, fields);
            }
            ToolEvent::Failed { call, failure, .. } => {
                let (tool, _) = self.take_call(call);
                push_failed(context, call, &tool, failure, effects);
            }
        }
    }

    /// Removes an open call: its tool, and the end of the output that it has shown live.
    fn take_call(&mut self, call: &ToolCallId) -> (String, tool_call::OutputTail) {
        self.calls.remove(call).map(|call| (call.tool, call.output)).unwrap_or_default()
    }

    fn on_ended(
        &mut self,
        context: &Context<'_>,
        run: &RunId,
        ending: &RunEnding,
        effects: &mut Vec<Effect>,
    ) {
        if self.active.as_ref() == Some(run) {
            self.active = None;
        }
        // A call whose input was never completed has no event of its own.
        let mut open: Vec<ToolCallId> = Vec::new();
        self.calls.retain(|id, call| {
            if call.run == *run {
                open.push(id.clone());
            }
            call.run != *run
        });
        open.sort();
        for call in open {
            push_call_update(effects, &call, ToolCallUpdateFields::new().status(ToolCallStatus::Failed));
        }
        if !self.is_replaying() {
            self.push_usage(context, effects);
        }
        let Some(prompt) = self.take_prompt_of(run) else {
            if let RunEnding::Failed(failure) = ending {
                push_agent_text(effects, run.as_str(), &failure.message);
            }
            return;
        };
        let answer = match ending {
            _ if prompt.is_cancelled => Ok(StopReason::Cancelled),
            RunEnding::Completed { .. } => Ok(StopReason::EndTurn),
            RunEnding::Stopped { .. } => Ok(StopReason::Cancelled),
            RunEnding::Failed(failure) => code::failed_run(failure, context.gates.can_log_in),
        };
        effects.push(Effect::Answer(prompt.id, answer));
        self.answer_unsent(effects);
    }

    /// Shows how much of the model's window the last call used, once.
    pub(super) fn push_usage(&mut self, context: &Context<'_>, effects: &mut Vec<Effect>) {
        let Some((usage, model)) = self.last_usage.take().filter(|_| context.params.sends_usage) else {
            return;
        };
        let Some(size) = options::context_window(context.params, &self.options.choice, model.as_deref())
        else {
            return;
        };
        let parts =
            [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens];
        let used = parts.into_iter().fold(0_u64, u64::saturating_add);
        #[expect(clippy::cast_precision_loss, reason = "a sum of money is far below 2^53 millionths")]
        let cost = (self.cost_micros > 0).then(|| Cost::new(self.cost_micros as f64 / 1e6, "USD"));
        push(effects, SessionUpdate::UsageUpdate(UsageUpdate::new(used, size).cost(cost)));
    }
}

/// Shows the end of a tool's output, unless it was shown just before.
fn show_output(now: Instant, id: &ToolCallId, call: &mut Call, effects: &mut Vec<Effect>) {
    let is_due = call.shown_at.is_none_or(|shown| now.saturating_duration_since(shown) >= OUTPUT_INTERVAL);
    if call.has_unshown_output && is_due {
        call.has_unshown_output = false;
        call.shown_at = Some(now);
        push_call_update(effects, id, ToolCallUpdateFields::new().content(vec![call.output.content()]));
    }
}

/// Thoughts and messages have ids of different kinds.
fn thought_id(run: &RunId, step: &str) -> String {
    format!("{run}/{step}")
}

fn push_text(effects: &mut Vec<Effect>, id: &str, whole: &str, kind: impl Fn(ContentChunk) -> SessionUpdate) {
    for piece in pieces(whole) {
        push(effects, kind(chunk(id, text(piece))));
    }
}

/// Shows a text of the agent.
pub(super) fn push_agent_text(effects: &mut Vec<Effect>, id: &str, whole: &str) {
    push_text(effects, id, whole, SessionUpdate::AgentMessageChunk);
}

fn push_thought(effects: &mut Vec<Effect>, id: &str, whole: &str) {
    push_text(effects, id, whole, SessionUpdate::AgentThoughtChunk);
}

fn push_user_message(
    context: &Context<'_>,
    message: &MessageId,
    whole: &str,
    media: &[Media],
    effects: &mut Vec<Effect>,
) {
    push_text(effects, message.as_str(), whole, SessionUpdate::UserMessageChunk);
    for block in links(context, media) {
        push(effects, SessionUpdate::UserMessageChunk(chunk(message.as_str(), block)));
    }
}

fn push_message(context: &Context<'_>, message: &Message, effects: &mut Vec<Effect>) {
    match message.role {
        Role::User => push_user_message(context, &message.id, &message.text, &message.media, effects),
        Role::Assistant | Role::System => {
            push_agent_text(effects, message.id.as_str(), &message.text);
            for block in links(context, &message.media) {
                push(effects, SessionUpdate::AgentMessageChunk(chunk(message.id.as_str(), block)));
            }
        }
    }
}

/// Attached files as links to the state folder.
fn links(context: &Context<'_>, media: &[Media]) -> impl Iterator<Item = ContentBlock> {
    media.iter().map(|media| {
        let path = context.params.media_folder.join(media.id.as_str());
        let link = ResourceLink::new(media.name.clone(), file_uri(&path)).mime_type(media.mime.clone());
        ContentBlock::ResourceLink(link.size(i64::try_from(media.size).ok()))
    })
}

/// The address of a file, with everything escaped that an address cannot contain.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte))
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

fn push_call_update(effects: &mut Vec<Effect>, call: &ToolCallId, fields: ToolCallUpdateFields) {
    let update = ToolCallUpdate::new(call.as_str().to_owned(), fields);
    push(effects, SessionUpdate::ToolCallUpdate(update));
}

fn push_terminal_output(effects: &mut Vec<Effect>, call: &ToolCallId, output: &str) {
    for piece in pieces(output) {
        let update = ToolCallUpdate::new(call.as_str().to_owned(), ToolCallUpdateFields::new());
        let update = update.meta(tool_call::terminal_output(call.as_str(), piece));
        push(effects, SessionUpdate::ToolCallUpdate(update));
    }
}

/// Shows a call whose input is complete. `is_shown` tells whether the client knows the call already.
fn push_called(
    context: &Context<'_>,
    folder: &Path,
    call: &ToolCallId,
    tool: &str,
    input: &str,
    is_shown: bool,
    effects: &mut Vec<Effect>,
) {
    let described = tool_call::describe(tool, input, folder);
    let mut content: Vec<_> = described.diff.into_iter().map(Into::into).collect();
    let mut meta = None;
    if context.gates.terminal_output && tool_call::has_terminal(tool) {
        content.push(tool_call::terminal(call.as_str()));
        meta = Some(tool_call::terminal_info(call.as_str(), folder));
    }
    let id = call.as_str().to_owned();
    let update = if is_shown {
        let fields = ToolCallUpdateFields::new()
            .title(described.title)
            .kind(described.kind)
            .status(ToolCallStatus::InProgress)
            .locations(described.locations)
            .raw_input(described.raw_input)
            .content(content);
        SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields).meta(meta))
    } else {
        let shown = ToolCall::new(id, described.title)
            .name(tool.to_owned())
            .kind(described.kind)
            .status(ToolCallStatus::InProgress)
            .locations(described.locations)
            .raw_input(described.raw_input)
            .content(content)
            .meta(meta);
        SessionUpdate::ToolCall(shown)
    };
    push(effects, update);
}

fn push_failed(
    context: &Context<'_>,
    call: &ToolCallId,
    tool: &str,
    failure: &Failure,
    effects: &mut Vec<Effect>,
) {
    let fields = ToolCallUpdateFields::new()
        .status(ToolCallStatus::Failed)
        .raw_output(tool_call::raw_failure(failure));
    if context.gates.terminal_output && tool_call::has_terminal(tool) {
        push_terminal_output(effects, call, &format!("\n[{}]\n", failure.message));
        let exit = tool_call::terminal_exit(call.as_str(), None);
        let update = ToolCallUpdate::new(call.as_str().to_owned(), fields).meta(exit);
        return push(effects, SessionUpdate::ToolCallUpdate(update));
    }
    push_call_update(effects, call, fields.content(vec![tool_call::fenced(&failure.message)]));
}

/// Shows a subagent as a tool call.
fn on_subagent_event(event: &SubagentEvent, effects: &mut Vec<Effect>) {
    match event {
        SubagentEvent::Started { child, name, task } => {
            let title = tool_call::one_line(&format!("{name}: {task}"));
            let shown = ToolCall::new(child.as_str().to_owned(), title)
                .kind(ToolKind::Think)
                .status(ToolCallStatus::InProgress);
            push(effects, SessionUpdate::ToolCall(shown));
        }
        SubagentEvent::Updated { .. } => {}
        SubagentEvent::Done { child, result, .. } => {
            let (status, text) = match result {
                Ok(answer) => (ToolCallStatus::Completed, answer.as_str()),
                Err(failure) => (ToolCallStatus::Failed, failure.message.as_str()),
            };
            let content = pieces(text).take(1).map(tool_call::plain).collect::<Vec<_>>();
            let fields = ToolCallUpdateFields::new().status(status).content(content);
            let update = ToolCallUpdate::new(child.as_str().to_owned(), fields);
            push(effects, SessionUpdate::ToolCallUpdate(update));
        }
    }
}

#[cfg(test)]
mod tests;
