//! The client of the `supex` dialect: tools and Ruby over TCP (`docs/supex-driver.md`).
//!
//! [`Driver`] calls the tools of a bridge, and [`ReplClient`] evaluates code on a console. Each has one connection: it opens
//! the connection for its first call, sends `hello`, and keeps the connection for the calls that follow. It opens another
//! one if the server has closed the connection, if the connection was idle for too long, or after an error that leaves
//! unclear which answer would come next. Calls from several tasks take turns in their order, because the protocol allows one
//! request at a time.
//!
//! **The client runs no call twice.** A call whose connection is lost is sent again only if
//!
//! - the tool only reads ([`READING_TOOLS`]), or
//! - the server cannot have received the whole call, or
//! - the server said in its answer to `hello` that a repeated call attaches to the call that is running
//!   (`"attach":true`), and the new connection leads to the same server. The repeated call has the same identity, id and
//!   parameters.
//!
//! Otherwise the call fails, and [`DriverError::fate`] says whether it may have run.
//!
//! **Nothing grows without limit and nothing hangs.** Requests, answers, waits and the number of waiting callers are
//! bounded. Every future may be dropped; the client does not use its connection again.
//!
//! Left out on purpose: environment variables (the caller fills in [`SupexSettings`]), and types for the results of tools
//! that need SketchUp ([`SupexAnswer::decode`] takes a type of the caller).

mod answer;
mod channel;
mod connection;
mod dial;
mod driver;
mod error;
mod repl;
mod settings;
mod wire;

pub use answer::{FileEvaluation, Pong, ReplOutput, SupexAnswer, SupexServerInfo};
pub use channel::{ATTACH_WINDOW, MAX_RETRIES, MAX_RETRY_PAUSE, MAX_WAITING_CALLS, RETRY_PAUSE};
pub use connection::MAX_ANSWER_TIME;
pub use dial::{Dial, DialFuture, DialStream, IdleState, MAX_ADDRESSES, PeerCheck, PeerCheckFuture};
pub use driver::{Driver, READING_TOOLS};
pub use error::{CallFate, DriverError, TimeoutPhase};
pub use parlor_doors::supex::MAX_REQUEST_BYTES;
pub use repl::ReplClient;
pub use settings::{
    BRIDGE_PORT, CONNECT_LIMIT, IDLE_TIMEOUT, Identity, MAX_RESPONSE_BYTES, REPL_PORT, REPL_TIMEOUT, RETRIES,
    SupexSettings, SupexToken, TIMEOUT,
};
