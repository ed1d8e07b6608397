//! The loaf door of the real program, over real pipes: many sessions, signals, logins, and what clients rely on.
//!
//! A helper waits at most [`server::TIMEOUT`] for what must happen; no test asserts how long something takes.
//! `PARLOR_SOAK=1` makes the long tests longer.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

#[path = "../models/aimock.rs"]
mod aimock;
mod client;
mod client_expectations;
#[path = "../kept_text.rs"]
mod kept_text;
mod limits;
mod login;
mod many_sessions;
mod model_and_script;
mod openrouter_providers;
mod random_input;
mod replay;
mod server;
mod sessions;
mod shutdown;
mod token_issuer;

/// `small`, or `large` if `PARLOR_SOAK` is set.
#[expect(clippy::disallowed_methods, reason = "this variable is a setting of these tests only")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
