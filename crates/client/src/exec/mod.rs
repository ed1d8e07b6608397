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
//! **Two families of processes.** [`ExecServerClient::start_process`] uses `command/exec`; such a process ends with its
//! connection. [`ExecServerClient::start_numbered`] uses today's `process/*`: the events of an [`ExecProcess`] are numbered, its
//! output can be [read](ExecProcess::read) again, and on a WebSocket it outlives its connection by 30 s:
//!
//! ```no_run
//! use parlor_client::exec::{ExecProcessEvent, ExecProcessParams, ExecServerClient, ExecServerError};
//!
//! # async fn example() -> Result<(), ExecServerError> {
//! let url = "ws://127.0.0.1:7003";
//! let client = ExecServerClient::connect_websocket(url, None).await?;
//! let session = client.session_id().expect("a WebSocket has sessions").to_owned();
//! let mut process = client.start_numbered(ExecProcessParams::new("tests", ["make", "test"], "/src").inherit_env()).await?;
//! loop {
//!     match process.next_event().await {
//!         Ok(Some(ExecProcessEvent::Output { bytes, .. })) => println!("{}", String::from_utf8_lossy(&bytes)),
//!         Ok(Some(ExecProcessEvent::Exited { exit_code, .. })) => println!("exit code {exit_code}"),
//!         Ok(None) => return Ok(()),
//!         // The connection is lost: go on over another one.
//!         Err(ExecServerError::Closed { .. }) => {
//!             let client = ExecServerClient::resume_websocket(url, None, &session).await?;
//!             process = client.attach(process.position()).await?;
//!         }
//!         Err(error) => return Err(error),
//!     }
//! }
//! # }
//! ```
//!
//! Left out on purpose: reconnecting by itself (only the caller knows how long it is worth it), time limits (every future here
//! may be dropped, so use [`tokio::time::timeout`]), blocks of files and `http/request`.

mod client;
mod connection;
mod error;
mod events;
mod files;
mod handler;
mod launch;
mod numbered;
mod output;
mod pending;
mod process;
mod websocket;

pub use client::ExecServerClient;
pub use connection::MAX_PENDING_CALLS;
pub use error::ExecServerError;
pub use events::{ExecProcessEvent, ExecProcessStream};
pub use files::{ExecDirectoryEntry, ExecFileMetadata};
pub use launch::ExecServerLaunchCommand;
pub use numbered::{ExecOutputPage, ExecProcess, ExecProcessParams, ExecProcessPosition};
pub use output::{ExecOutput, OUTPUT_BACKLOG_BYTES};
pub use parlor_doors::exec::{ExecOutputStream, ExecParams};
pub use process::{ExecFinished, ExecServerProcess};
