//! The client of the `loaf` dialect: a server with many sessions, and their events (`docs/protocols/loaf.md`).
//!
//! [`LoafClient`] starts a server, or connects to one that another program started. The server answers calls in any order.
//! [`LoafEvents`] returns the server's events in order.
//!
//! **Nothing is lost and nothing grows without limit.** At most [`EVENT_BACKLOG`] events wait for their reader. When the
//! backlog is full the client stops reading, so the server stops too, answers to calls included, until events are read or
//! [`LoafEvents`] is dropped. After that, the client drops all events.
//!
//! **Nothing hangs on a broken server.** If the server dies, closes its output or sends something that the protocol does not
//! allow, each call fails, and so does [`LoafEvents`] after it has returned the events that arrived before.
//!
//! Left out on purpose: the state of a session beyond its events (call `session.get`), and time limits of calls (every
//! future here may be dropped, so use [`tokio::time::timeout`]).

mod client;
mod driver;
mod error;
mod event;
mod launch;

pub use client::{LoafClient, SentPrompt};
pub use driver::{MAX_LINE_BYTES, MAX_PENDING_CALLS};
pub use error::LoafError;
pub use event::{EVENT_BACKLOG, LoafEvent, LoafEvents};
pub use launch::{EXIT_WAIT, LoafLaunch};
