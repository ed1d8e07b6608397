//! What parlor does, whichever door asked for it.
//!
//! Knows no envelope, no socket and no door: a new dialect leaves this crate untouched.

mod contain;
mod files;
mod guest;
mod house;
mod live;
pub mod media;
mod office;
mod processes;
mod redact;
pub mod retention;
pub mod session;
mod terminals;
mod visible;
mod watcher;
mod workshop;

pub use guest::{Guest, MAX_QUESTIONS, MAX_WATCHED, Standing, Word};
pub use house::{
    Agents, Fetch, House, KEPT_HISTORY_BYTES, Keeper, MAX_ACTIVE_RUNS, MAX_OPEN_SESSIONS, Means,
};
pub use live::{LIVE_INPUT_BYTES, LIVE_TOOL_BYTES, RECENT_BYTES, RECENT_EVENTS, TOOL_END_BYTES};
pub use media::{MediaError, MediaStore};
pub use office::{
    Clerk, LoginWish, MAX_ERRANDS, MAX_WAITING_QUESTIONS, Office, OfficeWord, Teller, find_skills_in,
};
pub use parlor_process::Retained;
pub use parlor_ruby::Settings as RubySettings;
pub use parlor_tools::{MAX_HELD_BYTES, MIN_CUT_BYTES, Redact};
pub use parlor_vocab::{Seen, Subject};
pub use processes::{Happening, MAX_PROCESSES, Processes, SHUTDOWN_GRACE};
pub use terminals::{
    MAX_ENDED_TERMINALS, MAX_TERMINALS, TERMINAL_BYTES, TerminalLine, TerminalSight, TerminalView, Terminals,
};
pub use visible::{is_blank, is_visible, visible};
pub use watcher::{TEXT_PACE, Watcher};
pub use workshop::{
    CONSOLE_LOG_BYTES, Evaluates, KEEP_ANSWER, KEPT_BYTES, KEPT_SESSIONS, KEPT_SNIPPETS, MAX_CALLS,
    MAX_TOOL_CALLS, Reach, Receipt, Said, SketchUp, Workbench, Workshop, WorkshopMeans,
};
