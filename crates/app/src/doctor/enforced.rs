//! Checks the protections against agents, other users and other programs, and whether parlor runs as root.
//!
//! The kernel enforces these protections; this module checks that it can. It only describes the protections of commands,
//! because parlor sets them up when an agent starts a command.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parlor_process::SandboxSupport;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid, getuid};

use super::Finding;
use crate::settings::Config;
use crate::state_folder_trust::{PRIVATE_FILES, exposed_settings};

/// Why it is risky to run as root. `parlor serve` logs this text too.
pub(crate) const ROOT_RISK: &str = "root: commands of agents can read and change everything on this machine";

/// The version of Landlock from which on it covers signals, abstract sockets and devices.
const FULL_LANDLOCK: i32 = 6;

/// How to avoid running as root.
pub(crate) const ROOT_FIX: &str = "run parlor as a user of its own, for example: sudo -u USER parlor serve";

/// Whether this process runs as root, or can become root.
pub(crate) fn is_root() -> bool {
    getuid().is_root() || geteuid().is_root()
}

pub(super) fn check(home: Option<&Path>) -> Vec<Finding> {
    vec![check_user(is_root()), check_files(home), describe_commands(), check_sandbox(), check_doors()]
}

fn check_user(is_root: bool) -> Finding {
    const CHECK: &str = "user";
    if is_root {
        return Finding::warning(CHECK, ROOT_RISK, ROOT_FIX);
    }
    Finding::ok(CHECK, format!("{}, not root", getuid().as_raw()))
}

fn check_files(home: Option<&Path>) -> Finding {
    const CHECK: &str = "enforced: files";
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Err(error) = openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        let text = format!("file tools cannot be used: openat2 is missing or forbidden ({error})");
        let fix = "use Linux 5.6 or later, or a container profile that allows openat2";
        return Finding::problem(CHECK, text, fix);
    }
    let exposed = home.map(exposed_files).unwrap_or_default();
    if let [first, others @ ..] = exposed.as_slice() {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let text = format!("other users can read or change {}{more}", first.display());
        let paths: Vec<String> = exposed.iter().map(|path| path.display().to_string()).collect();
        return Finding::warning(CHECK, text, format!("chmod 600 {}", paths.join(" ")));
    }
    Finding::ok(CHECK, "openat2 confines file tools to the project; secrets are 0600")
}

/// The private files that other users can read or change, or that belong to another user.
fn exposed_files(home: &Path) -> Vec<PathBuf> {
    let secrets =
        fs::read_dir(home.join("secrets")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_exposed = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|metadata| {
            metadata.is_file()
                && (metadata.permissions().mode() & 0o077 != 0 || metadata.uid() != geteuid().as_raw())
        })
    };
    let settings = Config::load(home).ok().and_then(|config| exposed_settings(home, &config));
    let private = PRIVATE_FILES.iter().map(|name| home.join(name)).chain(secrets).filter(is_exposed);
    private.chain(settings).collect()
}

fn describe_commands() -> Finding {
    Finding::ok("enforced: commands", "no new privileges, resource limits, few variables")
}

/// Starts a program in a sandbox.
fn check_sandbox() -> Finding {
    describe_sandbox(&parlor_process::sandbox_support())
}

fn describe_sandbox(support: &SandboxSupport) -> Finding {
    const CHECK: &str = "enforced: sandbox";
    let version = support.landlock_version;
    match &support.failure {
        Some(failure) => {
            let fix = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
                       sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a container that may create them";
            Finding::warning(CHECK, format!("modes read-only and workspace refuse to start: {failure}"), fix)
        }
        None if version == 0 => Finding::warning(
            CHECK,
            "namespaces and seccomp; no Landlock, which would be a second wall",
            "use Linux 5.13 or later with landlock in its list of security modules",
        ),
        None if version < FULL_LANDLOCK => {
            let text = format!(
                "namespaces, seccomp, Landlock {version}; signals and devices need Landlock {FULL_LANDLOCK}"
            );
            Finding::ok(CHECK, text)
        }
        None => Finding::ok(CHECK, format!("namespaces, seccomp, Landlock {version}")),
    }
}

fn check_doors() -> Finding {
    const CHECK: &str = "enforced: doors";
    if let Err(error) = File::open("/proc/net/tcp") {
        let text = format!(
            "the user of a client cannot be determined (/proc/net/tcp: {error}), so all clients need the token"
        );
        return Finding::warning(
            CHECK,
            text,
            "mount /proc, or give clients the token that parlor token prints",
        );
    }
    if dumpable_behavior().is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable) {
        let text = "other users need the token, but other processes of this user can read parlor's memory";
        return Finding::warning(CHECK, text, "unset PARLOR_DUMPABLE");
    }
    Finding::ok(CHECK, "other users need the token; other processes cannot read parlor's memory")
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn running_as_root_is_a_warning_with_a_fix() {
        assert_eq!(check_user(false).state, Health::Ok);
        let root = check_user(true);
        assert_eq!(root.state, Health::Warning);
        assert!(root.found.contains("everything") && root.fix.is_some_and(|fix| fix.contains("sudo -u")));
    }

    #[test]
    fn a_kernel_without_namespaces_is_a_warning_with_a_fix() {
        let support = |landlock_version, failure| SandboxSupport { landlock_version, failure };
        assert_eq!(describe_sandbox(&support(7, None)).state, Health::Ok);
        assert_eq!(describe_sandbox(&support(0, None)).state, Health::Warning);
        let refused = parlor_process::SpawnError::Sandbox("no namespaces".to_owned());
        let finding = describe_sandbox(&support(7, Some(refused)));
        assert_eq!(finding.state, Health::Warning);
        assert!(finding.found.contains("no namespaces") && finding.fix.is_some());
    }

    #[test]
    fn a_secret_that_others_can_read_is_named_with_the_fixing_command() {
        let home = tempfile::tempdir().unwrap();
        let secret = home.path().join("secrets/key-x");
        fs::create_dir(home.path().join("secrets")).unwrap();
        let write = |path: &Path, mode| {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&secret, 0o600);
        write(&home.path().join("serve.json"), 0o600);
        assert_eq!(check_files(Some(home.path())).state, Health::Ok);
        write(&secret, 0o640);
        write(&home.path().join("serve.json"), 0o644);
        let finding = check_files(Some(home.path()));
        assert_eq!(finding.state, Health::Warning);
        assert!(finding.found.ends_with("serve.json and 1 more"), "{}", finding.found);
        assert!(finding.fix.is_some_and(|fix| fix.starts_with("chmod 600 ") && fix.ends_with("key-x")));
    }
}
