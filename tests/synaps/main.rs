//! The synaps door of the real program, over real pipes: many children, misbehaving parents, signals and kills.
//!
//! A helper waits at most [`child::TIMEOUT`] for what must happen; no test asserts how long something takes.
//! `PARLOR_SOAK=1` makes the long tests longer. `parent.mjs` imitates the original parent: a Node program that decodes
//! each chunk of output separately.

mod child;
mod client;
mod environment;
mod files_for_models;
mod import;
#[path = "../kept_text.rs"]
mod kept_text;
mod many_children;
mod models;
mod node_parent;
mod proc_info;
mod random_input;
mod replay;
mod resume;
#[path = "../models/scripted_server.rs"]
#[allow(dead_code, reason = "these tests use only some of its replies")]
mod scripted_server;
mod shutdown;
mod slow_parent;

/// `small`, or `large` if `PARLOR_SOAK` is set.
#[expect(clippy::disallowed_methods, reason = "this variable is a setting of these tests only")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
