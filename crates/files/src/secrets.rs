//! Files and folders with secrets of the user, in an allowed folder such as a home: file tools can neither read nor change
//! them. The sandbox of commands hides the same ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Stat, statat};

use crate::follow::follow_links;

/// The secrets of a policy.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    /// As they were named, and without symbolic links.
    paths: BTreeSet<PathBuf>,
    /// Device and inode of those that exist, for walks that do not look at paths.
    ids: BTreeSet<(u64, u64)>,
}

impl Secrets {
    /// The absolute `paths`, except for those around one of the allowed folders `roots`: who allows a folder there means it.
    pub(crate) fn new<'a>(
        paths: impl IntoIterator<Item = PathBuf>,
        roots: impl Iterator<Item = &'a Path>,
    ) -> Self {
        let roots: Vec<&Path> = roots.collect();
        let mut secrets = Self::default();
        for path in paths {
            let real = follow_links(&path);
            if roots.iter().any(|root| *root != real && root.starts_with(&real)) {
                continue;
            }
            let found = statat(CWD, &real, AtFlags::SYMLINK_NOFOLLOW);
            secrets.ids.extend(found.map(|stat| id_of(&stat)));
            secrets.paths.extend([path, real]);
        }
        secrets
    }

    /// Whether `path`, which has no links, is a secret or in a folder of secrets, which need not exist yet.
    pub(crate) fn has_path(&self, path: &Path) -> bool {
        path.ancestors().any(|folder| self.paths.contains(folder))
    }

    /// Whether this is a secret, or another name of one.
    pub(crate) fn has(&self, stat: &Stat) -> bool {
        self.ids.contains(&id_of(stat))
    }
}

fn id_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
