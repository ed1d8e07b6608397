//! Checks that a file to evaluate, or to pass to the upstream runtime, is below an allowed folder.
//!
//! This protects against mistakes. It is not a sandbox: evaluated code can open any file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::MAX_CODE_BYTES;
use parlor_files::Policy;
use parlor_vocab::{Failure, FailureCode, RubyReply};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The folders below which files may be used.
#[derive(Clone, Debug)]
pub struct AllowedRoots {
    roots: Vec<PathBuf>,
    is_everything: bool,
    /// The absolute folder that relative paths start from.
    folder: PathBuf,
    /// The user's home folder, for `~`.
    home: Option<PathBuf>,
}

/// A file that was checked and read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CodeFile {
    pub(super) path: PathBuf,
    pub(super) content: Vec<u8>,
}

impl AllowedRoots {
    /// Allows nothing yet. Relative paths start from `folder`.
    pub fn new(folder: PathBuf, home: Option<PathBuf>) -> Self {
        Self { roots: Vec::new(), is_everything: false, folder, home }
    }

    /// Also allows everything below `root`. The root `*` allows all files.
    #[must_use]
    pub fn with(mut self, root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        self.is_everything |= root.as_os_str() == "*";
        let root = match (root.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            (Ok(_) | Err(_), _) => self.folder.join(root),
        };
        self.roots.push(root);
        self
    }

    /// Fails if `path` is not allowed. The file need not exist. Also allows files below `workspace`. Blocks.
    pub(super) fn check(&self, path: &str, workspace: Option<&str>) -> Result<(), Box<RubyReply>> {
        let opened = self.policy(workspace).and_then(|policy| policy.open(&self.folder, path, OFlags::PATH));
        match opened {
            Ok(_) => Ok(()),
            // The policy checks the folder first, so a missing file is in an allowed folder.
            Err(failure) if failure.code == FailureCode::NotFound => Ok(()),
            Err(failure) => Err(self.refused(path, failure)),
        }
    }

    /// Checks and reads a file through one handle, so that it cannot be replaced in between. Blocks.
    pub(super) fn read(&self, path: &str, workspace: Option<&str>) -> Result<CodeFile, Box<RubyReply>> {
        let unreadable = |reason: String| {
            let path = path.to_owned();
            Box::new(RubyReply::FileUnreadable { path, reason })
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self
            .policy(workspace)
            .and_then(|policy| policy.open(&self.folder, path, flags))
            .map_err(|failure| self.refused(path, failure))?;
        let file = File::from(opened.fd);
        match file.metadata() {
            // Such a path names a folder, and there is none.
            Ok(about) if about.is_file() && names_folder(path) => {
                return Err(Box::new(RubyReply::FileMissing { path: path.to_owned() }));
            }
            Ok(about) if about.is_file() => {}
            Ok(_) => return Err(unreadable("it is no file".to_owned())),
            Err(error) => return Err(unreadable(error.to_string())),
        }
        let mut content = Vec::new();
        // One byte more than the limit, so that the Ruby host reports code that is too large.
        let limit = MAX_CODE_BYTES as u64 + 1;
        file.take(limit).read_to_end(&mut content).map_err(|error| unreadable(error.to_string()))?;
        let given = Path::new(path);
        Ok(CodeFile { path: if given.is_absolute() { given.to_owned() } else { opened.path }, content })
    }

    /// Created for each use, because folders may appear and disappear, and links may change.
    fn policy(&self, workspace: Option<&str>) -> Result<Policy, Failure> {
        let everything = [PathBuf::from("/")];
        let workspace = workspace.map(PathBuf::from).filter(|folder| folder.is_absolute());
        let roots: Vec<&PathBuf> = match self.is_everything {
            true => everything.iter().collect(),
            false => self.roots.iter().chain(&workspace).filter(|root| root.is_dir()).collect(),
        };
        let policy = Policy::new(roots)?;
        Ok(match &self.home {
            Some(home) => policy.with_home(home),
            None => policy,
        })
    }

    fn refused(&self, path: &str, failure: Failure) -> Box<RubyReply> {
        let is_link_loop = || {
            let found = self.folder.join(path).metadata();
            found.is_err_and(|error| error.raw_os_error() == Some(Errno::LOOP.raw_os_error()))
        };
        let path = path.to_owned();
        let code = failure.code;
        let is_unreadable = code == FailureCode::ToolError || code == FailureCode::Unsupported;
        Box::new(if code == FailureCode::NotFound {
            RubyReply::FileMissing { path }
        } else if code == FailureCode::InvalidInput {
            RubyReply::PathInvalid { reason: failure.message }
        } else if is_unreadable && !is_link_loop() {
            RubyReply::FileUnreadable { path, reason: failure.message }
        } else {
            // Outside of the roots, or links that form a loop or keep changing.
            RubyReply::PathRefused { path }
        })
    }
}

/// Whether a path can only name a folder, such as `a.rb/` or `a.rb/.`.
fn names_folder(path: &str) -> bool {
    path.ends_with('/') || path.ends_with("/.")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with an allowed folder in it, which has a file and links to the outside.
    fn test_folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::create_dir_all(folder.path().join("rootx")).unwrap();
        std::fs::write(root.join("a.rb"), "1").unwrap();
        std::fs::write(folder.path().join("out.rb"), "2").unwrap();
        std::fs::write(folder.path().join("rootx/a.rb"), "3").unwrap();
        symlink(folder.path().join("out.rb"), root.join("link.rb")).unwrap();
        symlink(folder.path(), root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        (folder, root)
    }

    fn denied(path: &str) -> Box<RubyReply> {
        Box::new(RubyReply::PathRefused { path: path.to_owned() })
    }

    #[test]
    fn files_outside_of_the_roots_are_refused() {
        let (_folder, root) = test_folder();
        let roots = AllowedRoots::new(root.clone(), None).with(&root);
        let root = root.to_str().unwrap();
        for path in [
            "/etc/hostname".to_owned(),
            "/no/such/file".to_owned(),
            format!("{root}/../out.rb"),
            format!("{root}/link.rb"),
            format!("{root}/up/missing.rb"),
            format!("{root}/up/missing/deeper.rb"),
            format!("{root}x/a.rb"),
            format!("{root}/loop"),
            "../out.rb".to_owned(),
        ] {
            assert_eq!(roots.read(&path, None).unwrap_err(), denied(&path), "{path}");
            assert_eq!(roots.check(&path, None).unwrap_err(), denied(&path), "{path}");
        }
    }

    #[test]
    fn files_inside_of_the_roots_are_read_and_may_be_missing() {
        let (_folder, root) = test_folder();
        let roots = AllowedRoots::new(root.clone(), None).with(&root);
        let path = format!("{}/sub/../a.rb", root.display());
        let code = roots.read(&path, None).unwrap();
        assert_eq!((code.path, code.content), (PathBuf::from(&path), b"1".to_vec()));
        let relative = roots.read("a.rb", None).unwrap();
        assert!(relative.path.is_absolute());
        let missing = format!("{}/new/b.skp", root.display());
        assert!(roots.check(&missing, None).is_ok());
        assert_eq!(*roots.read(&missing, None).unwrap_err(), RubyReply::FileMissing { path: missing });
        for not_a_folder in ["a.rb/", "a.rb//", "a.rb/.", "./a.rb/"] {
            let missing = RubyReply::FileMissing { path: not_a_folder.to_owned() };
            assert_eq!(*roots.read(not_a_folder, None).unwrap_err(), missing);
        }
        for folder in ["sub", "sub/"] {
            assert!(matches!(*roots.read(folder, None).unwrap_err(), RubyReply::FileUnreadable { .. }));
        }
        assert!(matches!(*roots.read("a\0b", None).unwrap_err(), RubyReply::PathInvalid { .. }));
    }

    #[test]
    fn a_root_may_be_a_link_or_missing_and_a_star_allows_everything() {
        let (folder, root) = test_folder();
        let link = folder.path().join("to_root");
        symlink(&root, &link).unwrap();
        let roots = AllowedRoots::new(root.clone(), None).with(&link).with("/no/such/root");
        assert!(roots.read(root.join("a.rb").to_str().unwrap(), None).is_ok());
        let out = folder.path().join("out.rb");
        let out = out.to_str().unwrap();
        assert_eq!(roots.check(out, None).unwrap_err(), denied(out));
        assert!(roots.check(out, Some(folder.path().to_str().unwrap())).is_ok(), "a workspace");
        assert!(roots.check(out, Some("relative")).is_err());
        assert!(roots.with("*").check(out, None).is_ok());
    }
}
