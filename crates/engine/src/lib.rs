//! What parlor does, whichever door asked for it.
//!
//! Knows no envelope, no socket and no door: a new dialect leaves this crate untouched. For now it
//! holds child processes; sessions and runs will live here too.

mod processes;

pub use processes::{Happening, MAX_PROCESSES, Processes, SHUTDOWN_GRACE};
