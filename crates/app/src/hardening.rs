//! Protects the memory of this process from other processes of the same user.

/// Keeps other processes of the same user from reading this process's memory and initial environment, which may contain
/// keys. Child processes are not affected.
#[cfg(target_os = "linux")]
pub(crate) fn set_undumpable() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // On a kernel without this call there is no other protection.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Does nothing: only Linux has this protection.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_undumpable() {}
