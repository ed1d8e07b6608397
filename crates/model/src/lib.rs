//! Agents, which answer the messages of a session, and the providers of their models.
//!
//! An [`Agent`] gets a [`Turn`] and an [`AgentContext`]. Through the context it writes text and reasoning and calls
//! tools; it knows nothing of sessions, the log or doors. Clients cannot tell whether an agent uses a model, a script or
//! the built-in commands of [`LocalAgent`].
//!
//! `docs/agents.md` describes the agents for users.

mod agent;
mod digest;
mod local;
mod model_agent;
pub mod provider;
mod script;

use std::time::Duration;

pub use agent::{
    Agent, AgentContext, AvailableTools, SpentSoFar, SubagentResult, ToolCall, ToolCallOutput, ToolResult,
    Turn, TurnError,
};
pub use local::LocalAgent;
pub use model_agent::*;
pub use script::{ScriptAgent, ScriptError, ScriptFault, ScriptLocation};

/// The longest wait of [`LocalAgent`] and of one step of a [`ScriptAgent`]. Long enough to test the timeouts of
/// clients.
pub const MAX_WAIT: Duration = Duration::from_secs(600);

/// The interval at which [`LocalAgent`] writes a dot while it waits.
pub const DOT_INTERVAL: Duration = Duration::from_millis(100);

/// How many characters of a message [`LocalAgent`] and [`ScriptAgent`] quote.
pub const MAX_QUOTE_CHARS: usize = 200;

/// How many characters of each message a summary made without a model keeps.
pub const DIGEST_MESSAGE_CHARS: usize = 200;

/// How many messages a summary made without a model keeps: the last ones.
pub const DIGEST_MESSAGES: usize = 40;

/// The largest script file, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 1 << 20;

/// The most `[[on]]` tables in a script. Each one has a compiled pattern, which is larger than its text.
pub const MAX_SCRIPT_PATTERNS: usize = 256;

/// The largest compiled pattern of a script, in bytes of memory.
pub const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The most steps in a script, including those of subagents.
pub const MAX_SCRIPT_STEPS: usize = 10_000;

/// How deep the subagents of a script can be nested.
pub const MAX_SCRIPT_DEPTH: usize = 4;

/// The most text of one step after its captures are filled in, in bytes. A small script that repeats a capture many
/// times could produce very much text.
pub const MAX_STEP_BYTES: usize = 16 << 20;
