//! The client of the `synaps` dialect: a child that holds one conversation (`docs/protocols/synaps.md`).
//!
//! [`SynapsClient`] starts a child, or connects to one that another program started, and [`SynapsTurn`] is a turn of the
//! conversation. One task per connection reads and writes; the handles queue commands for the task and take what it has
//! received.
//!
//! **Nothing is lost and nothing grows without limit.** The events of a turn wait for its handle, at most
//! [`TURN_BACKLOG_BYTES`]. When a backlog is full the client stops reading, so the child stops too, answers to other
//! commands included, until the events are taken or the handle is dropped.
//!
//! **Nothing hangs on a broken child.** If the child dies, closes its output or sends something that the protocol does not
//! allow, each call fails, and so does each turn after it has returned the events that arrived before.
//!
//! Newer children send more than this client knows: it ignores frames and assistant events of other types, and the
//! disclosures that some children send with a command's id before its answer.
//!
//! Left out on purpose: restarting a child (pass its session to [`SynapsLaunch::resume`]), and time limits of commands
//! (every future here may be dropped, so use [`tokio::time::timeout`]).

mod answer;
mod client;
mod connection;
mod error;
mod handler;
mod launch;
mod pending;
mod turn;
mod turn_events;

pub use answer::{SynapsModel, SynapsState, SynapsStats, SynapsTool};
pub use client::SynapsClient;
pub use connection::MAX_PENDING_COMMANDS;
pub use error::SynapsError;
pub use handler::MAX_EVENT_BYTES;
pub use launch::{EXIT_WAIT, READY_WAIT, SynapsLaunch};
pub use parlor_doors::synaps::{AssistantEvent, RpcAttachment, TurnUsage};
pub use turn::{SynapsTurn, TurnEnd, TurnEvent, TurnOutcome};
pub use turn_events::TURN_BACKLOG_BYTES;
