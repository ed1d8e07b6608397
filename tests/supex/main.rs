//! The supex doors. Every transcript is played in memory and over TCP against the real program. The other modules test
//! what a transcript cannot express: many clients, clients that disconnect, workers that are killed.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod docs_page;
mod lost_state;
mod many_clients;
mod memory;
mod other_protocols;
mod repeated_requests;
mod serve_command;
mod server;
mod split_input;
mod unread_replies;
mod upstream;
mod wire;
mod worker_kills;

use std::path::{Path, PathBuf};

use parlor_testkit::{Door, PlayedIn, play_cases};
use serde_json::Value;

/// The door of the transcripts. No two of its frames are ever joined into one.
struct Supex;

impl Door for Supex {
    fn join(&self, _held: &Value, _next: &Value) -> Option<Value> {
        None
    }
}

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/supex")
}

#[test]
fn transcripts_in_memory() {
    play_cases(&transcripts(), &Supex, PlayedIn::Memory, memory::Memory::start);
}

#[test]
fn transcripts_over_tcp() {
    play_cases(&transcripts(), &Supex, PlayedIn::Wire, wire::Wire::start);
}
