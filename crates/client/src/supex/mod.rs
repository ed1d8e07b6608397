//! The client of the `supex` dialect: tools and Ruby over TCP (`docs/supex-driver.md`).
//!
//! [`Driver`] calls the tools of a bridge, [`ReplClient`] is a console. Each has one connection, which
//! it opens when it is first needed, says `hello` on, and keeps for the calls that follow. It opens
//! another one if the server has closed it, if it was idle for too long, or after an error that leaves
//! it unclear what would come next. Calls may be made from many tasks: they take turns, in the order in
//! which they came, because the protocol is one question and one answer at a time.
//!
//! **Nothing runs twice by our doing.** A call whose connection is lost is sent again only if
//!
//! - it only reads ([`READING_TOOLS`]), or
//! - the server cannot have received all of it, or
//! - the server said in its answer to `hello` that a repeat attaches to the call that is running
//!   (`"attach":true`), and it is still that server: same identity, same id, same parameters.
//!
//! Otherwise the call fails, and [`DriverError::fate`] says whether it may have run.
//!
//! **Nothing grows without limit and nothing hangs.** Requests, answers, waits and the number of
//! callers that wait are bounded. Every future may be dropped: its connection is then not used again.
//!
//! Left out on purpose: the environment (a caller fills in [`SupexSettings`]), and results of tools that
//! need SketchUp as types ([`SupexAnswer::decode`] takes the caller's own).

mod answer;
mod channel;
mod connection;
mod dial;
mod driver;
mod error;
mod repl;
mod settings;
mod wire;

pub use answer::{SupexAnswer, FileEvaluation, Pong, ReplOutput, SupexServerInfo};
pub use channel::{ATTACH_WINDOW, MAX_RETRIES, MAX_RETRY_PAUSE, MAX_WAITING_CALLS, RETRY_PAUSE};
pub use connection::MAX_ANSWER_TIME;
pub use dial::{Dial, DialFuture, IdleState, DialStream, MAX_ADDRESSES};
pub use driver::{Driver, READING_TOOLS};
pub use error::{CallFate, DriverError, TimeoutPhase};
pub use parlor_doors::supex::MAX_REQUEST_BYTES;
pub use repl::ReplClient;
pub use settings::{
    BRIDGE_PORT, CONNECT_LIMIT, IDLE_TIMEOUT, Identity, MAX_RESPONSE_BYTES, REPL_PORT, REPL_TIMEOUT, RETRIES,
    SupexSettings, TIMEOUT, SupexToken,
};
