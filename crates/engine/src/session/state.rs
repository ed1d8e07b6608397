//! The state of a session, built by applying its events in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parlor_vocab::{
    AgentChoice, AgentId, Entry, HistoryItem, Message, MessageEvent, MessageId, NewSession, PolicyMode,
    QuestionId, QuestionOutcome, QueuedInput, Role, RunEnding, RunEvent, RunId, Seq, SessionEvent, SessionId,
    SessionOverview, StepEvent, StepId, Timestamp, ToolCallId, ToolEvent, ToolUse, Usage, UserInput,
};

use super::PendingQuestion;
use super::history::{History, message_of};

/// How many idempotency keys a session remembers. The oldest are forgotten first.
pub const MAX_KEYS: usize = 256;

/// The state of a session. Only [`apply`](Session::apply) changes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// The position of the last event.
    pub(crate) head: Seq,
    pub(crate) new_session: Option<NewSession>,
    pub(crate) title: Option<String>,
    pub(crate) choice: AgentChoice,
    pub(crate) history: History,
    pub(crate) queue: VecDeque<QueuedInput>,
    /// The run that answers the user, if there is one. The runs of its subagents are in `open` too.
    pub(crate) active: Option<RunId>,
    /// All runs that have not ended.
    pub(crate) open: BTreeMap<RunId, OpenRun>,
    /// The run that each idempotency key started.
    pub(crate) keys: HashMap<Arc<str>, RunId>,
    /// The same keys, the oldest first.
    pub(crate) keys_in_order: VecDeque<Arc<str>>,
    pub(crate) usage: Usage,
    /// The missing agent that the last runs reported: later runs do not report it again.
    pub(crate) reported_missing: Option<AgentId>,
    /// The mode that was chosen for the session.
    pub(crate) mode: Option<PolicyMode>,
    /// The questions that were settled last, the oldest first.
    pub(crate) settled: VecDeque<(QuestionId, QuestionOutcome)>,
    /// What a person last answered to the question whether the project is trusted, if that holds for this session alone.
    pub(crate) trust_answer: Option<bool>,
}

/// A run that has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRun {
    /// The agent that answers, the input, and the message that holds the input. `None` before the `Started` event.
    pub(crate) start: Option<(AgentId, UserInput, MessageId)>,
    /// What the run tells people before its agent answers.
    pub(crate) notice: Option<String>,
    /// The log position before the run's first event.
    pub(crate) origin: Seq,
    /// How many events the run has.
    pub(crate) sequence: u64,
    /// Open steps with their start times.
    pub(crate) steps: Vec<(StepId, Timestamp)>,
    /// The message that the agent is writing.
    pub(crate) message: Option<MessageId>,
    /// Open tool calls with their start times.
    pub(crate) calls: Vec<(ToolCallId, Timestamp)>,
    /// The question that the run waits for.
    pub(crate) question: Option<PendingQuestion>,
}

impl Session {
    /// The position of the last event in the log.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// What the session was created with. `None` before its first event.
    pub fn new_session(&self) -> Option<&NewSession> {
        self.new_session.as_ref()
    }

    /// The title, if the session has one.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The chosen agent, model and reasoning effort.
    pub fn choice(&self) -> &AgentChoice {
        &self.choice
    }

    /// An empty state to apply the events after `position` to. It then has a correct history; other fields may be
    /// wrong.
    pub(crate) fn before_replay(position: Seq) -> Self {
        Self { head: position, ..Self::default() }
    }

    /// Messages, tool uses and unfinished runs, oldest first. Of subagents, only their results.
    pub fn history(&self) -> &[HistoryItem] {
        self.history.items()
    }

    /// Whether the oldest part of [`history`](Self::history) is missing, because it was too large.
    pub fn history_is_cut(&self) -> bool {
        self.history.is_cut()
    }

    /// The messages of the history, oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.history.items().iter().filter_map(message_of)
    }

    /// The queued inputs, in the order in which they will start.
    pub fn queue(&self) -> impl ExactSizeIterator<Item = &QueuedInput> {
        self.queue.iter()
    }

    /// The run that answers the user now, if any.
    pub fn active(&self) -> Option<&RunId> {
        self.active.as_ref()
    }

    /// The message that the active run is writing. Its text is not in the log yet.
    pub fn open_message(&self) -> Option<&MessageId> {
        self.open.get(self.active.as_ref()?)?.message.as_ref()
    }

    /// Adds the text so far of the message that the active run was writing to the history, for a reader of a session
    /// whose process has died. The process that opens the session records it.
    pub(crate) fn show_partial_message(&mut self, message: &MessageId, text: String) {
        if self.open_message() == Some(message) && !text.is_empty() {
            let (id, media) = (message.clone(), Vec::new());
            self.push_message(Message { id, role: Role::Assistant, text, media });
        }
    }

    /// Of an open run: its agent, its input, and the message that holds the input.
    pub fn start_of(&self, run: &RunId) -> Option<(AgentId, UserInput, MessageId)> {
        self.open.get(run)?.start.clone()
    }

    /// What an open run tells people before its agent answers.
    pub(crate) fn notice_of(&self, run: &RunId) -> Option<String> {
        self.open.get(run)?.notice.clone()
    }

    /// The state as a reply to a client. `id` is the session's id.
    pub fn overview(&self, id: SessionId) -> SessionOverview {
        SessionOverview {
            id,
            head: self.head,
            title: self.title.clone(),
            choice: self.choice.clone(),
            history: self.history().to_vec(),
            usage: self.usage,
            queue: self.queue.iter().cloned().collect(),
            active: self.active.clone(),
            mode: self.mode,
            question: self.pending_question().map(|pending| pending.question.clone()),
        }
    }

    /// The mode that was chosen for the session, if any.
    pub fn mode(&self) -> Option<PolicyMode> {
        self.mode
    }

    /// Tokens and cost of all runs.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Applies an event. Callers pass events in the order of the log.
    pub fn apply(&mut self, entry: &Entry) {
        self.head = entry.seq;
        match &entry.event {
            SessionEvent::Created(new_session) => {
                self.title.clone_from(&new_session.title);
                self.choice = new_session.choice.clone();
                self.new_session = Some(new_session.clone());
            }
            SessionEvent::Renamed { title } => self.title = Some(title.clone()),
            SessionEvent::AgentChosen(choice) => {
                let AgentChoice { agent, model, reasoning } = choice.clone();
                self.choice.agent = agent.or(self.choice.agent.take());
                self.choice.model = model.or(self.choice.model.take());
                self.choice.reasoning = reasoning.or(self.choice.reasoning);
            }
            SessionEvent::ModeChosen { mode } => self.mode = Some(*mode),
            SessionEvent::Queued(queued) => {
                self.remember_key(&queued.input, &queued.run);
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
        if self.active.is_none() {
            self.history.settle();
        }
    }

    fn apply_to_run(&mut self, entry: &Entry, run: &RunId, sequence: u64, event: &RunEvent) {
        let at = entry.at;
        let open = self.open.entry(run.clone()).or_default();
        open.sequence = sequence;
        match event {
            RunEvent::Started { parent, agent, missing_agent, input, message, .. } => {
                open.start = Some((agent.clone(), input.clone(), message.clone()));
                open.notice = event.missing_agent_notice();
                open.origin = Seq(entry.seq.0 - 1);
                if parent.is_none() {
                    if missing_agent.is_some() {
                        self.reported_missing.clone_from(missing_agent);
                    } else if self.reported_missing.as_ref() == Some(agent) {
                        self.reported_missing = None;
                    }
                    self.queue.retain(|queued| queued.run != *run);
                    self.remember_key(input, run);
                    self.active = Some(run.clone());
                    let (text, media) = (input.text.clone(), input.media.clone());
                    self.push_message(Message { id: message.clone(), role: Role::User, text, media });
                }
            }
            RunEvent::Steered { input, message } => {
                self.remember_key(input, run);
                let (id, text, media) = (message.clone(), input.text.clone(), input.media.clone());
                self.push_message(Message { id, role: Role::User, text, media });
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
            RunEvent::UsageAdded { usage, .. } => self.usage = self.usage.plus(*usage),
            RunEvent::Message(MessageEvent::Started { message }) => open.message = Some(message.clone()),
            RunEvent::Message(MessageEvent::Completed { message, .. }) => {
                open.message.take_if(|open| open == message);
            }
            RunEvent::Question(event) => self.apply_question(run, event, at),
            RunEvent::Step(StepEvent::Updated { .. } | StepEvent::Reasoned { .. })
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Ended { .. } => {}
        }
        // Messages and tools of a subagent are not part of the session's history.
        if self.active.as_ref() == Some(run) {
            self.add_to_history(event);
        }
        if matches!(event, RunEvent::Ended { .. }) {
            self.open.remove(run);
            self.active.take_if(|active| active == run);
        }
    }

    /// Adds an event of the active run to the history, if it belongs there.
    fn add_to_history(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Message(MessageEvent::Completed { message, text, media }) => {
                let (id, text, media) = (message.clone(), text.clone(), media.clone());
                self.push_message(Message { id, role: Role::Assistant, text, media });
            }
            RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                let (call, tool, input) = (call.clone(), tool.clone(), input.clone());
                self.push_item(HistoryItem::ToolUse(ToolUse { call, tool, input, result: None }));
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, .. }) => {
                self.history.set_tool_result(call, Ok(output.clone()))
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) => {
                self.history.set_tool_result(call, Err(failure.clone()))
            }
            RunEvent::Ended { ending, .. } => match ending {
                RunEnding::Completed { .. } => {}
                RunEnding::Failed(_) => self.push_unfinished(ending),
                RunEnding::Stopped { message, .. } => {
                    // The ending holds the text about the stop; the agent did not write it.
                    self.history.remove_message(message);
                    self.push_unfinished(ending);
                }
            },
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(MessageEvent::Started { .. })
            | RunEvent::Step(_)
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Question(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. } => {}
        }
    }

    fn push_message(&mut self, message: Message) {
        self.push_item(HistoryItem::Message(message));
    }

    fn push_unfinished(&mut self, ending: &RunEnding) {
        let active = self.active.as_ref().and_then(|run| self.open.get(run));
        let input = active.and_then(|run| run.start.as_ref()).map(|(_, _, message)| message.clone());
        self.push_item(HistoryItem::UnfinishedRun { input, ending: ending.clone() });
    }

    /// Adds an item of the active run.
    fn push_item(&mut self, item: HistoryItem) {
        let active = self.active.as_ref().and_then(|run| self.open.get(run));
        self.history.push(item, active.map_or(self.head, |run| run.origin));
    }

    /// The run that an earlier input with the same key, through the same door, started or will start.
    pub(super) fn run_with_key_of(&self, input: &UserInput) -> Option<&RunId> {
        let key = input.key.as_deref()?;
        let run = self.keys.get(&*full_key(input, key));
        // Older versions recorded no sender.
        run.or_else(|| self.keys.get(key))
    }

    fn remember_key(&mut self, input: &UserInput, run: &RunId) {
        let Some(key) = &input.key else { return };
        // The key of a queued input comes twice: when the input is queued and when it starts.
        let key: Arc<str> = full_key(input, key).into();
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

/// A key with the door that it came through: clients of different doors may choose the same key.
fn full_key(input: &UserInput, key: &str) -> String {
    match &input.by {
        Some(by) => format!("{}\n{key}", by.door),
        None => key.to_owned(),
    }
}
