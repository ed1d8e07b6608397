//! Sessions as their clients meet them: through the registry, with the local agent and a log in memory.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

mod answers;
mod client;
mod common;
mod disk;
mod hand_over;
mod inputs;
mod interleavings;
mod limits;
mod partial_text;
mod peers;
mod questions;
mod registry;
mod snapshots;
mod stopped_tools;
mod takeover;
mod tool_details;
mod tool_sources;
mod watch_from;
