//! What a session is after all that has happened to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use parlor_vocab::{
    AgentId, Birth, Choice, Entry, Failure, Input, Message, MessageId, Passage, Queued, Role, RunEnding,
    RunEvent, RunId, Seq, SessionEvent, StepId, Timestamp, ToolCallId, ToolUse, Usage,
};

/// How many idempotency keys a session remembers: the last ones.
pub const MAX_KEYS: usize = 4096;

/// A session. Changed only by [`apply`](Session::apply).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    pub(crate) head: Seq,
    pub(crate) birth: Option<Birth>,
    pub(crate) title: Option<String>,
    pub(crate) choice: Choice,
    pub(crate) history: Vec<Passage>,
    pub(crate) queue: VecDeque<Queued>,
    /// The run that answers the user, if one does. Its subagents' runs are open as well.
    pub(crate) active: Option<RunId>,
    pub(crate) open: BTreeMap<RunId, OpenRun>,
    /// The run that each idempotency key started.
    pub(crate) keys: HashMap<String, RunId>,
    /// The same keys, the oldest first.
    pub(crate) keys_in_order: VecDeque<String>,
    pub(crate) usage: Usage,
}

/// A run that has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRun {
    /// What it is to answer, and who does.
    pub(crate) beginning: Option<(AgentId, Input)>,
    /// How many events it has had.
    pub(crate) sequence: u64,
    /// Steps that have begun and not ended, and when they began.
    pub(crate) steps: Vec<(StepId, Timestamp)>,
    /// Tool calls that have begun and not ended, and when they began.
    pub(crate) calls: Vec<(ToolCallId, Timestamp)>,
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

    /// What was said and done, oldest first. Of subagents only what came of them.
    pub fn history(&self) -> &[Passage] {
        &self.history
    }

    /// What was said, oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.history.iter().filter_map(message_of)
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
            SessionEvent::Cleared => self.history.clear(),
            SessionEvent::Compacted { summary, kept_from } => self.compact(summary, kept_from.as_ref()),
            SessionEvent::MessageAdded(message) => self.history.push(Passage::Message(message.clone())),
            SessionEvent::Run { run, sequence, event } => self.apply_to_run(entry.at, run, *sequence, event),
        }
    }

    fn compact(&mut self, summary: &Message, kept_from: Option<&MessageId>) {
        let kept = kept_from.and_then(|id| self.history.iter().position(|passage| is_message(passage, id)));
        let kept = self.history.split_off(kept.unwrap_or(self.history.len()));
        self.history = std::iter::once(Passage::Message(summary.clone())).chain(kept).collect();
    }

    fn apply_to_run(&mut self, at: Timestamp, run: &RunId, sequence: u64, event: &RunEvent) {
        let open = self.open.entry(run.clone()).or_default();
        open.sequence = sequence;
        match event {
            RunEvent::Started { parent, agent, input, message, .. } => {
                open.beginning = Some((agent.clone(), input.clone()));
                if parent.is_none() {
                    self.queue.retain(|queued| queued.run != *run);
                    self.remember(input.key.as_deref(), run);
                    self.active = Some(run.clone());
                    let (text, media) = (input.text.clone(), input.media.clone());
                    self.say(Message { id: message.clone(), role: Role::User, text, media });
                }
            }
            RunEvent::Steered { input, message } => {
                self.remember(input.key.as_deref(), run);
                let (id, text, media) = (message.clone(), input.text.clone(), input.media.clone());
                self.say(Message { id, role: Role::User, text, media });
            }
            RunEvent::StepStarted { step, .. } => open.steps.push((step.clone(), at)),
            RunEvent::StepCompleted { step, .. } | RunEvent::StepFailed { step, .. } => {
                open.steps.retain(|(open, _)| open != step);
            }
            RunEvent::ToolCalled { call, .. } => open.calls.push((call.clone(), at)),
            RunEvent::ToolCompleted { call, .. } | RunEvent::ToolFailed { call, .. } => {
                open.calls.retain(|(open, _)| open != call);
            }
            RunEvent::Consumed { usage, .. } => self.usage = self.usage.plus(*usage),
            RunEvent::MessageStarted { .. }
            | RunEvent::MessageCompleted { .. }
            | RunEvent::StepUpdated { .. }
            | RunEvent::Reasoned { .. }
            | RunEvent::ToolProgressed { .. }
            | RunEvent::SubagentStarted { .. }
            | RunEvent::SubagentUpdated { .. }
            | RunEvent::SubagentDone { .. }
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Ended { .. } => {}
        }
        // What a subagent says and does is for the run that asked it.
        if self.active.as_ref() == Some(run) {
            self.remember_passage(event);
        }
        if matches!(event, RunEvent::Ended { .. }) {
            self.open.remove(run);
            self.active.take_if(|active| active == run);
        }
    }

    /// What of the active run is there to look back on.
    fn remember_passage(&mut self, event: &RunEvent) {
        match event {
            RunEvent::MessageCompleted { message, text, media } => {
                let (id, text, media) = (message.clone(), text.clone(), media.clone());
                self.say(Message { id, role: Role::Assistant, text, media });
            }
            RunEvent::ToolCalled { call, tool, input, .. } => {
                let (call, tool, input) = (call.clone(), tool.clone(), input.clone());
                self.history.push(Passage::ToolUse(ToolUse { call, tool, input, result: None }));
            }
            RunEvent::ToolCompleted { call, output, .. } => self.give_back(call, Ok(output.clone())),
            RunEvent::ToolFailed { call, failure, .. } => self.give_back(call, Err(failure.clone())),
            RunEvent::Ended { ending, .. } => match ending {
                RunEnding::Completed { .. } => {}
                RunEnding::Failed(_) => self.history.push(Passage::BrokenOff(ending.clone())),
                RunEnding::Stopped { message, .. } => {
                    // The words about the stop are in the ending; nobody said them.
                    self.history.retain(|passage| !is_message(passage, message));
                    self.history.push(Passage::BrokenOff(ending.clone()));
                }
            },
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::MessageStarted { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepUpdated { .. }
            | RunEvent::StepCompleted { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::Reasoned { .. }
            | RunEvent::ToolProgressed { .. }
            | RunEvent::SubagentStarted { .. }
            | RunEvent::SubagentUpdated { .. }
            | RunEvent::SubagentDone { .. }
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Consumed { .. } => {}
        }
    }

    fn say(&mut self, message: Message) {
        self.history.push(Passage::Message(message));
    }

    fn give_back(&mut self, call: &ToolCallId, result: Result<String, Failure>) {
        // The call is near the end: its run is the active one.
        let used = self.history.iter_mut().rev().find_map(|passage| match passage {
            Passage::ToolUse(used) if used.call == *call => Some(used),
            Passage::ToolUse(_) | Passage::Message(_) | Passage::BrokenOff(_) => None,
        });
        if let Some(used) = used {
            used.result = Some(result);
        }
    }

    fn remember(&mut self, key: Option<&str>, run: &RunId) {
        let Some(key) = key else { return };
        // A queued input is remembered when it is queued, and again when it starts.
        if self.keys.insert(key.to_owned(), run.clone()).is_none() {
            self.keys_in_order.push_back(key.to_owned());
        }
        if self.keys_in_order.len() > MAX_KEYS
            && let Some(oldest) = self.keys_in_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}

fn message_of(passage: &Passage) -> Option<&Message> {
    match passage {
        Passage::Message(message) => Some(message),
        Passage::ToolUse(_) | Passage::BrokenOff(_) => None,
    }
}

fn is_message(passage: &Passage, id: &MessageId) -> bool {
    message_of(passage).is_some_and(|message| message.id == *id)
}
