//! Resource limits of children. [`crate::launch`] sets them before `exec`, and descendants inherit them.

use std::sync::OnceLock;

use parlor_vocab::PolicyMode;
use rustix::process::{Resource, getrlimit};

use crate::sandbox::Sandbox;

/// How many processes and threads the user may have when a child starts another: half of the smallest `pid_max` (32,768),
/// so that a fork bomb leaves room for a shell to end it. The kernel counts all processes of the user, so a smaller limit
/// would refuse ordinary work. The kernel does not apply the limit to root.
pub const CHILD_PROCESSES: u64 = 16_384;

/// How many files a child may have open: more than builds and file watchers need, far fewer than the system has.
pub const CHILD_OPEN_FILES: u64 = 65_536;

/// The largest file that a child may write, in bytes: larger than build outputs, smaller than most disks.
pub const CHILD_FILE_BYTES: u64 = 16 << 30;

/// How many bytes stay free on the disks that a sandboxed child writes: enough for the user's other programs to go on.
pub const CHILD_FREE_DISK_BYTES: u64 = 1 << 30;

/// The limits of all children of this process. `None` leaves the limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// How many processes and threads the user may have.
    pub processes: Option<u64>,
    /// How many files a child may have open.
    pub open_files: Option<u64>,
    /// The largest file that a child may write, in bytes.
    pub file_bytes: Option<u64>,
    /// How many bytes stay free on the disks that a sandboxed child writes. `None`: it may fill them.
    pub free_disk_bytes: Option<u64>,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self {
            processes: Some(CHILD_PROCESSES),
            open_files: Some(CHILD_OPEN_FILES),
            file_bytes: Some(CHILD_FILE_BYTES),
            free_disk_bytes: Some(CHILD_FREE_DISK_BYTES),
        }
    }
}

/// How a child is confined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Confinement<'a> {
    /// Limited: a process that an agent or a client starts.
    Tool,
    /// Limited, and in a sandbox.
    Sandbox(&'a Sandbox),
    /// Unlimited: a program for the user of this machine, such as a browser.
    None,
}

impl<'a> Confinement<'a> {
    /// The confinement of a process that an agent or a client starts.
    pub(crate) fn of(sandbox: Option<&'a Sandbox>) -> Self {
        sandbox.filter(|sandbox| sandbox.mode != PolicyMode::Full).map_or(Self::Tool, Self::Sandbox)
    }
}

static LIMITS: OnceLock<ChildLimits> = OnceLock::new();

/// Sets the limits of all children. Call it once, before the first child; later calls have no effect.
pub fn set_child_limits(limits: ChildLimits) {
    let _ = LIMITS.set(limits);
}

/// How the C library numbers the resources of `setrlimit`.
#[cfg(target_env = "gnu")]
type ResourceNumber = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type ResourceNumber = libc::c_int;

/// An argument of `setrlimit`; `value` is both the soft and the hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) resource: ResourceNumber,
    pub(crate) value: libc::rlim_t,
}

/// How many bytes stay free on the disks that a sandboxed child writes.
pub(crate) fn free_disk_bytes() -> Option<u64> {
    LIMITS.get_or_init(ChildLimits::default).free_disk_bytes
}

/// The limits to set for each child, computed once.
pub(crate) fn limits() -> &'static [Limit] {
    static COMPUTED: OnceLock<Vec<Limit>> = OnceLock::new();
    COMPUTED.get_or_init(|| kernel_limits(LIMITS.get_or_init(ChildLimits::default)))
}

fn kernel_limits(limits: &ChildLimits) -> Vec<Limit> {
    let wanted = [
        // No core dumps: the memory of a crashed program may contain secrets.
        (Resource::Core, libc::RLIMIT_CORE, Some(0)),
        (Resource::Nproc, libc::RLIMIT_NPROC, limits.processes),
        (Resource::Nofile, libc::RLIMIT_NOFILE, limits.open_files),
        (Resource::Fsize, libc::RLIMIT_FSIZE, limits.file_bytes),
    ];
    let limit = |(resource, number, wanted): (Resource, _, Option<u64>)| {
        // Only root could exceed the hard limit of this process.
        let value = wanted?.min(getrlimit(resource).maximum.unwrap_or(u64::MAX));
        Some(Limit { resource: number, value })
    };
    wanted.into_iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_do_not_exceed_our_own_and_unset_ones_are_skipped() {
        let all = ChildLimits {
            processes: None,
            open_files: Some(u64::MAX),
            file_bytes: Some(5),
            free_disk_bytes: None,
        };
        let set = kernel_limits(&all);
        let of = |resource| set.iter().find(|limit| limit.resource == resource).map(|limit| limit.value);
        assert_eq!(of(libc::RLIMIT_CORE), Some(0));
        assert_eq!(of(libc::RLIMIT_NPROC), None);
        assert_eq!(of(libc::RLIMIT_NOFILE), Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)));
        assert_eq!(of(libc::RLIMIT_FSIZE), Some(5));
    }
}
