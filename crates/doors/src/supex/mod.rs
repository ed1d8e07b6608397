//! The `supex` door: tools and Ruby over newline-delimited JSON-RPC 2.0 (`docs/protocols/supex.md`).
//!
//! Two servers speak this protocol, each with its own machine: the bridge ([`BridgeMachine`]), where `tools/call` follows
//! `hello`, and the console ([`ReplMachine`]), where `eval` follows `hello`. A server answers the requests of a
//! connection one after another, and sends nothing unasked. [`upstream`] is the client's side, for SketchUp's runtime.
//!
//! Not here: which files may be read, and how Ruby is run. The Ruby backend knows that.

mod code;
pub(crate) mod decode;
mod encode;
mod identity;
mod machine;
mod results;
mod scan;
mod tool;
mod tool_list;
pub mod upstream;
mod wire;

use std::time::Duration;

pub use identity::HelloToken;
pub use machine::{AttachInfo, BridgeMachine, ReplMachine};
pub use scan::redact_token;
pub use wire::{
    ErrorObject, FEATURE_ATTACH, FEATURE_OUTPUT, HelloParams, HelloResult, ReplHelloResult, Reply,
    ServerInfo, method, request,
};

/// The version that both servers report: that of the SketchUp runtime that they replace.
pub const RUNTIME_VERSION: &str = "0.2.0";

/// The longest request, in bytes, with its newline.
pub const MAX_REQUEST_BYTES: usize = 1_048_576;

/// The longest line before `hello`, in bytes, with its newline. Every connection may use this much memory without a
/// reservation, so clients that never say `hello` take no memory from others.
pub const HELLO_LINE_BYTES: usize = 64 * 1024;

/// The longest reply, in bytes, with its newline. Clients accept no longer one.
pub const MAX_REPLY_BYTES: usize = 10_485_760;

/// The deepest nesting of arrays and objects in a request.
pub const MAX_NESTING: usize = 100;

/// How long a client of the bridge may take to send `hello`. The same holds for a client of the console that may belong
/// to another user of the machine.
pub const HELLO_WAIT: Duration = Duration::from_secs(10);

/// How long a connection to the bridge may be idle after `hello`. Clients reconnect by themselves after 300 s.
pub const IDLE_WAIT: Duration = Duration::from_secs(600);

/// How many bytes of a client's text an error message quotes.
pub const MAX_QUOTE_BYTES: usize = 1024;

/// The longest nonce that a client may send in `hello`.
pub const MAX_NONCE_BYTES: usize = 64;

/// How many lines of a backtrace the console prints.
pub const CONSOLE_BACKTRACE_LINES: usize = 5;
