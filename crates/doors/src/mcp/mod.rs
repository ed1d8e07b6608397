//! The MCP door: the Model Context Protocol, by which other agents use parlor's tools and delegate work to its sessions
//! (`docs/protocols/mcp.md`).
//!
//! JSON-RPC 2.0, one object for each frame. Two eras of the protocol are served side by side: in the legacy one
//! (2024-11-05 to 2025-11-25) a client opens with `initialize`, in the modern one (2026-07-28) every request says all
//! about itself in `_meta`. The door leaves out resources, prompts, sampling, roots, logging and tasks.

mod calls;
mod code;
mod dispatch;
mod encode;
mod envelope;
mod era;
mod http;
mod items;
mod machine;
mod params;
mod session_calls;
mod session_tools;

pub use dispatch::METHODS;
pub use era::{LEGACY_VERSIONS, MODERN_VERSION};
pub use http::{HttpHeaders, HttpMessage, HttpRefusal, answer_status, read_post};
pub use machine::McpMachine;
pub use params::{McpParams, McpTools, McpTransport};
pub use session_tools::SESSION_TOOLS;

use std::time::Duration;

/// The name of this door in sessions and inputs.
pub const DOOR: &str = "mcp";

/// The longest frame that a client may send on stdio.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The longest body of a request over HTTP.
pub const MAX_HTTP_BODY_BYTES: usize = 4 << 20;

/// The longest arguments of a call, in bytes. Longer ones would wait in the queue, and then the tool would refuse them.
pub const MAX_ARGUMENTS_BYTES: usize = 16 << 20;

/// How many JSON values a frame may contain. A tree of many tiny values takes a hundred times the memory of its text.
pub const MAX_FRAME_VALUES: usize = 200_000;

/// How many calls of parlor's own tools run at a time on one connection; others wait for them.
pub const MAX_RUNNING_CALLS: usize = 16;

/// How many requests of one connection may be unanswered.
pub const MAX_OPEN_REQUESTS: usize = 64;

/// How many of them may be subscriptions.
pub const MAX_SUBSCRIPTIONS: usize = 8;

/// How long `session_wait` waits at most. Many clients give up after 60 seconds.
pub const MAX_SESSION_WAIT: Duration = Duration::from_secs(50);

/// How long `session_wait` waits if the client does not say.
pub const DEFAULT_SESSION_WAIT: Duration = Duration::from_secs(30);

/// How many bytes of text `session_read` reads at a time. A single event that has more is shortened.
pub const SESSION_READ_BYTES: usize = 64 << 10;

/// How many bytes of one message, tool input or tool output `session_read` shows.
pub const SESSION_ITEM_BYTES: usize = 16 << 10;

/// How many sessions a page of `session_list` has.
pub const SESSION_LIST_PAGE: usize = 50;

/// At most one report of progress in this time is sent for each request.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// How long a client may keep the answers to `server/discover` and `tools/list`.
pub const LIST_TTL: Duration = Duration::from_secs(300);
