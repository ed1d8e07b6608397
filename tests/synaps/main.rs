//! The synaps door of the real program, on real pipes: many children, bad parents, sudden ends.
//!
//! What must come is awaited, for at most [`child::PATIENCE`]; nothing here asserts how long it
//! takes. `PARLOR_SOAK=1` makes the long ones longer. `parent.mjs` is a parent as the real one is:
//! Node, which decodes each piece of output on its own.

mod child;
mod client;
mod ending;
mod many;
mod noise;
mod parent;
mod resume;
mod slow;
mod surroundings;
mod system;

/// `small`, or `large` if somebody has asked for the long run.
#[expect(clippy::disallowed_methods, reason = "this is a setting of these tests and of nothing else")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
