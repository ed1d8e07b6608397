//! Sessions and runs: the part of parlor that is the same behind every door.
//!
//! The engine knows no door, no envelope, no socket and no provider, so a new protocol leaves this crate untouched.
//! Start with [`Sessions`], the registry, and `sessions/actor.rs`, the task that alone writes a session.

mod called_paths;
mod files;
pub mod media;
pub mod policy;
mod redact;
pub mod retention;
pub mod session;
mod sessions;
mod step_titles;
mod visible;

pub use called_paths::called_paths;
pub use files::{SymlinkPolicy, read_files};
pub use media::{MediaError, MediaStore};
pub use parlor_tools::{
    MAX_HELD_BYTES, MIN_CUT_BYTES, Panicked, Redact, ToolServerState, ToolServerStatus, catch_panic,
};
pub use parlor_vocab::{SessionUpdate, StreamKind};
pub use sessions::client::{
    MAX_PEER_REQUESTS, MAX_PEER_WATCHED, MAX_REQUESTS, MAX_WATCHED, OnDisconnect, PeerClient, SessionClient,
};
pub use sessions::live::{LIVE_INPUT_BYTES, LIVE_TOOL_BYTES, RECENT_BYTES, RECENT_EVENTS, TOOL_TAIL_BYTES};
pub use sessions::text_bytes::text_bytes;
pub use sessions::watcher::{MAX_DELTA_BYTES, TEXT_INTERVAL, Watcher};
pub use sessions::{
    Agents, CACHED_HISTORY_BYTES, ChangesError, ClientPolicy, ClientRules, ExternalCall, ExternalRun, Fetch,
    MAX_ACTIVE_RUNS, MAX_HOST_EVENTS, MAX_HOST_QUESTIONS, MAX_OPEN_SESSIONS, MAX_PROJECT_ANSWERS,
    ORPHAN_INTERVAL, OWNER_WAIT, PARTIAL_TEXT_BYTES, PARTIAL_TEXT_INTERVAL, PEER_REPLY_WAIT, PeerConnection,
    PeerError, Peers, ProjectPolicies, QUESTION_DETAIL_BYTES, REPORT_BYTES, REPORT_INTERVAL, SNAPSHOT_EVENTS,
    SessionDeps, SessionOwner, SessionToolSource, Sessions,
};
pub use step_titles::{tool_step, writing_step};
pub use visible::{escaped, is_blank, is_visible, visible};
