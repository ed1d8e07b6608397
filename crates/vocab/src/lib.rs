//! The words that all of parlor shares: ids, commands, events and refusals.
//!
//! Words only. Nothing here does anything, nothing here can be serialized (each door spells an
//! event in its own way, and so does the log), and nothing of ours is depended on.

mod id;
mod process;
mod refusal;

pub use id::{IdError, MAX_ID_BYTES, ProcessId};
pub use process::{Command, Ending, Event, Reply, StartProcess, Stdio, Stream};
pub use refusal::Refusal;
