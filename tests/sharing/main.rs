//! Several processes of the real program share the sessions of one state folder: acp, chat, loaf, synaps and supr.
//!
//! A client reads everything that it is sent in the background, so that no program waits for the test. A test waits for
//! what must be shown, at most [`terminal::TIMEOUT`], and asserts the order of what it saw, never the time. Children are
//! killed on drop, also when a test fails. `PARLOR_SOAK=1` makes the kill storm longer.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod acp;
mod acp_crash;
mod acp_questions;
mod acp_repeated;
mod acp_servers;
mod acp_socket;
mod chat;
mod client;
mod frames;
#[path = "../home/mod.rs"]
mod home;
mod join_off;
mod joined_clients;
#[path = "../kept_text.rs"]
mod kept_text;
mod kill_storm;
mod line_process;
mod loaf;
mod log;
mod matrix;
mod owner_leaves;
mod questions;
mod senders;
#[path = "../supr/server.rs"]
#[allow(dead_code, reason = "these tests use only some of its helpers")]
mod server;
mod stopped_owner;
mod storm_nodes;
mod supr;
mod synaps;
#[path = "../home/terminal.rs"]
mod terminal;

/// `small`, or `large` if `PARLOR_SOAK` is set.
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
