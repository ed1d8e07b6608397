//! The drivers: what carries bytes between a peer and a door's machine, and does what the machine
//! asks.
//!
//! A driver is written once per transport, not once per dialect. Everything between a peer and the
//! engine is bounded: a peer that stops reading stops being served, and its processes stop being
//! read; nothing is kept for it and nobody else waits.

mod connection;
mod outgoing;
mod signals;
mod stdio;

pub use connection::{INCOMING_CHUNKS, OUTPUT_BACKLOG_BYTES, REPLY_BACKLOG_BYTES, SHUTDOWN_WAIT, serve};
pub use outgoing::{OUTGOING_FRAMES, Outgoing, Outlet, outgoing};
pub use stdio::{block_on, serve_stdio};
