//! Whose the state folder is. What another user could have written there is not used: settings name programs that are
//! run, and the token lets in whoever knows it.

use std::fmt;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::settings;

/// Files of the state folder that are parlor's alone. Those of `secrets` are, too.
pub(crate) const PRIVATE: [&str; 7] =
    ["parlor.db", "parlor.db-wal", "parlor.db-shm", "history", "loaf.json", "supr.json", "serve.json"];

/// Where keys and logins are; each file in it is checked when it is read.
const SECRETS: &str = "secrets";

/// The bit that lets everybody write.
const OTHERS_WRITE: u32 = 0o002;

const ROOT: u32 = 0;

/// Something in the state folder that another user could have written.
#[derive(Debug)]
pub(crate) struct NotOurs {
    path: PathBuf,
    owner: u32,
    flaw: Flaw,
    /// The command that mends it.
    pub(crate) fix: String,
}

#[derive(Debug)]
enum Flaw {
    /// It is another user's.
    Owner,
    /// Everybody can write to it; this is its mode.
    Mode(u32),
}

impl NotOurs {
    /// What is wrong, without what to do.
    pub(crate) fn found(&self) -> String {
        let (path, owner) = (self.path.display(), self.owner);
        match self.flaw {
            Flaw::Owner => format!("{path} belongs to user {owner}, and is not used"),
            Flaw::Mode(mode) => {
                format!(
                    "{path} of user {owner} has mode {mode:04o}: everybody can change it, so it is not used"
                )
            }
        }
    }
}

impl std::error::Error for NotOurs {}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.found(), self.fix)
    }
}

/// Refuses a state folder that another user could have written to, or with files of which that is so. One that is not
/// there is fine. For root, files of other users are fine as well: a container has folders of its host.
pub(crate) fn check(home: &Path) -> Result<(), NotOurs> {
    check_as(home, geteuid().as_raw())
}

fn check_as(home: &Path, user: u32) -> Result<(), NotOurs> {
    let command =
        |command: &str, path: &Path| format!("look at what is in it, then run: {command} {}", path.display());
    look(home, user, |flaw| match flaw {
        Flaw::Owner => {
            let change = command(&format!("sudo chown -R {user}"), home);
            format!("set PARLOR_HOME to a folder of your own, or {change}")
        }
        Flaw::Mode(_) => command("chmod o-w", home),
    })?;
    for name in [settings::FILE, SECRETS].iter().chain(&PRIVATE) {
        let path = home.join(name);
        look(&path, user, |flaw| match flaw {
            Flaw::Owner => command(&format!("sudo chown {user}"), &path),
            Flaw::Mode(_) => command("chmod o-w", &path),
        })?;
    }
    Ok(())
}

/// Looks at what `path` leads to. What cannot be looked at is found out when it is opened.
fn look(path: &Path, user: u32, fix: impl FnOnce(&Flaw) -> String) -> Result<(), NotOurs> {
    let Ok(found) = metadata(path) else { return Ok(()) };
    let flaw = if ![user, ROOT].contains(&found.uid()) && user != ROOT {
        Flaw::Owner
    } else if found.mode() & OTHERS_WRITE != 0 {
        Flaw::Mode(found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let fix = fix(&flaw);
    Err(NotOurs { path: path.to_owned(), owner: found.uid(), flaw, fix })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_write_is_named_with_the_command_that_mends_it() {
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
            // Who could have written to it is the same for root.
            assert!(check_as(home.path(), ROOT).is_err());
            set_permissions(path, Permissions::from_mode(usual)).unwrap();
        }
        assert!(check_as(home.path(), owner).is_ok());
    }

    #[test]
    fn a_file_of_another_user_is_root_s_to_use_and_nobody_else_s() {
        let home = tempfile::tempdir().unwrap();
        let owner = metadata(home.path()).unwrap().uid();
        let other = owner + 1;
        // As seen by another user, it is ours: that of another user, unless we are root.
        assert_eq!(check_as(home.path(), other).is_ok(), owner == ROOT);
        assert!(check_as(home.path(), ROOT).is_ok());
    }
}
