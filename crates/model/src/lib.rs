//! What answers in a session: agents, and the stage on which they perform.
//!
//! An agent gets a [`Turn`] and performs it on a [`AgentContext`]: it speaks, thinks and calls tools there,
//! and never learns what a session, a log or a door is. Whether it is a model, a script or the
//! built-in local agent makes no difference to whoever watches.
//!
//! `docs/agents.md` describes the agents for those who use them.

mod agent;
mod digest;
mod local;
mod model_agent;
pub mod provider;
mod quote;
mod script;

use std::time::Duration;

pub use agent::{Agent, AgentContext, SpentSoFar, ToolCall, ToolCallOutput, ToolResult, Turn, TurnError};
pub use local::LocalAgent;
pub use model_agent::*;
pub use script::{ScriptAgent, ScriptError, ScriptFault, ScriptLocation};

/// The longest wait that [`LocalAgent`] or one step of a [`ScriptAgent`] can be asked for. Long
/// enough for every timeout that a client may want to try.
pub const MAX_WAIT: Duration = Duration::from_secs(600);

/// How often [`LocalAgent`] ticks while it waits.
pub const TICK: Duration = Duration::from_millis(100);

/// How much of a message is quoted in an answer to it.
pub const MAX_QUOTE_CHARS: usize = 200;

/// How much of each message is kept in a summary that no model wrote.
pub const DIGEST_MESSAGE_CHARS: usize = 200;

/// How many messages are kept in such a summary: the last ones.
pub const DIGEST_MESSAGES: usize = 40;

/// The largest script file.
pub const MAX_SCRIPT_BYTES: usize = 1 << 20;

/// The most `[[on]]` in a script. Each has a compiled pattern, which is larger than its text.
pub const MAX_SCRIPT_PATTERNS: usize = 256;

/// The most memory that one compiled pattern of a script takes, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The most steps in a script, those of subagents included.
pub const MAX_SCRIPT_STEPS: usize = 10_000;

/// How deep subagents of a script can have subagents of their own.
pub const MAX_SCRIPT_DEPTH: usize = 4;

/// The most text that one step of a script performs, once captures are filled in. A prompt that is
/// repeated a thousand times by a small script is larger than either.
pub const MAX_STEP_BYTES: usize = 16 << 20;
