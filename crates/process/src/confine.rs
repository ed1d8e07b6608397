//! How far children may go: what [`crate::launch`] sets before the program is loaded, and all that the program starts
//! inherits.

use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// How many processes and threads the user may have when a child starts another: half of what the smallest systems
/// number (`pid_max` is 32,768 there), so that a child that does nothing but start others leaves room for a shell to end
/// it. All of the user's count, hence not fewer. Root is not held to it by the kernel.
pub const CHILD_PROCESSES: u64 = 16_384;

/// How many files a child may have open: more than builds and file watchers want, far fewer than all that the system has.
pub const CHILD_OPEN_FILES: u64 = 65_536;

/// The largest file that a child may write: more than any build makes, less than a disk has.
pub const CHILD_FILE_BYTES: u64 = 16 << 30;

/// The limits of all children of this process. `None` is what this process has itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// How many processes and threads the user may have.
    pub processes: Option<u64>,
    /// How many files may be open.
    pub open_files: Option<u64>,
    /// How large a file may become, in bytes.
    pub file_bytes: Option<u64>,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self {
            processes: Some(CHILD_PROCESSES),
            open_files: Some(CHILD_OPEN_FILES),
            file_bytes: Some(CHILD_FILE_BYTES),
        }
    }
}

/// Whether a child is held to limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// Something that an agent or a client starts.
    Tool,
    /// A program of the person at this machine, such as a browser.
    None,
}

static LIMITS: OnceLock<ChildLimits> = OnceLock::new();

/// Sets the limits of all children. Once, before the first child: later calls change nothing.
pub fn limit_children(limits: ChildLimits) {
    let _ = LIMITS.set(limits);
}

/// A limit as the kernel takes it: the resource, and the value for both the soft and the hard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) resource: libc::__rlimit_resource_t,
    pub(crate) value: libc::rlim_t,
}

/// What is set for each child, worked out once: it changes only if our own hard limits do.
pub(crate) fn limits() -> &'static [Limit] {
    static READY: OnceLock<Vec<Limit>> = OnceLock::new();
    READY.get_or_init(|| limits_of(LIMITS.get_or_init(ChildLimits::default)))
}

fn limits_of(limits: &ChildLimits) -> Vec<Limit> {
    let wanted = [
        // What a crashed program had in memory does not stay behind in a file.
        (Resource::Core, libc::RLIMIT_CORE, Some(0)),
        (Resource::Nproc, libc::RLIMIT_NPROC, limits.processes),
        (Resource::Nofile, libc::RLIMIT_NOFILE, limits.open_files),
        (Resource::Fsize, libc::RLIMIT_FSIZE, limits.file_bytes),
    ];
    let limit = |(resource, number, most): (Resource, _, Option<u64>)| {
        // Nobody but root could have more than the hard limit.
        let value = most?.min(getrlimit(resource).maximum.unwrap_or(u64::MAX));
        Some(Limit { resource: number, value })
    };
    wanted.into_iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_above_our_own_and_what_is_unlimited_is_left_alone() {
        let all = ChildLimits { processes: None, open_files: Some(u64::MAX), file_bytes: Some(5) };
        let set = limits_of(&all);
        let of = |resource| set.iter().find(|limit| limit.resource == resource).map(|limit| limit.value);
        assert_eq!(of(libc::RLIMIT_CORE), Some(0));
        assert_eq!(of(libc::RLIMIT_NPROC), None);
        assert_eq!(of(libc::RLIMIT_NOFILE), Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)));
        assert_eq!(of(libc::RLIMIT_FSIZE), Some(5));
    }
}
