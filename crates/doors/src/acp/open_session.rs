//! A session that the client has open: its outstanding prompts, and what its updates need of earlier events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use agent_client_protocol_schema::v1::{Error, RequestId, SessionUpdate, StopReason};
use parlor_vocab::{AgentId, Question, QuestionId, RunId, Seq, ToolCallId, Usage};

use super::code;
use super::options::{OptionChange, OptionValues};
use super::prompts::Prompt;
use super::tool_call::OutputTail;

/// What the client agreed to in `initialize`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gates {
    pub(super) terminal_output: bool,
    pub(super) notices: bool,
    pub(super) compaction: bool,
    pub(super) elicitation_url: bool,
    /// Whether the client was offered a way to log in.
    pub(super) can_log_in: bool,
}

/// An open session.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) folder: PathBuf,
    pub(super) options: OptionValues,
    /// The request that opens the session, until it is answered.
    pub(super) opening: Option<Opening>,
    /// The last event that the watch reported.
    pub(super) last: Seq,
    /// The unanswered prompts, first to run first.
    pub(super) prompts: VecDeque<Prompt>,
    /// The keys of inputs of this connection that steer a run.
    pub(super) steering: HashSet<String>,
    /// The active run, whoever began it; not that of a subagent.
    pub(super) active: Option<RunId>,
    /// Runs of subagents that have not ended.
    pub(super) subagents: HashSet<RunId>,
    /// The calls that have no result yet.
    pub(super) calls: HashMap<ToolCallId, Call>,
    /// The question that the active run waits for.
    pub(super) question: Option<Question>,
    /// How many bytes of each unfinished text the client has.
    pub(super) shown_bytes: HashMap<String, usize>,
    /// The messages that have begun and are not complete.
    pub(super) open_messages: HashSet<String>,
    /// The tokens of the last model call, and the model.
    pub(super) last_usage: Option<(Usage, Option<String>)>,
    /// The cost of all runs in millionths of a dollar.
    pub(super) cost_micros: u64,
    /// How many changes of the options wait for the backend. Their answers show the new options.
    pub(super) pending_choices: usize,
    /// The changes of this connection whose events the watch has not reported yet, oldest first.
    pub(super) unseen_choices: VecDeque<OptionChange>,
    /// The agent whose slash commands the client was last shown.
    pub(super) commands_shown: Option<AgentId>,
    /// Whether the client has brought MCP servers for this session.
    pub(super) uses_servers: bool,
    /// What the user has to be told once about this session.
    pub(super) note: Option<String>,
    /// The request that ends the session here once its prompts are answered.
    pub(super) ending: Option<(RequestId, EndingKind)>,
}

/// How a session ends on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndingKind {
    /// `session/close`
    Close,
    /// `session/delete`
    Delete,
}

/// A request that opens a session.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) id: RequestId,
    pub(super) kind: OpeningKind,
    /// The last event to show before the answer; `None` until the watch has begun.
    pub(super) until: Option<Seq>,
}

/// How a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningKind {
    /// `session/new`
    New,
    /// `session/load`
    Load,
    /// `session/resume`
    Resume,
}

/// A tool call without a result.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) run: RunId,
    pub(super) tool: String,
    /// Whether the input is complete. Before that the client sees a pending call.
    pub(super) is_called: bool,
    pub(super) output: OutputTail,
    /// When the output was last shown to a client without display terminals.
    pub(super) shown_at: Option<Instant>,
    /// Whether there is output that such a client has not got yet.
    pub(super) has_unshown_output: bool,
}

impl Call {
    pub(super) fn new(run: RunId, tool: String) -> Self {
        Self {
            run,
            tool,
            is_called: false,
            output: OutputTail::default(),
            shown_at: None,
            has_unshown_output: false,
        }
    }
}

/// What an event makes the door send, in order.
#[derive(Debug)]
pub(super) enum Effect {
    /// A `session/update`.
    Update(Box<SessionUpdate>),
    /// A question to the user.
    Ask(Box<Question>),
    /// A question is settled.
    Settled(QuestionId),
    /// The answer to a prompt.
    Answer(RequestId, Result<StopReason, Error>),
}

impl OpenSession {
    pub(super) fn new(folder: PathBuf, options: OptionValues, opening: Opening) -> Self {
        Self {
            folder,
            options,
            opening: Some(opening),
            last: Seq::START,
            prompts: VecDeque::new(),
            steering: HashSet::new(),
            active: None,
            subagents: HashSet::new(),
            calls: HashMap::new(),
            question: None,
            shown_bytes: HashMap::new(),
            open_messages: HashSet::new(),
            last_usage: None,
            cost_micros: 0,
            pending_choices: 0,
            unseen_choices: VecDeque::new(),
            commands_shown: None,
            uses_servers: false,
            note: None,
            ending: None,
        }
    }

    /// Whether the client has not got the whole history yet.
    pub(super) fn is_replaying(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.kind == OpeningKind::Load)
    }

    /// Forgets what earlier events said, because the log is read again from its start.
    pub(super) fn begin_again(&mut self, opening: Opening) {
        self.opening = Some(opening);
        self.last = Seq::START;
        self.active = None;
        self.subagents.clear();
        self.calls.clear();
        self.question = None;
        self.shown_bytes.clear();
        self.open_messages.clear();
        self.last_usage = None;
        self.cost_micros = 0;
    }

    /// Whether a prompt may be added, or why not.
    pub(super) fn check_prompt(&self) -> Result<(), Error> {
        if self.ending.is_some() {
            return Err(code::invalid_request("the session is being closed"));
        }
        if self.prompts.len() >= super::MAX_PROMPTS {
            return Err(code::too_many_prompts());
        }
        Ok(())
    }
}
