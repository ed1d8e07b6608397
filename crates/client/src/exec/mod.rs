//! The client of the `exec` dialect: processes on an exec server (`docs/protocols/exec.md`).
//!
//! [`ExecServerClient`] starts a server, or connects to one that another program started, and [`ExecServerProcess`] is a
//! process on it. One task per connection reads and writes; the handles queue requests for the task and take what it has
//! received.
//!
//! **Nothing is lost and nothing grows without limit.** Output waits for its handle, at most [`OUTPUT_BACKLOG_BYTES`] per
//! process. When a backlog is full the client stops reading, so the server and its processes stop too: *everything* on that
//! connection waits, answers to calls included, until the output is taken or its handle is dropped. So read the output of
//! each process in a task of its own, or drop the handles whose output you do not need.
//!
//! **Nothing hangs on a broken server.** If the server dies, closes its output or sends something that the protocol does not
//! allow, each call fails, and so does each process handle after it has returned the output that arrived before.
//!
//! Left out on purpose: reconnecting (the server ends its processes with the connection), time limits (every future here may
//! be dropped, so use [`tokio::time::timeout`]), the `process/*` family of methods, blocks of files and `http/request`.

mod client;
mod connection;
mod error;
mod files;
mod handler;
mod launch;
mod output;
mod pending;
mod process;

pub use client::ExecServerClient;
pub use connection::MAX_PENDING_CALLS;
pub use error::ExecServerError;
pub use files::{ExecDirectoryEntry, ExecFileMetadata};
pub use launch::ExecServerLaunchCommand;
pub use output::{ExecOutput, OUTPUT_BACKLOG_BYTES};
pub use parlor_doors::exec::{ExecOutputStream, ExecParams};
pub use process::{ExecFinished, ExecServerProcess};
