//! The wire protocols, as pure machines.
//!
//! A door turns a peer's frames into [`parlor_vocab`] commands and turns answers and events back
//! into frames. It opens nothing, spawns nothing, reads no clock and knows no async runtime: the
//! drivers in `parlor-transport` do that, once per transport. Each dialect has a folder with its wire
//! types, its `decode`, its `encode`, its machine and the one file that spells its error codes.

pub mod exec;
mod foreign;
#[cfg(any(test, feature = "test-util"))]
pub mod fuzz_harness;
mod json;
pub mod jsonrpc;
pub mod lines;
pub mod loaf;
mod machine;
pub mod supex;
pub mod supr;
pub mod synaps;

pub use foreign::ForeignProtocol;
pub use machine::{BackendFor, Input, InputOf, Machine, Output};
pub use parlor_vocab::Ticket;
