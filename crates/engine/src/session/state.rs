//! What a session is after all that has happened to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    AgentChoice, AgentId, Entry, HistoryItem, Message, MessageEvent, MessageId, NewSession, QueuedInput,
    Role, RunEnding, RunEvent, RunId, Seq, SessionEvent, StepEvent, StepId, Timestamp, ToolCallId, ToolEvent,
    ToolUse, Usage, UserInput,
};

use super::history::{History, message_of};

/// How many idempotency keys a session remembers: the last ones.
pub const MAX_KEYS: usize = 256;

/// A session. Changed only by [`apply`](Session::apply).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    pub(crate) head: Seq,
    pub(crate) new_session: Option<NewSession>,
    pub(crate) title: Option<String>,
    pub(crate) choice: AgentChoice,
    pub(crate) history: History,
    pub(crate) queue: VecDeque<QueuedInput>,
    /// The run that answers the user, if one does. Its subagents' runs are open as well.
    pub(crate) active: Option<RunId>,
    pub(crate) open: BTreeMap<RunId, OpenRun>,
    /// The run that each idempotency key started.
    pub(crate) keys: HashMap<Arc<str>, RunId>,
    /// The same keys, the oldest first.
    pub(crate) keys_in_order: VecDeque<Arc<str>>,
    pub(crate) usage: Usage,
}

/// A run that has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRun {
    /// Who answers, what, and the message that holds it.
    pub(crate) beginning: Option<(AgentId, UserInput, MessageId)>,
    /// The place before its first event.
    pub(crate) origin: Seq,
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
    pub fn new_session(&self) -> Option<&NewSession> {
        self.new_session.as_ref()
    }

    /// What people call it.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// What answers.
    pub fn choice(&self) -> &AgentChoice {
        &self.choice
    }

    /// A session of which only the history is known, once what stands after `place` is applied.
    pub(crate) fn read_after(place: Seq) -> Self {
        Self { head: place, ..Self::default() }
    }

    /// What was said and done, oldest first. Of subagents only what came of them.
    pub fn history(&self) -> &[HistoryItem] {
        self.history.items()
    }

    /// Whether the oldest part of it is missing here, because it was too much.
    pub fn history_is_cut(&self) -> bool {
        self.history.is_cut()
    }

    /// What was said, oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.history.items().iter().filter_map(message_of)
    }

    /// The inputs that wait, in their order.
    pub fn queue(&self) -> impl ExactSizeIterator<Item = &QueuedInput> {
        self.queue.iter()
    }

    /// The run that is active.
    pub fn active(&self) -> Option<&RunId> {
        self.active.as_ref()
    }

    /// Who performs an open run, what it is to answer, and the message that holds that.
    pub fn beginning_of(&self, run: &RunId) -> Option<(AgentId, UserInput, MessageId)> {
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
            SessionEvent::Created(new_session) => {
                self.title.clone_from(&new_session.title);
                self.choice = new_session.choice.clone();
                self.new_session = Some(new_session.clone());
            }
            SessionEvent::Renamed { title } => self.title = Some(title.clone()),
            SessionEvent::Chosen(choice) => {
                let AgentChoice { agent, model, reasoning } = choice.clone();
                self.choice.agent = agent.or(self.choice.agent.take());
                self.choice.model = model.or(self.choice.model.take());
                self.choice.reasoning = reasoning.or(self.choice.reasoning);
            }
            SessionEvent::Queued(queued) => {
                self.remember(queued.input.key.as_deref(), &queued.run);
                self.queue.push_back(queued.clone());
            }
            SessionEvent::Unqueued { runs } => self.queue.retain(|queued| !runs.contains(&queued.run)),
            SessionEvent::Cleared => self.history.clear(entry.seq),
            SessionEvent::Compacted { summary, kept_from } => {
                self.history.compact(summary, kept_from.as_ref(), entry.seq);
            }
            SessionEvent::MessageAdded(message) => {
                self.history.push(HistoryItem::Message(message.clone()), Seq(entry.seq.0 - 1));
            }
            SessionEvent::Run { run, sequence, event } => self.apply_to_run(entry, run, *sequence, event),
        }
    }

    fn apply_to_run(&mut self, entry: &Entry, run: &RunId, sequence: u64, event: &RunEvent) {
        let at = entry.at;
        let open = self.open.entry(run.clone()).or_default();
        open.sequence = sequence;
        match event {
            RunEvent::Started { parent, agent, input, message, .. } => {
                open.beginning = Some((agent.clone(), input.clone(), message.clone()));
                open.origin = Seq(entry.seq.0 - 1);
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
            RunEvent::Step(StepEvent::Started { step, .. }) => open.steps.push((step.clone(), at)),
            RunEvent::Step(StepEvent::Completed { step, .. })
            | RunEvent::Step(StepEvent::Failed { step, .. }) => {
                open.steps.retain(|(open, _)| open != step);
            }
            RunEvent::Tool(ToolEvent::Called { call, .. }) => open.calls.push((call.clone(), at)),
            RunEvent::Tool(ToolEvent::Completed { call, .. })
            | RunEvent::Tool(ToolEvent::Failed { call, .. }) => {
                open.calls.retain(|(open, _)| open != call);
            }
            RunEvent::Consumed { usage, .. } => self.usage = self.usage.plus(*usage),
            RunEvent::Message(_)
            | RunEvent::Step(StepEvent::Updated { .. } | StepEvent::Reasoned { .. })
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Subagent(_)
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
            RunEvent::Message(MessageEvent::Completed { message, text, media }) => {
                let (id, text, media) = (message.clone(), text.clone(), media.clone());
                self.say(Message { id, role: Role::Assistant, text, media });
            }
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                let (call, tool, input) = (call.clone(), tool.clone(), input.clone());
                self.note(HistoryItem::ToolUse(ToolUse { call, tool, input, result: None }));
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, .. }) => {
                self.history.give_back(call, Ok(output.clone()))
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) => {
                self.history.give_back(call, Err(failure.clone()))
            }
            RunEvent::Ended { ending, .. } => match ending {
                RunEnding::Completed { .. } => {}
                RunEnding::Failed(_) => self.note(HistoryItem::BrokenOff(ending.clone())),
                RunEnding::Stopped { message, .. } => {
                    // The words about the stop are in the ending; nobody said them.
                    self.history.take_out(message);
                    self.note(HistoryItem::BrokenOff(ending.clone()));
                }
            },
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(MessageEvent::Started { .. })
            | RunEvent::Step(_)
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Consumed { .. } => {}
        }
    }

    fn say(&mut self, message: Message) {
        self.note(HistoryItem::Message(message));
    }

    /// Adds what belongs to the active run.
    fn note(&mut self, item: HistoryItem) {
        let active = self.active.as_ref().and_then(|run| self.open.get(run));
        self.history.push(item, active.map_or(self.head, |run| run.origin));
    }

    fn remember(&mut self, key: Option<&str>, run: &RunId) {
        let Some(key) = key else { return };
        // A queued input is remembered when it is queued, and again when it starts.
        let key: Arc<str> = key.into();
        if self.keys.insert(Arc::clone(&key), run.clone()).is_none() {
            self.keys_in_order.push_back(key);
        }
        if self.keys_in_order.len() > MAX_KEYS
            && let Some(oldest) = self.keys_in_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}
