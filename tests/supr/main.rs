//! The supr door: every transcript in memory and over a WebSocket to the real program, and what a transcript
//! cannot say: frames of other kinds, clients that vanish or do not listen, servers that are killed.
#![expect(clippy::disallowed_methods, reason = "tests start the program themselves")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod choices;
mod client;
mod database;
mod ending;
mod erased;
mod frames;
mod house;
mod keepalive;
mod large;
mod media;
mod memory;
mod one_home;
mod refusals;
mod secrets;
mod server;
mod sessions;
mod slow;
mod storm;
mod terminals;
mod wire;

use std::path::{Path, PathBuf};

use parlor_testkit::{PlayedIn, Supr, play_cases};

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/supr")
}

#[test]
fn transcripts_in_memory() {
    play_cases(&transcripts(), &Supr, PlayedIn::Memory, memory::Memory::start);
}

#[test]
fn transcripts_over_a_websocket() {
    play_cases(&transcripts(), &Supr, PlayedIn::Wire, wire::Wire::start);
}
