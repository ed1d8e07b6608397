//! What parlor does, whichever door asked for it.
//!
//! Knows no envelope, no socket and no door: a new dialect leaves this crate untouched.

mod house;
mod live;
mod processes;
pub mod session;
mod watcher;

pub use house::{Agents, House, MAX_ACTIVE_RUNS, MAX_OPEN_SESSIONS, Means};
pub use live::{LIVE_TOOL_BYTES, Subject};
pub use processes::{Happening, MAX_PROCESSES, Processes, SHUTDOWN_GRACE};
pub use watcher::{Seen, Watcher};
