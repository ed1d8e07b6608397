//! Running a thread or a program as another user.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The user who runs the server. The machine needs no account with this number.
pub(crate) const OWNER: u32 = 61_001;
/// Another user of the same machine.
pub(crate) const OTHER_USER: u32 = 61_002;
/// A third user of the machine, such as that of a proxy.
pub(crate) const THIRD_USER: u32 = 61_003;
pub(crate) const ROOT: u32 = 0;

/// Whether this process can switch users. Prints a message if not.
pub(crate) fn can_switch_users() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can start a server as one user and attack it as another");
    }
    is_root
}

/// Runs `work` in a thread with the identity of `user` and without other groups, so that this user owns its sockets and
/// files.
pub(crate) fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if user != ROOT {
                let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
                set_thread_groups(&[]).unwrap();
                set_thread_res_gid(gid, gid, gid).unwrap();
                set_thread_res_uid(uid, uid, uid).unwrap();
            }
            work()
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A command that runs as `user`, with only `PATH` in its environment.
pub(crate) fn command_as(user: u32, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if user != ROOT {
        // This also drops all other groups.
        command.gid(user).uid(user);
    }
    command
}
