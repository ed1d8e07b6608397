//! The supr door. Every transcript is played in memory and over a WebSocket to the real program. The other modules
//! test what a transcript cannot express: other frame types, clients that disconnect or do not read, servers that are
//! killed, and the HTTP API.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod client;
mod database;
mod deletion;
mod files_for_models;
mod frames;
mod http_api;
mod http_responses;
mod keepalive;
#[path = "../kept_text.rs"]
mod kept_text;
mod large_messages;
mod media;
mod memory;
mod model_choices;
mod refusals;
mod replay_as;
#[path = "../models/scripted_server.rs"]
#[allow(dead_code, reason = "these tests use only some of its replies")]
mod scripted_server;
mod secrets;
mod server;
mod server_kills;
mod sessions;
mod shared_home_kills;
mod shutdown;
mod slow_client;
mod terminals;
mod token_command;
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
