//! What other processes of the same user see of this one.

/// From now on, no other process of the user can read the memory of this one or the environment that it was started
/// with, where keys may be. What it starts is as open as ever.
#[cfg(target_os = "linux")]
pub(crate) fn set_undumpable() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // Where the system does not have it, there is nothing else to do.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Only Linux has it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_undumpable() {}
