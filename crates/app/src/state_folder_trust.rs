//! Checks that no other user could have written to the state folder. Its settings name programs that parlor runs, and its
//! token lets clients in, so parlor refuses a folder that others control.

use std::fmt;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::settings;

/// Files of the state folder that only the owner may read or write. The files in `secrets` are private as well.
pub(crate) const PRIVATE_FILES: [&str; 7] =
    ["parlor.db", "parlor.db-wal", "parlor.db-shm", "history", "loaf.json", "supr.json", "serve.json"];

/// The folder of keys and logins. Each file in it is checked when it is read.
const SECRETS: &str = "secrets";

/// The permission bits that let others, or the group, read a file.
const OTHERS_READ: u32 = 0o044;

/// The permission bits that let others, or the group, open files in a folder.
const OTHERS_SEARCH: u32 = 0o011;

/// The permission bit that lets everybody write.
const OTHERS_WRITE: u32 = 0o002;

const ROOT: u32 = 0;

/// A path in the state folder that another user could have written to.
#[derive(Debug)]
pub(crate) struct UntrustedPath {
    path: PathBuf,
    owner: u32,
    reason: UntrustedReason,
    /// What the user should do, with the command to run.
    pub(crate) fix: String,
}

#[derive(Debug)]
enum UntrustedReason {
    /// Another user owns the path.
    ForeignOwner,
    /// Everybody can write to the path, which has this mode.
    WritableByAll(u32),
}

impl UntrustedPath {
    /// What is wrong, without the fix.
    pub(crate) fn description(&self) -> String {
        let (path, owner) = (self.path.display(), self.owner);
        match self.reason {
            UntrustedReason::ForeignOwner => {
                format!("{path} belongs to user {owner}, so parlor does not use it")
            }
            UntrustedReason::WritableByAll(mode) => {
                format!(
                    "{path} of user {owner} has mode {mode:04o}: everybody can change it, so parlor does not use it"
                )
            }
        }
    }
}

impl std::error::Error for UntrustedPath {}

impl fmt::Display for UntrustedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.description(), self.fix)
    }
}

/// Fails if another user could have written to the state folder or to one of parlor's files in it. A folder that does not
/// exist is accepted. Root also accepts files of other users: a container may mount folders of its host.
pub(crate) fn check(home: &Path) -> Result<(), UntrustedPath> {
    check_as(home, geteuid().as_raw())
}

fn check_as(home: &Path, user: u32) -> Result<(), UntrustedPath> {
    let fix_command =
        |program: &str, path: &Path| format!("inspect it, then run: {program} {}", path.display());
    check_path(home, user, |reason| match reason {
        UntrustedReason::ForeignOwner => {
            let change = fix_command(&format!("sudo chown -R {user}"), home);
            format!("set PARLOR_HOME to a folder of your own, or {change}")
        }
        UntrustedReason::WritableByAll(_) => fix_command("chmod o-w", home),
    })?;
    for name in [settings::FILE, SECRETS].iter().chain(&PRIVATE_FILES) {
        let path = home.join(name);
        check_path(&path, user, |reason| match reason {
            UntrustedReason::ForeignOwner => fix_command(&format!("sudo chown {user}"), &path),
            UntrustedReason::WritableByAll(_) => fix_command("chmod o-w", &path),
        })?;
    }
    Ok(())
}

/// The settings file, if it has a secret that other users can read.
pub(crate) fn exposed_settings(home: &Path, config: &settings::Config) -> Option<PathBuf> {
    let file = home.join(settings::FILE);
    let has_mode = |path: &Path, bits| metadata(path).is_ok_and(|found| found.mode() & bits != 0);
    let is_readable = has_mode(home, OTHERS_SEARCH) && has_mode(&file, OTHERS_READ);
    (config.has_secret() && is_readable).then_some(file)
}

/// Checks `path`, or what it links to. A path without readable metadata passes; opening it will report the error.
fn check_path(
    path: &Path,
    user: u32,
    fix: impl FnOnce(&UntrustedReason) -> String,
) -> Result<(), UntrustedPath> {
    let Ok(metadata) = metadata(path) else { return Ok(()) };
    let reason = if ![user, ROOT].contains(&metadata.uid()) && user != ROOT {
        UntrustedReason::ForeignOwner
    } else if metadata.mode() & OTHERS_WRITE != 0 {
        UntrustedReason::WritableByAll(metadata.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let fix = fix(&reason);
    Err(UntrustedPath { path: path.to_owned(), owner: metadata.uid(), reason, fix })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_in_settings_that_others_can_read_is_found() {
        let home = tempfile::tempdir().unwrap();
        let exposed = |text: &str, folder: u32, file: u32| {
            let path = home.path().join(settings::FILE);
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(file)).unwrap();
            set_permissions(home.path(), Permissions::from_mode(folder)).unwrap();
            exposed_settings(home.path(), &settings::Config::load(home.path()).unwrap()).is_some()
        };
        let token = "[channels.supr]\ntoken = \"secret\"\n";
        assert!(exposed(token, 0o755, 0o644) && exposed(token, 0o750, 0o640));
        assert!(exposed("[channels.supex]\nupstream_token = \"secret\"\n", 0o755, 0o644));
        assert!(exposed("[log]\nurl = \"postgres://me:secret@db.example/parlor\"\n", 0o755, 0o644));
        assert!(!exposed(token, 0o700, 0o644) && !exposed(token, 0o755, 0o600) && !exposed("", 0o755, 0o644));
    }

    #[test]
    fn a_path_that_others_can_write_is_refused_with_the_fixing_command() {
        let home = tempfile::tempdir().unwrap();
        let owner = metadata(home.path()).unwrap().uid();
        assert!(check_as(home.path(), owner).is_ok() && check_as(&home.path().join("none"), owner).is_ok());
        let token = home.path().join("supr.json");
        write(&token, "").unwrap();
        for (path, mode, usual) in [(home.path(), 0o702, 0o700), (token.as_path(), 0o666, 0o600)] {
            set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let refused = check_as(home.path(), owner).unwrap_err();
            assert_eq!(refused.path, path);
            assert!(refused.fix.ends_with(&format!("chmod o-w {}", path.display())), "{refused}");
            // Everybody could have written to it, so root refuses it too.
            assert!(check_as(home.path(), ROOT).is_err());
            set_permissions(path, Permissions::from_mode(usual)).unwrap();
        }
        assert!(check_as(home.path(), owner).is_ok());
    }

    #[test]
    fn only_root_accepts_a_file_of_another_user() {
        let home = tempfile::tempdir().unwrap();
        let owner = metadata(home.path()).unwrap().uid();
        let other = owner + 1;
        // For the user `other`, the folder belongs to another user. Everybody accepts a folder of root.
        assert_eq!(check_as(home.path(), other).is_ok(), owner == ROOT);
        assert!(check_as(home.path(), ROOT).is_ok());
    }
}
