//! The exec door of the real program at its limits: much input, slow readers, many processes, kills, few descriptors.
//!
//! A helper waits at most [`server::TIMEOUT`] for what must happen; no test asserts how long something takes.
//! `PARLOR_SOAK=1` makes the long tests longer: more bytes, more processes.

mod environment;
mod input;
mod output;
mod proc_info;
mod processes;
mod server;
mod shutdown;

/// `small`, or `large` if `PARLOR_SOAK` is set.
#[expect(clippy::disallowed_methods, reason = "this variable is a setting of these tests only")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
