//! The loaf door of the real program, on real pipes: crowds, signals, logins, and what clients rely on.
//!
//! What must come is awaited, for at most [`server::PATIENCE`]; nothing here asserts how long it takes.
//! `PARLOR_SOAK=1` makes the long ones longer.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

mod client;
mod crowd;
mod ending;
mod issuer;
mod limits;
mod login;
#[path = "../models/mock.rs"]
mod mock;
mod model;
mod noise;
mod routes;
mod server;
mod sessions;
mod truths;

/// `small`, or `large` if somebody has asked for the long run.
#[expect(clippy::disallowed_methods, reason = "this is a setting of these tests and of nothing else")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
