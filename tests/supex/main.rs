//! The Supex doors: every transcript in memory and over TCP against the real program, and what a
//! transcript cannot say: many clients, clients that vanish, workers that are killed.
#![expect(clippy::disallowed_methods, reason = "tests start the program themselves")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod crowd;
mod cuts;
mod foreign;
mod memory;
mod page;
mod program;
mod repeat;
mod server;
mod storm;
mod unread;
mod upstream;
mod wire;

use std::path::{Path, PathBuf};

use parlor_testkit::{Door, PlayedIn, play_cases};
use serde_json::Value;

/// The dialect: every frame is whole.
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
