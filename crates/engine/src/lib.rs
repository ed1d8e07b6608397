//! Sessions and runs: what parlor does, whichever door asked for it.
//!
//! The engine knows no envelope, no socket, no door and no provider: a new dialect leaves this crate untouched. Start
//! with [`Sessions`], the registry, and `sessions/actor.rs`, the one task that writes a session.

mod files;
pub mod media;
mod redact;
pub mod retention;
pub mod session;
mod sessions;
mod visible;

pub use files::{Links, read_files};
pub use media::{MediaError, MediaStore};
pub use parlor_tools::{MAX_HELD_BYTES, MIN_CUT_BYTES, Panicked, Redact, contain};
pub use parlor_vocab::{SessionUpdate, StreamKind};
pub use sessions::client::{MAX_REQUESTS, MAX_WATCHED, OnDisconnect, SessionClient};
pub use sessions::live::{LIVE_INPUT_BYTES, LIVE_TOOL_BYTES, RECENT_BYTES, RECENT_EVENTS, TOOL_END_BYTES};
pub use sessions::watcher::{TEXT_PACE, Watcher};
pub use sessions::{
    Agents, Fetch, KEPT_HISTORY_BYTES, MAX_ACTIVE_RUNS, MAX_OPEN_SESSIONS, SessionDeps, SessionOwner,
    Sessions,
};
pub use visible::{is_blank, is_visible, visible};
