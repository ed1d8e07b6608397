//! The client of the `exec` dialect: processes on an exec server (`docs/protocols/exec.md`).
//!
//! [`ExecServerClient`] starts a server, or talks to one that somebody else started, and
//! [`ExecServerProcess`] is a process on it. One task per connection reads and writes; the handles
//! only queue requests for it and take from it what arrived.
//!
//! **Nothing is lost and nothing grows without limit.** Output waits for its handle, at most
//! [`OUTPUT_BACKLOG_BYTES`] per process. When a backlog is full the client stops reading, so the
//! server and its processes stop too: *everything* on that connection waits, answers to calls
//! included, until the backlog is read or its handle is dropped. So read the output of each process
//! in a task of its own, or drop the handles whose output does not matter.
//!
//! **Nothing hangs on a broken server.** If it dies, closes its output or says something that the
//! protocol does not allow, each call fails, and so does each process handle once it has handed out
//! the output that arrived before.
//!
//! Left out on purpose: reconnecting (the server ends its processes with the connection), time
//! limits (every future here may be dropped, so [`tokio::time::timeout`] does it), and the
//! `process/*` family of methods.

mod client;
mod connection;
mod driver;
mod error;
mod inbox;
mod launch;
mod link;
mod process;

pub use client::ExecServerClient;
pub use connection::MAX_PENDING_CALLS;
pub use error::ExecServerError;
pub use inbox::{ExecOutput, OUTPUT_BACKLOG_BYTES};
pub use launch::ExecServerLaunchCommand;
pub use parlor_doors::exec::{ExecOutputStream, ExecParams};
pub use process::{ExecFinished, ExecServerProcess};
