//! The client of the `loaf` dialect: a server with many sessions, and what happens in them
//! (`docs/protocols/loaf.md`).
//!
//! [`LoafClient`] starts a server, or talks to one that somebody else started. Calls are answered side by side, in
//! whatever order. What happens comes out of [`LoafEvents`], in order.
//!
//! **Nothing is lost and nothing grows without limit.** At most [`EVENT_BACKLOG`] events wait for their reader. When
//! they are so many the client stops reading, so the server stops too, answers to calls included, until events are
//! read or [`LoafEvents`] is dropped. Who drops it hears of nothing, and waits for nothing.
//!
//! **Nothing hangs on a broken server.** If it dies, closes its output or says something that the protocol does not
//! allow, each call fails, and so do the events once those that arrived before were handed out.
//!
//! Left out on purpose: what a session says of itself beyond events (ask with `session.get`), and time limits of
//! calls (every future here may be dropped, so [`tokio::time::timeout`] does it).

mod client;
mod driver;
mod error;
mod event;
mod launch;

pub use client::{LoafClient, Sent};
pub use driver::{MAX_LINE_BYTES, MAX_PENDING_CALLS};
pub use error::LoafError;
pub use event::{EVENT_BACKLOG, LoafEvent, LoafEvents};
pub use launch::{EXIT_WAIT, LoafLaunch};
