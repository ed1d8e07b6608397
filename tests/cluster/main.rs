//! Real nodes (`parlor serve`) that share a log in a real PostgreSQL server, which the tests start.
//!
//! A test waits for what must happen, at most [`TIMEOUT`], and asserts what it saw, never the time. All processes are
//! killed on drop, also when a test fails.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod checker;
mod client;
mod database;
mod log_copy;
mod media_stores;
mod node;
mod ownership;
mod peer_door;
mod script;
#[path = "../supr/server.rs"]
#[allow(dead_code, reason = "these tests use only some of its helpers")]
mod server;
mod shared_files;
mod soak;
mod takeover;
mod token;

use std::time::Duration;

/// How long a test waits for something that must happen.
const TIMEOUT: Duration = Duration::from_secs(60);
