//! The words that all of parlor shares: ids, commands, events and refusals.
//!
//! Words only. Nothing here does anything, nothing here can be serialized (each door spells an
//! event in its own way, and so does the log), and nothing of ours is depended on.

mod event;
mod house;
mod id;
mod office;
mod process;
mod refusal;
mod seen;
mod session;
mod talk;
mod time;
mod workshop;

pub use event::{Draft, Entry, RunEvent, Scope, Seq, SessionEvent, StepKind};
pub use house::{File, FileFlaw, HouseCommand, HouseEvent, HouseReply, Overview, Place};
pub use id::{
    AgentId, EventId, IdError, MAX_ID_BYTES, MediaId, MessageId, ProcessId, RunId, SessionId, StepId,
    ToolCallId,
};
pub use office::{
    Chat, EndSignal, Hidden, Kept, LoggedIn, LoginAccount, LoginFlaw, LoginStep, LoginWay, Logins, Offer,
    OfficeCommand, OfficeEvent, OfficeReply, PathFlaw, SavedChat, SkillLine, Skills, WantedChat,
};
pub use process::{Command, Ending, Event, Reply, StartProcess, Stdio, Stream};
pub use refusal::Refusal;
pub use seen::{Seen, Subject};
pub use session::{
    Birth, Choice, Failure, Fork, Input, Media, Message, Passage, Queued, Reasoning, Role, RunEnding,
    ToolUse, Usage,
};
pub use talk::{PROGRAM_ENDS, SessionCommand, SessionReply, WhenBusy};
pub use time::{Clock, IdSource, Timestamp, UniqueNumber};
pub use workshop::{
    CallKey, Caller, ConsoleLog, Evaluated, ModelCall, ModelFailure, RubyFailure, RubyFailureKind, ToolEntry,
    ToolOutput, Work, WorkshopCommand, WorkshopReply,
};
