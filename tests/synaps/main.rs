//! The synaps door of the real program, over real pipes: many children, misbehaving parents, signals and kills.
//!
//! A helper waits at most [`child::TIMEOUT`] for what must happen; no test asserts how long something takes.
//! `PARLOR_SOAK=1` makes the long tests longer. `parent.mjs` imitates the original parent: a Node program that decodes
//! each chunk of output separately.

mod child;
mod client;
mod environment;
mod many_children;
mod node_parent;
mod proc_info;
mod random_input;
mod resume;
mod shutdown;
mod slow_parent;

/// `small`, or `large` if `PARLOR_SOAK` is set.
#[expect(clippy::disallowed_methods, reason = "this variable is a setting of these tests only")]
fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}
