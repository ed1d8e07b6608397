//! Which files may be evaluated, or given to Upstream: those below the allowed folders.
//!
//! A guard rail, not a sandbox: evaluated code can open any file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::MAX_CODE_BYTES;
use parlor_files::Policy;
use parlor_vocab::{Failure, FailureCode, RubyReply};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The folders that are allowed.
#[derive(Clone, Debug)]
pub struct AllowedRoots {
    roots: Vec<PathBuf>,
    is_everything: bool,
    /// Where relative paths begin. Absolute.
    folder: PathBuf,
    /// What `~` stands for.
    home: Option<PathBuf>,
}

/// A file that may be evaluated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) path: PathBuf,
    pub(super) content: Vec<u8>,
}

impl AllowedRoots {
    /// Nothing is allowed yet; relative paths begin at `folder`.
    pub fn new(folder: PathBuf, home: Option<PathBuf>) -> Self {
        Self { roots: Vec::new(), is_everything: false, folder, home }
    }

    /// What is below `root` is allowed too. `*` allows everything.
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

    /// Whether `path` may be used; it need not exist. `workspace` is allowed besides. Blocks.
    pub(super) fn check(&self, path: &str, workspace: Option<&str>) -> Result<(), Box<RubyReply>> {
        let opened = self.policy(workspace).and_then(|policy| policy.open(&self.folder, path, OFlags::PATH));
        match opened {
            Ok(_) => Ok(()),
            // It is in an allowed folder: that was found out first.
            Err(failure) if failure.code == FailureCode::NotFound => Ok(()),
            Err(failure) => Err(self.refused(path, failure)),
        }
    }

    /// Reads a file once, after the check, through the same handle. Blocks.
    pub(super) fn read(&self, path: &str, workspace: Option<&str>) -> Result<Code, Box<RubyReply>> {
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
            Ok(about) if about.is_file() => {}
            Ok(_) => return Err(unreadable("it is no file".to_owned())),
            Err(error) => return Err(unreadable(error.to_string())),
        }
        let mut content = Vec::new();
        // One byte more than Ruby takes, so that it is Ruby that says it is too much.
        let limit = MAX_CODE_BYTES as u64 + 1;
        file.take(limit).read_to_end(&mut content).map_err(|error| unreadable(error.to_string()))?;
        let given = Path::new(path);
        Ok(Code { path: if given.is_absolute() { given.to_owned() } else { opened.path }, content })
    }

    /// Made anew for each use: folders come and go, and links change.
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
        Box::new(match failure.code {
            FailureCode::NotFound => RubyReply::FileMissing { path },
            FailureCode::InvalidInput => RubyReply::PathInvalid { reason: failure.message },
            FailureCode::ToolError | FailureCode::Unsupported if !is_link_loop() => {
                RubyReply::FileUnreadable { path, reason: failure.message }
            }
            // Outside of the roots, or links that lead in circles or keep changing.
            _ => RubyReply::PathRefused { path },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with an allowed one in it, a file there, and links that lead out.
    fn place() -> (tempfile::TempDir, PathBuf) {
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
    fn nothing_outside_is_read_or_named() {
        let (_folder, root) = place();
        let reach = AllowedRoots::new(root.clone(), None).with(&root);
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
            assert_eq!(reach.read(&path, None).unwrap_err(), denied(&path), "{path}");
            assert_eq!(reach.check(&path, None).unwrap_err(), denied(&path), "{path}");
        }
    }

    #[test]
    fn what_is_inside_is_read_once_and_may_be_missing() {
        let (_folder, root) = place();
        let reach = AllowedRoots::new(root.clone(), None).with(&root);
        let path = format!("{}/sub/../a.rb", root.display());
        let code = reach.read(&path, None).unwrap();
        assert_eq!((code.path, code.content), (PathBuf::from(&path), b"1".to_vec()));
        let relative = reach.read("a.rb", None).unwrap();
        assert!(relative.path.is_absolute());
        let missing = format!("{}/new/b.skp", root.display());
        assert!(reach.check(&missing, None).is_ok());
        assert_eq!(*reach.read(&missing, None).unwrap_err(), RubyReply::FileMissing { path: missing });
        assert!(matches!(*reach.read("sub", None).unwrap_err(), RubyReply::FileUnreadable { .. }));
        assert!(matches!(*reach.read("a\0b", None).unwrap_err(), RubyReply::PathInvalid { .. }));
    }

    #[test]
    fn a_root_may_be_a_link_or_missing_and_a_star_is_everything() {
        let (folder, root) = place();
        let link = folder.path().join("to_root");
        symlink(&root, &link).unwrap();
        let reach = AllowedRoots::new(root.clone(), None).with(&link).with("/no/such/root");
        assert!(reach.read(root.join("a.rb").to_str().unwrap(), None).is_ok());
        let out = folder.path().join("out.rb");
        let out = out.to_str().unwrap();
        assert_eq!(reach.check(out, None).unwrap_err(), denied(out));
        assert!(reach.check(out, Some(folder.path().to_str().unwrap())).is_ok(), "a workspace");
        assert!(reach.check(out, Some("relative")).is_err());
        assert!(reach.with("*").check(out, None).is_ok());
    }
}
