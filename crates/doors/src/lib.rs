//! The wire protocols ("doors"), as pure state machines.
//!
//! A door turns a client's frames into the requests of a backend, and the backend's replies and events back into frames
//! (the types between the two are in [`parlor_vocab`]). A door does no I/O, starts no task, reads no clock and knows no
//! async runtime: the drivers in `parlor-transport` do that, once per transport.
//!
//! Every door is a folder with the same files: `wire.rs` (types as they are on the wire), `decode.rs` (bytes to
//! requests), `encode.rs` (replies and events to bytes), `machine.rs` (the state machine), `dispatch.rs` where there are
//! many methods (what each request does), and `code.rs`, the only file that spells error codes and error texts.

pub mod acp;
pub mod exec;
mod foreign;
#[cfg(any(test, feature = "test-util"))]
pub mod fuzz_harness;
mod history;
mod json;
pub mod jsonrpc;
pub mod lines;
pub mod loaf;
mod machine;
pub mod mcp;
pub mod peer;
mod question;
mod shared_frames;
pub mod supex;
pub mod supr;
pub mod synaps;
mod tool_description;
mod tool_details;
mod truncate;

pub use foreign::ForeignProtocol;
pub use machine::{BackendFor, Input, InputOf, Machine, Output};
pub use parlor_vocab::Ticket;
pub use question::{question_json, settled_json};
pub use shared_frames::{MAX_SHARED_BYTES, MAX_SHARED_FRAMES, SharedFrames};
pub use tool_description::ToolDescription;
pub use tool_details::tool_details_json;
