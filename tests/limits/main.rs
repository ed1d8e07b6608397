//! The real program at its limits: too much at once, too slow a reader, a bad end, a poor machine.
//!
//! What must come is awaited, for at most [`server::PATIENCE`]; nothing here asserts how long it
//! takes. `PARLOR_SOAK=1` makes the long ones longer: more bytes, more processes.

mod ending;
mod input;
mod output;
mod processes;
mod server;
mod surroundings;
mod system;

/// `small`, or `large` if somebody has asked for the long run.
#[expect(clippy::disallowed_methods, reason = "this is a setting of these tests and of nothing else")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
