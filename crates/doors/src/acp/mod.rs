//! The ACP door: the Agent Client Protocol, version 1, by which editors talk to agents (`docs/protocols/acp.md`).
//!
//! JSON-RPC 2.0, one object for each frame. The types of the protocol come from `agent-client-protocol-schema`; nothing
//! else of it is used. The door leaves out what is not stable, and the parts of the client that would do the agent's work
//! (`fs/*`, `terminal/*`): parlor's own tools have limits, a log and a sandbox.

mod code;
mod commands;
mod dispatch;
mod encode;
mod envelope;
mod handshake;
mod login;
mod machine;
mod mcp_servers;
mod open_session;
mod options;
mod params;
mod pending;
mod permission;
mod prompt;
mod prompts;
mod sessions;
mod tool_call;
mod turns;
mod updates;

pub use dispatch::METHODS;
pub use machine::AcpMachine;
pub use params::{AcpAgent, AcpParams, SlashCommand};

/// The name of this door in sessions and inputs.
pub const DOOR: &str = "acp";

/// The longest frame that a client may send.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The longest id of a request, in bytes of JSON. Answers repeat it.
pub const MAX_ID_BYTES: usize = 1024;

/// How many JSON values a frame may contain. A tree of many tiny values takes a hundred times the memory of its text.
pub const MAX_FRAME_VALUES: usize = 200_000;

/// How many sessions a connection may have open.
pub const MAX_SESSIONS: usize = 64;

/// How many requests may wait for the backend before the door reads the next frame. Prompts and logins do not count.
pub const MAX_PENDING: usize = 64;

/// How many prompts of one session may be unanswered.
pub const MAX_PROMPTS: usize = 64;

/// How many texts of one session may steer a run that has not read them.
pub const MAX_STEERING: usize = 64;

/// How many logins may run at a time.
pub const MAX_LOGINS: usize = 4;

/// How many MCP servers of the client a session uses.
pub const MAX_MCP_SERVERS: usize = 32;

/// How many bytes the name, the command, the arguments, the environment, the address and the headers of an MCP server have
/// together.
pub const MAX_MCP_SERVER_BYTES: usize = 64 << 10;

/// The longest piece of text in one frame. JSON may write each byte as six, and no frame is longer than 1 MiB.
pub const TEXT_PIECE_BYTES: usize = 128 << 10;

/// An embedded text up to this size becomes a part of the message; a longer one is attached as a file.
pub const EMBEDDED_TEXT_BYTES: usize = 64 << 10;

/// The largest file in a prompt, in bytes after base64.
pub const MAX_BLOCK_BYTES: usize = 48 << 20;

/// How many content blocks a prompt may have.
pub const MAX_BLOCKS: usize = 1024;

/// How much of a tool's input or result is repeated as `rawInput` or `rawOutput`, and of a diff.
pub const RAW_BYTES: usize = 64 << 10;

/// How much of the end of a running tool's output is shown to a client without display terminals.
pub const OUTPUT_TAIL_BYTES: usize = 16 << 10;

/// How long a client without display terminals waits at least for more output of a running tool.
pub const OUTPUT_INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);

/// The longest title of a tool call.
pub const TITLE_BYTES: usize = 512;

/// How many sessions a page of `session/list` has.
pub const LIST_PAGE: usize = 50;
