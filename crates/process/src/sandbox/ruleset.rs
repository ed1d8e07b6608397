//! The Landlock rules of a sandbox: a second wall behind the mounts, and the wall around signals and abstract sockets where
//! the sandbox shares the network.
//!
//! The rules are added in the child, when its mounts exist; here are the rights by the version of the kernel.
#![expect(unsafe_code, reason = "asks the kernel for its version of Landlock")]

use std::os::fd::OwnedFd;
use std::ptr;

use landlock::{ABI, Access, AccessFs, Ruleset, RulesetAttr, Scope};

use crate::SpawnError;

/// The newest version that parlor knows: later rights would have to be granted first.
const NEWEST: ABI = ABI::V7;

/// The version of Landlock in the running kernel; 0 without.
pub(crate) fn landlock_version() -> i32 {
    const ASK_VERSION: u32 = 1;
    // SAFETY: with this flag the call reads no memory, and returns a number or -1.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<libc::c_void>(), 0_usize, ASK_VERSION)
    };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// An empty rule set with the rights that its rules can grant.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) fd: OwnedFd,
    /// To read files and folders, and to execute.
    pub(super) read: u64,
    /// Everything, below a folder.
    pub(super) write_folder: u64,
    /// Everything, for a single file.
    pub(super) write_file: u64,
    /// To use device files.
    pub(super) devices: u64,
}

impl Rules {
    /// `None` on a kernel without Landlock.
    pub(super) fn create() -> Result<Option<Self>, SpawnError> {
        let version = landlock_version();
        if version == 0 {
            return Ok(None);
        }
        let abi = ABI::from(version.min(NEWEST as i32));
        let failed = |error: &dyn std::fmt::Display| SpawnError::Sandbox(format!("Landlock: {error}"));
        let ruleset = Ruleset::default().handle_access(AccessFs::from_all(abi));
        let ruleset = ruleset.and_then(|ruleset| ruleset.scope(Scope::from_all(abi)));
        let created = ruleset.and_then(Ruleset::create).map_err(|error| failed(&error))?;
        let Some(fd) = Option::<OwnedFd>::from(created) else { return Ok(None) };
        let read = AccessFs::from_read(abi);
        let devices = read | (AccessFs::from_file(abi) & !AccessFs::Execute);
        Ok(Some(Self {
            fd,
            read: read.bits(),
            write_folder: AccessFs::from_all(abi).bits(),
            write_file: AccessFs::from_file(abi).bits(),
            devices: devices.bits(),
        }))
    }
}
