//! Whose files count above a working folder.
//!
//! Folders above it may be open to all users of the machine, as `/tmp` is. What another user puts there is not the
//! project's.

use std::fs::{File, metadata, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

const ROOT: u32 = 0;

/// The users whose files count above a working folder: this one, root, and whoever has the working folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    this_user: u32,
    of_folder: Option<u32>,
}

impl Owners {
    /// Those of the working folder `folder`. Blocking.
    pub fn of(folder: &Path) -> Self {
        let of_folder = metadata(folder).ok().map(|found| found.uid());
        Self { this_user: geteuid().as_raw(), of_folder }
    }

    /// Whether `path` is there and theirs, and also what it leads to if it is a link. Blocking.
    pub fn have(&self, path: &Path) -> bool {
        [symlink_metadata(path), metadata(path)]
            .iter()
            .all(|found| found.as_ref().is_ok_and(|found| self.are(found.uid())))
    }

    /// Whether an open file is theirs.
    pub fn have_open(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|found| self.are(found.uid()))
    }

    fn are(&self, user: u32) -> bool {
        user == ROOT || user == self.this_user || self.of_folder == Some(user)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn this_user_root_and_the_owner_of_the_folder_count() {
        let owners = Owners { this_user: 1000, of_folder: Some(1001) };
        assert!([0, 1000, 1001].iter().all(|user| owners.are(*user)) && !owners.are(1002));
        assert!(!Owners { of_folder: None, ..owners }.are(1001));
    }

    #[test]
    fn what_is_there_and_ours_counts_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(path("file"), "").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("none", path("broken")).unwrap();
        create_dir(path("inner")).unwrap();
        let owners = Owners::of(&path("inner"));
        assert!(owners.have(&path("file")) && owners.have(&path("link")));
        assert!(!owners.have(&path("broken")) && !owners.have(&path("none")));
        assert!(owners.have_open(&File::open(path("file")).unwrap()));
    }
}
