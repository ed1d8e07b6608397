//! What a session is after all that has happened to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use parlor_vocab::{
    AgentId, Birth, Choice, Entry, Input, Message, Queued, Role, RunEvent, RunId, Seq, SessionEvent, StepId,
    ToolCallId, Usage,
};

/// A session. Changed only by [`apply`](Session::apply).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    pub(crate) head: Seq,
    pub(crate) birth: Option<Birth>,
    pub(crate) title: Option<String>,
    pub(crate) choice: Choice,
    pub(crate) messages: Vec<Message>,
    pub(crate) queue: VecDeque<Queued>,
    /// The run that answers the user, if one does. Its subagents' runs are open as well.
    pub(crate) active: Option<RunId>,
    pub(crate) open: BTreeMap<RunId, OpenRun>,
    /// The run that each idempotency key started.
    pub(crate) keys: HashMap<String, RunId>,
    pub(crate) usage: Usage,
}

/// A run that has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRun {
    /// What it is to answer, and who does.
    pub(crate) beginning: Option<(AgentId, Input)>,
    /// How many events it has had.
    pub(crate) sequence: u64,
    /// Steps that have begun and not ended.
    pub(crate) steps: Vec<StepId>,
    /// Tool calls that have begun and not ended.
    pub(crate) calls: Vec<ToolCallId>,
}

impl Session {
    /// Where its log ends.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// What it was created with; nothing before its first event.
    pub fn birth(&self) -> Option<&Birth> {
        self.birth.as_ref()
    }

    /// What people call it.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// What answers.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What was said, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The inputs that wait, in their order.
    pub fn queue(&self) -> impl ExactSizeIterator<Item = &Queued> {
        self.queue.iter()
    }

    /// The run that is active.
    pub fn active(&self) -> Option<&RunId> {
        self.active.as_ref()
    }

    /// What an open run is to answer, and who does.
    pub fn beginning_of(&self, run: &RunId) -> Option<(AgentId, Input)> {
        self.open.get(run)?.beginning.clone()
    }

    /// What all runs have consumed.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Takes in what has happened. Entries come in the order of the log.
    pub fn apply(&mut self, entry: &Entry) {
        self.head = entry.seq;
        match &entry.event {
            SessionEvent::Created(birth) => {
                self.title.clone_from(&birth.title);
                self.choice = birth.choice.clone();
                self.birth = Some(birth.clone());
            }
            SessionEvent::Renamed { title } => self.title = Some(title.clone()),
            SessionEvent::Chosen(choice) => {
                let Choice { agent, model, reasoning } = choice.clone();
                self.choice.agent = agent.or(self.choice.agent.take());
                self.choice.model = model.or(self.choice.model.take());
                self.choice.reasoning = reasoning.or(self.choice.reasoning);
            }
            SessionEvent::Queued(queued) => {
                self.remember(queued.input.key.as_deref(), &queued.run);
                self.queue.push_back(queued.clone());
            }
            SessionEvent::Unqueued { runs } => self.queue.retain(|queued| !runs.contains(&queued.run)),
            SessionEvent::Cleared => self.messages.clear(),
            SessionEvent::Compacted { summary, kept_from } => self.compact(summary, kept_from.as_ref()),
            SessionEvent::MessageAdded(message) => self.messages.push(message.clone()),
            SessionEvent::Run { run, sequence, event } => self.apply_to_run(run, *sequence, event),
        }
    }

    fn compact(&mut self, summary: &Message, kept_from: Option<&parlor_vocab::MessageId>) {
        let kept = kept_from.and_then(|id| self.messages.iter().position(|message| message.id == *id));
        let kept = self.messages.split_off(kept.unwrap_or(self.messages.len()));
        self.messages = std::iter::once(summary.clone()).chain(kept).collect();
    }

    fn apply_to_run(&mut self, run: &RunId, sequence: u64, event: &RunEvent) {
        let open = self.open.entry(run.clone()).or_default();
        open.sequence = sequence;
        match event {
            RunEvent::Started { parent, agent, input, message, .. } => {
                open.beginning = Some((agent.clone(), input.clone()));
                if parent.is_none() {
                    self.queue.retain(|queued| queued.run != *run);
                    self.remember(input.key.as_deref(), run);
                    self.active = Some(run.clone());
                    self.messages.push(Message {
                        id: message.clone(),
                        role: Role::User,
                        text: input.text.clone(),
                        media: input.media.clone(),
                    });
                }
            }
            RunEvent::Steered { text, message } => {
                let (id, text) = (message.clone(), text.clone());
                self.messages.push(Message { id, role: Role::User, text, media: Vec::new() });
            }
            RunEvent::MessageCompleted { message, text, media } => {
                // What a subagent says is for the run that asked it.
                if self.active.as_ref() == Some(run) {
                    let (id, text, media) = (message.clone(), text.clone(), media.clone());
                    self.messages.push(Message { id, role: Role::Assistant, text, media });
                }
            }
            RunEvent::StepStarted { step, .. } => open.steps.push(step.clone()),
            RunEvent::StepCompleted { step, .. } | RunEvent::StepFailed { step, .. } => {
                open.steps.retain(|open| open != step);
            }
            RunEvent::ToolCalled { call, .. } => open.calls.push(call.clone()),
            RunEvent::ToolCompleted { call, .. } | RunEvent::ToolFailed { call, .. } => {
                open.calls.retain(|open| open != call);
            }
            RunEvent::Consumed { usage, .. } => add(&mut self.usage, *usage),
            RunEvent::Ended { .. } => {
                self.open.remove(run);
                if self.active.as_ref() == Some(run) {
                    self.active = None;
                }
            }
            RunEvent::MessageStarted { .. }
            | RunEvent::StepUpdated { .. }
            | RunEvent::Reasoned { .. }
            | RunEvent::ToolProgressed { .. }
            | RunEvent::SubagentStarted { .. }
            | RunEvent::SubagentUpdated { .. }
            | RunEvent::SubagentDone { .. }
            | RunEvent::ErrorRaised { .. } => {}
        }
    }

    fn remember(&mut self, key: Option<&str>, run: &RunId) {
        if let Some(key) = key {
            self.keys.insert(key.to_owned(), run.clone());
        }
    }
}

fn add(total: &mut Usage, more: Usage) {
    total.input_tokens += more.input_tokens;
    total.output_tokens += more.output_tokens;
    total.cache_read_tokens += more.cache_read_tokens;
    total.cache_write_tokens += more.cache_write_tokens;
    total.cost_micros += more.cost_micros;
}
