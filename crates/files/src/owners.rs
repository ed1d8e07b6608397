//! Which users parlor trusts above a working folder.
//!
//! All users of the machine may be able to write to a folder above the working folder, such as `/tmp`. Files that another
//! user puts there do not belong to the project.

use std::fs::{File, metadata, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

const ROOT: u32 = 0;

/// The users whose files parlor uses above a working folder: the user of this process, root, and the owner of the working
/// folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedOwners {
    this_user: u32,
    folder_owner: Option<u32>,
}

impl TrustedOwners {
    /// The trusted owners for the working folder `folder`. Blocking.
    pub fn of_folder(folder: &Path) -> Self {
        let folder_owner = metadata(folder).ok().map(|found| found.uid());
        Self { this_user: geteuid().as_raw(), folder_owner }
    }

    /// Whether `path` exists and belongs to a trusted owner; for a link, also its target. Blocking.
    pub fn own(&self, path: &Path) -> bool {
        [symlink_metadata(path), metadata(path)]
            .iter()
            .all(|found| found.as_ref().is_ok_and(|found| self.is_trusted(found.uid())))
    }

    /// Whether an open file belongs to a trusted owner.
    pub fn own_open(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|found| self.is_trusted(found.uid()))
    }

    fn is_trusted(&self, user: u32) -> bool {
        user == ROOT || user == self.this_user || self.folder_owner == Some(user)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn this_user_root_and_the_owner_of_the_folder_are_trusted() {
        let owners = TrustedOwners { this_user: 1000, folder_owner: Some(1001) };
        assert!([0, 1000, 1001].iter().all(|user| owners.is_trusted(*user)) && !owners.is_trusted(1002));
        assert!(!TrustedOwners { folder_owner: None, ..owners }.is_trusted(1001));
    }

    #[test]
    fn existing_files_of_this_user_are_trusted_also_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(path("file"), "").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("none", path("broken")).unwrap();
        create_dir(path("inner")).unwrap();
        let owners = TrustedOwners::of_folder(&path("inner"));
        assert!(owners.own(&path("file")) && owners.own(&path("link")));
        assert!(!owners.own(&path("broken")) && !owners.own(&path("none")));
        assert!(owners.own_open(&File::open(path("file")).unwrap()));
    }
}
