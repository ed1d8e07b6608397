//! Becoming another user, for a thread or for a program.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The user whose server it is. Nobody on the machine needs to be called that: the kernel only knows numbers.
pub(crate) const OWNER: u32 = 61_001;
/// Another user of the same machine.
pub(crate) const STRANGER: u32 = 61_002;
/// The user who may do anything.
pub(crate) const ROOT: u32 = 0;

/// Whether this process can become other users. Says so if not.
pub(crate) fn can_become_others() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can start a server as one user and attack it as another");
    }
    is_root
}

/// Does `work` in a thread that is `user` and in no group of ours, so that its sockets and files are that user's.
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
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A program that runs as `user`, with nothing of our environment but `PATH`.
pub(crate) fn program_of(user: u32, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if user != ROOT {
        // This also takes away all other groups.
        command.gid(user).uid(user);
    }
    command
}
