//! The `supex` dialect: tools and Ruby over newline-delimited JSON-RPC 2.0 (`docs/protocols/supex.md`).
//!
//! Two servers speak it, each with a machine: the bridge ([`BridgeMachine`]), on which `hello` is
//! followed by `tools/call`, and the console ([`ReplMachine`]), on which it is followed by `eval`.
//! Requests of a connection are answered one after another. Nothing is ever sent unasked.
//!
//! Deliberately absent: which files may be read and what Ruby is, which the workshop knows.

mod bridge;
mod catalogue;
mod code;
pub(crate) mod envelope;
mod identity;
mod protocol;
mod render;
mod repl;
mod scan;
mod tool;
pub mod upstream;

use std::time::Duration;

use parlor_vocab::{RubyJob, RubyRequest};

pub use bridge::BridgeMachine;
pub use identity::Token;
pub use protocol::{
    ErrorObject, FEATURE_ATTACH, FEATURE_OUTPUT, HelloParams, HelloResult, ReplHelloResult, Reply,
    ServerInfo, method, request,
};
pub use repl::ReplMachine;
pub use scan::redacted;

/// The version that both servers call their own: that of the runtime they stand in for.
pub const RUNTIME_VERSION: &str = "0.2.0";

/// The longest request, in bytes, with its newline.
pub const MAX_REQUEST_BYTES: usize = 1_048_576;

/// The longest line of a connection that has not said `hello` yet, in bytes, with its newline. It is what every connection
/// may hold without asking for memory, so strangers take none from others.
pub const HELLO_LINE_BYTES: usize = 64 * 1024;

/// The longest reply, in bytes, with its newline: what clients take.
pub const MAX_REPLY_BYTES: usize = 10_485_760;

/// How deep arrays and objects of a request may be nested.
pub const MAX_NESTING: usize = 100;

/// How long a new connection to the bridge may take to say `hello`, and a stranger's to the console.
pub const HELLO_WAIT: Duration = Duration::from_secs(10);

/// How long a connection to the bridge may be silent after `hello`. Clients reconnect by themselves after
/// 300 s.
pub const IDLE_WAIT: Duration = Duration::from_secs(600);

/// How much of what a peer sent an error message quotes.
pub const MAX_QUOTE_BYTES: usize = 1024;

/// How many lines of a backtrace the console prints.
pub const CONSOLE_BACKTRACE_LINES: usize = 5;

/// How large the answer to a question may be, if it is one that can be large. Parlor's own tools bound theirs themselves, and
/// wait for nobody.
fn largest_reply(request: &RubyRequest) -> usize {
    match request {
        RubyRequest::Call { job, .. } => match **job {
            RubyJob::Snippet { .. }
            | RubyJob::File { .. }
            | RubyJob::Line { .. }
            | RubyJob::Upstream(_)
            | RubyJob::ListResources => MAX_REPLY_BYTES,
            RubyJob::ReplaceRuby | RubyJob::Tool { .. } => 0,
        },
        RubyRequest::OpenConsole { .. } | RubyRequest::DescribeConsole | RubyRequest::ListTools => 0,
    }
}

#[cfg(test)]
mod tests;
