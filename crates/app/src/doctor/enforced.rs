//! What keeps agents, other users and other programs within their limits here, and who it is all run as.
//!
//! The kernel enforces it; this looks whether it can. What cannot be looked at without a run is told as it is.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid, getuid};

use super::Finding;
use crate::ownership::PRIVATE;

/// What a user who is root is told, here and by `parlor serve`.
pub(crate) const AS_ROOT: &str = "root: what an agent runs can read and change everything here";

/// What to do about that.
pub(crate) const NOT_AS_ROOT: &str = "run it as a user of its own, for example: sudo -u USER parlor serve";

/// Whether this process is root, or can become it.
pub(crate) fn is_root() -> bool {
    getuid().is_root() || geteuid().is_root()
}

/// Looks at all of it.
pub(super) fn look(home: Option<&Path>) -> Vec<Finding> {
    vec![user(is_root()), files(home), commands(), doors()]
}

fn user(is_root: bool) -> Finding {
    const CHECK: &str = "user";
    if is_root {
        return Finding::warning(CHECK, AS_ROOT, NOT_AS_ROOT);
    }
    Finding::ok(CHECK, format!("{}, not root", getuid().as_raw()))
}

fn files(home: Option<&Path>) -> Finding {
    const CHECK: &str = "enforced: files";
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Err(error) = openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        let said = format!("file tools cannot be used: openat2 is missing or forbidden ({error})");
        return Finding::problem(CHECK, said, "Linux 5.6, or a container profile that allows openat2");
    }
    let open = home.map(open_to_others).unwrap_or_default();
    if let [first, others @ ..] = open.as_slice() {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let said = format!("others can read or change {}{more}", first.display());
        let shown: Vec<String> = open.iter().map(|path| path.display().to_string()).collect();
        return Finding::warning(CHECK, said, format!("chmod 600 {}", shown.join(" ")));
    }
    Finding::ok(CHECK, "openat2 keeps file tools in the project; secrets are 0600")
}

/// The private files that others can read or change, or own.
fn open_to_others(home: &Path) -> Vec<PathBuf> {
    let secrets =
        fs::read_dir(home.join("secrets")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_open = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|found| {
            found.is_file() && (found.permissions().mode() & 0o077 != 0 || found.uid() != geteuid().as_raw())
        })
    };
    PRIVATE.iter().map(|name| home.join(name)).chain(secrets).filter(is_open).collect()
}

fn commands() -> Finding {
    Finding::ok("enforced: commands", "no new privileges, limits, few variables; no sandbox yet")
}

fn doors() -> Finding {
    const CHECK: &str = "enforced: doors";
    if let Err(error) = File::open("/proc/net/tcp") {
        let said = format!("who connects cannot be known (/proc/net/tcp: {error}): all need the token");
        return Finding::warning(CHECK, said, "mount /proc, or give clients the token of parlor token");
    }
    if dumpable_behavior().is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable) {
        let said = "this user only; but others of its processes can read parlor's memory";
        return Finding::warning(CHECK, said, "unset PARLOR_DUMPABLE");
    }
    Finding::ok(CHECK, "this user only, others need the token; memory is closed")
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn root_is_told_what_that_means() {
        assert_eq!(user(false).state, Health::Ok);
        let root = user(true);
        assert_eq!(root.state, Health::Warning);
        assert!(root.found.contains("everything") && root.fix.is_some_and(|fix| fix.contains("sudo -u")));
    }

    #[test]
    fn a_secret_that_others_can_read_is_named_with_the_command_that_closes_it() {
        let home = tempfile::tempdir().unwrap();
        let secret = home.path().join("secrets/key-x");
        fs::create_dir(home.path().join("secrets")).unwrap();
        let write = |path: &Path, mode| {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&secret, 0o600);
        write(&home.path().join("serve.json"), 0o600);
        assert_eq!(files(Some(home.path())).state, Health::Ok);
        write(&secret, 0o640);
        write(&home.path().join("serve.json"), 0o644);
        let found = files(Some(home.path()));
        assert_eq!(found.state, Health::Warning);
        assert!(found.found.ends_with("serve.json and 1 more"), "{}", found.found);
        assert!(found.fix.is_some_and(|fix| fix.starts_with("chmod 600 ") && fix.ends_with("key-x")));
    }
}
