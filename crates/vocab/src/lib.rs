//! The words that all of parlor shares: ids, commands, events and refusals.
//!
//! Words only. Nothing here does anything, nothing here can be serialized (each door spells an
//! event in its own way, and so does the log), and nothing of ours is depended on.

mod backend;
mod command;
mod event;
mod failure;
mod frontend;
mod id;
mod process;
mod refusal;
mod registry;
mod ruby;
mod session;
mod time;
mod update;

pub use backend::{Answer, Backend, Ticket, Update, UpdateOf};
pub use command::{SessionCommand, SessionReply, WhenBusy};
pub use event::{
    Entry, ErrorScope, MessageEvent, NewEntry, RunEvent, Seq, SessionEvent, StepEvent, StepKind,
    SubagentEvent, ToolEvent,
};
pub use failure::{Failure, FailureCode};
pub use frontend::{
    ChatSelector, ChatSummary, CompletedLogin, Credentials, FrontendEvent, FrontendReply, FrontendRequest,
    LoginAccount, LoginFailure, LoginMethod, LoginStep, ModelOption, Preferences, SavedChat, SecretText,
    ShutdownSignal, SkillList, SkillSummary,
};
pub use id::{
    AgentId, EventId, IdError, MAX_ID_BYTES, MediaId, MessageId, ProcessId, RunId, SessionId, StepId,
    ToolCallId,
};
pub use process::{
    OutputStream, ProcessEvent, ProcessExit, ProcessReply, ProcessRequest, StartProcess, StdioKind,
};
pub use refusal::{ClosingPart, ProcessRefusal, RubyRefusal, SessionRefusal};
pub use registry::{
    FileError, NamedFile, RegistryEvent, RegistryReply, RegistryRequest, SessionOverview, WatchFrom,
};
pub use ruby::{
    CallKey, Caller, ConsoleLog, EvaluationResult, RubyFailure, RubyFailureKind, RubyJob, RubyReply,
    RubyRequest, ToolInfo, ToolOutput, UpstreamCall, UpstreamError,
};
pub use session::{
    AgentChoice, Fork, HistoryItem, Media, Message, NewSession, QueuedInput, Reasoning, Role, RunEnding,
    StopCause, ToolUse, Usage, UserInput,
};
pub use time::{Clock, IdSource, Timestamp, UniqueNumber};
pub use update::{SessionUpdate, StreamKind};
