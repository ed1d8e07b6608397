//! The types that all crates of parlor share: ids, requests, replies, events and refusals.
//!
//! The crate has data types, traits and two helpers that shorten text. It does no I/O and depends on no other crate of
//! parlor. Its types cannot be serialized: each door and the log define their own wire or storage form of them.

mod backend;
mod command;
mod event;
mod executor;
mod failure;
mod file_request;
mod frontend;
mod http_request;
mod id;
mod message_count;
mod peer;
mod policy;
mod process;
mod question;
mod refusal;
mod registry;
mod ruby;
mod sandbox_intent;
mod session;
mod time;
mod tool;
mod tool_client;
mod traceparent;
mod truncate;
mod update;

pub use backend::{Answer, Backend, Ticket, Update, UpdateOf};
pub use command::{MAX_KEY_BYTES, SessionCommand, SessionReply, WhenBusy};
pub use event::{
    Entry, ErrorScope, MessageEvent, NewEntry, RunEvent, Seq, SessionEvent, StepEvent, StepKind,
    SubagentEvent, ToolEvent,
};
pub use executor::{
    EnvironmentBase, EnvironmentInfo, EnvironmentPolicy, ExecutorEvent, ExecutorRefusal, ExecutorReply,
    ExecutorRequest, OutputPage, ReadOutput, SequencedChunk, StartSequenced, WorkOrigin, WriteOutcome,
};
pub use failure::{Failure, FailureCode};
pub use file_request::{FileAction, FileFacts, FileReply, FollowLinks, ListedFile, WalkOptions, WalkedTree};
pub use frontend::{
    ChatSelector, ChatSummary, ClientMcpServer, ClientMcpTransport, CompletedLogin, Credentials,
    FrontendEvent, FrontendReply, FrontendRequest, ListedSession, LoginAccount, LoginFailure, LoginMethod,
    LoginStep, ModelLists, ModelOption, Preferences, SavedChat, SecretText, SessionDescription,
    ShutdownSignal, SkillList, SkillSummary,
};
pub use http_request::{HttpError, HttpReply, HttpRequest};
pub use id::{
    AgentId, EventId, IdError, MAX_ID_BYTES, MediaId, MessageId, ProcessId, QuestionId, RunId, SessionId,
    StepId, ToolCallId,
};
pub use message_count::{CountedItem, MessageCounter};
pub use peer::{PeerEvent, PeerReply, PeerRequest, PeerUpdate};
pub use policy::{PolicyMode, PolicyRule, RuleAction};
pub use process::{
    OutputStream, ProcessEvent, ProcessExit, ProcessReply, ProcessRequest, StartProcess, StdioKind,
};
pub use question::{Question, QuestionAnswer, QuestionEvent, QuestionKind, QuestionOutcome};
pub use refusal::{ClosingPart, ProcessRefusal, RubyRefusal, SessionRefusal};
pub use registry::{
    FileError, NamedFile, RegistryEvent, RegistryReply, RegistryRequest, SessionOverview, SessionTotals,
    WatchFrom,
};
pub use ruby::{
    CallKey, Caller, ConsoleLog, EvaluationResult, RepeatKey, RubyFailure, RubyFailureKind, RubyJob,
    RubyReply, RubyRequest, UpstreamCall, UpstreamError,
};
pub use sandbox_intent::{PathAccess, PathRule, SandboxIntent};
pub use session::{
    AgentChoice, ForkOrigin, HistoryItem, Media, Message, NewSession, QueuedInput, Reasoning, Role,
    RunEnding, Sender, StopCause, ToolUse, Usage, UserInput,
};
pub use time::{Clock, IdSource, Timestamp, UniqueNumber};
pub use tool::{
    TOOL_DIFF_BYTES, TOOL_IMAGES, TOOL_RESOURCE_BYTES, TOOL_RESOURCES, TOOL_STRUCTURED_BYTES,
    ToolAnnotations, ToolDetails, ToolDiff, ToolImage, ToolInfo, ToolOutput, ToolResource,
};
pub use tool_client::{RunReport, RunState, ToolClientEvent, ToolClientReply, ToolClientRequest};
pub use traceparent::Traceparent;
pub use truncate::{truncate_chars, truncate_middle};
pub use update::{SessionUpdate, StreamKind};
