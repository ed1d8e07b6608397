//! The client of the `synaps` dialect: a child that holds one conversation (`docs/protocols/synaps.md`).
//!
//! [`SynapsClient`] starts a child, or talks to one that somebody else started, and [`SynapsTurn`] is
//! a turn of the conversation. One task per connection reads and writes; the handles only queue
//! commands for it and take from it what arrived.
//!
//! **Nothing is lost and nothing grows without limit.** What happens in a turn waits for its handle, at
//! most [`TURN_BACKLOG_BYTES`]. When a backlog is full the client stops reading, so the child stops
//! too, answers to other commands included, until the backlog is read or its handle is dropped.
//!
//! **Nothing hangs on a broken child.** If it dies, closes its output or says something that the
//! protocol does not allow, each call fails, and so does each turn once it has handed out what arrived
//! before.
//!
//! Newer children say more than this client knows of: frames and assistant events of other types are
//! ignored, and so are the disclosures that some send under a command's id before its answer.
//!
//! Left out on purpose: starting a child again (whoever does gives its session to
//! [`SynapsLaunch::resume`]), and time limits of commands (every future here may be dropped, so
//! [`tokio::time::timeout`] does it).

mod answer;
mod backlog;
mod client;
mod connection;
mod driver;
mod error;
mod launch;
mod link;
mod turn;

pub use answer::{SynapsModel, SynapsState, SynapsStats, SynapsTool};
pub use backlog::TURN_BACKLOG_BYTES;
pub use client::SynapsClient;
pub use connection::MAX_PENDING_COMMANDS;
pub use driver::MAX_EVENT_BYTES;
pub use error::SynapsError;
pub use launch::{EXIT_WAIT, READY_WAIT, SynapsLaunch};
pub use parlor_doors::synaps::{AssistantEvent, RpcAttachment, TurnUsage};
pub use turn::{SynapsTurn, TurnEnd, TurnEvent, TurnOutcome};
