//! Which files tools may touch: those below the allowed folders, and no others.
//!
//! A path is first followed as text ([`crate::follow`]): `~`, `..` and symbolic links are replaced by
//! what they mean, which gives a guess without links. The guess chooses a root, and then the
//! kernel decides: every file is opened by `openat2` from the root's own descriptor, with no
//! symbolic link and no `..` allowed on the way. If somebody swaps a link in between, the guess
//! is wrong and the kernel refuses it, so there is no moment in which a check can be outrun.
//! Absolute links and links from one root into another work, because they are only text.
//!
//! A guard rail for file tools, not a sandbox: a command of the `shell` tool can open any file
//! that the server's user can. Needs Linux 5.6; without `openat2` there is no policy, hence no
//! tools, and [`Policy::new`] says so.
//!
//! All functions block for a moment: call them on a thread that may.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use parlor_vocab::{Failure, FailureCode};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;

use crate::code::{self, failure, invalid, system};
use crate::follow::follow;
use crate::private::PrivateFolder;

/// The longest path that is looked at, which is what the kernel takes.
pub const PATH_BYTES: usize = 4095;

/// How often a path is followed anew when its links change meanwhile.
pub const PATH_TRIES: usize = 32;

/// What is said of a file in the state folder that is to be read.
const UNREADABLE: &str = "of which only AGENTS.md, media and skills can be read";
/// What is said of one that is to be changed.
const UNCHANGEABLE: &str = "which file tools cannot change; ask the person to do it";

/// The allowed folders, held open. One descriptor each: make a policy when a run starts, not one
/// for each idle session.
#[derive(Debug)]
pub struct Policy {
    roots: Vec<Root>,
    home: Option<PathBuf>,
    private: Option<PrivateFolder>,
}

#[derive(Debug)]
struct Root {
    /// Free of symbolic links.
    path: PathBuf,
    folder: OwnedFd,
}

/// Something below a root that has been opened.
#[derive(Debug)]
pub struct OpenedFile {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// Where it is, free of symbolic links.
    pub path: PathBuf,
    /// The allowed folder that it is in.
    pub root: PathBuf,
}

/// A name in an open folder: where a file is, or is to be.
#[derive(Debug)]
pub struct FoundEntry {
    /// The folder. Good for `*at` calls, not for reading it.
    pub folder: OwnedFd,
    /// The last part of the path. Not followed if it is, by now, a symbolic link.
    pub name: OsString,
    /// Where it is, free of symbolic links.
    pub path: PathBuf,
}

/// What to do about folders that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentFolders {
    /// They must be there.
    Present,
    /// They are made.
    Made,
}

impl Policy {
    /// Allows what is below `roots`, which may be symbolic links themselves. `/` allows everything.
    pub fn new<P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> Result<Self, Failure> {
        let roots: Vec<Root> =
            roots.into_iter().map(|root| Root::open(root.as_ref())).collect::<Result<_, _>>()?;
        if roots.is_empty() {
            return Err(invalid("no folder is allowed; name at least one"));
        }
        Ok(Self { roots, home: None, private: None })
    }

    /// What `~` at the start of a path stands for.
    #[must_use]
    pub fn with_home(self, home: impl Into<PathBuf>) -> Self {
        Self { home: Some(home.into()), ..self }
    }

    /// What `~` means to a command with these variables: the folder that `HOME` names, if it does so in full.
    #[must_use]
    pub fn with_home_of(self, env: &[(String, String)]) -> Self {
        match env.iter().find(|(name, value)| name == "HOME" && Path::new(value).is_absolute()) {
            Some((_, home)) => self.with_home(home),
            None => self,
        }
    }

    /// Takes parlor's state folder out of what is allowed, wherever it lies and whatever it is called: nothing in it can
    /// be changed, and only [`READABLE_STATE`](crate::READABLE_STATE) can be read. A folder that is not there is left
    /// out of account.
    #[must_use]
    pub fn without_state(self, folder: &Path) -> Self {
        Self { private: PrivateFolder::open(folder), ..self }
    }

    /// Whether what was found on a walk through an allowed folder belongs to the state folder and may not be read.
    pub fn is_private(&self, found: &Stat) -> bool {
        self.private.as_ref().is_some_and(|private| private.is(found))
    }

    /// The allowed folders, free of symbolic links.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// Opens what `path` means, seen from `folder`, to read it. Never creates anything.
    pub fn open(&self, folder: &Path, path: &str, flags: OFlags) -> Result<OpenedFile, Failure> {
        self.retry(folder, path, |root, real, inner| {
            let fd = match (&self.private, inner.file_name()) {
                (None, _) => open_below(&root.folder, or_here(inner), flags)?,
                (Some(private), None) => {
                    private.check_read(root.folder.as_fd(), None)?;
                    open_below(&root.folder, Path::new("."), flags)?
                }
                // From the folder that was checked, so that it cannot be another one by now.
                (Some(private), Some(name)) => {
                    let above = inner.parent().unwrap_or(Path::new(""));
                    let above = open_below(&root.folder, or_here(above), OFlags::PATH | OFlags::DIRECTORY)?;
                    private.check_read(above.as_fd(), Some(name))?;
                    let fd = open_below(&above, Path::new(name), flags)?;
                    if private.is(&fstat(&fd)?) {
                        return Err(PathObstacle::Unreadable);
                    }
                    fd
                }
            };
            Ok(OpenedFile { fd, path: real.to_owned(), root: root.path.clone() })
        })
    }

    /// Opens the folder that `path` means, seen from `folder`, for a command to start in. Also within the state folder:
    /// a command can go there by itself.
    pub fn open_folder(&self, folder: &Path, path: &str) -> Result<OpenedFile, Failure> {
        self.retry(folder, path, |root, real, inner| {
            let fd = open_below(&root.folder, or_here(inner), OFlags::PATH | OFlags::DIRECTORY)?;
            Ok(OpenedFile { fd, path: real.to_owned(), root: root.path.clone() })
        })
    }

    /// The folder and name of what `path` means, seen from `folder`, to change it. The file need not exist.
    pub fn spot(&self, folder: &Path, path: &str, parents: ParentFolders) -> Result<FoundEntry, Failure> {
        self.retry(folder, path, |root, real, inner| {
            let name = inner.file_name().ok_or(Errno::ISDIR)?.to_owned();
            let above = inner.parent().unwrap_or(Path::new(""));
            let folder = self.open_parents(&root.folder, above, parents)?;
            self.check_write(folder.as_fd())?;
            Ok(FoundEntry { folder, name, path: real.to_owned() })
        })
    }

    /// Follows `path` and attempts something with it, until the links hold still.
    fn retry<T>(
        &self,
        folder: &Path,
        path: &str,
        attempt: impl Fn(&Root, &Path, &Path) -> Result<T, PathObstacle>,
    ) -> Result<T, Failure> {
        let wanted = self.expand(folder, path)?;
        for _ in 0..PATH_TRIES {
            let real = follow(&wanted).map_err(|_| {
                failure(FailureCode::ToolError, format!("`{path}` has a loop of symbolic links"))
            })?;
            let (root, inner) = self.root_of(&real).ok_or_else(|| self.refusal(path, &wanted))?;
            match attempt(root, &real, inner) {
                // A link where the guess had none: somebody changed it in between.
                Err(PathObstacle::System(Errno::LOOP | Errno::XDEV | Errno::AGAIN)) => {}
                Err(PathObstacle::System(errno)) => return Err(system("open", path)(errno)),
                Err(PathObstacle::Unreadable) => return Err(self.private_refusal(path, UNREADABLE)),
                Err(PathObstacle::Unchangeable) => return Err(self.private_refusal(path, UNCHANGEABLE)),
                Ok(done) => return Ok(done),
            }
        }
        Err(failure(FailureCode::PathChanged, format!("`{path}` keeps changing while it is looked at")))
    }

    /// The path as text, absolute. Its `..` are still in it: they mean the folder above what a
    /// link leads to, as they do for programs.
    fn expand(&self, folder: &Path, path: &str) -> Result<PathBuf, Failure> {
        if path.is_empty() {
            return Err(invalid("the path is empty"));
        }
        if path.contains('\0') {
            return Err(invalid("the path holds a NUL byte"));
        }
        if path.len() > PATH_BYTES {
            let message = format!("a path of {} bytes is longer than the limit of {PATH_BYTES}", path.len());
            return Err(invalid(message));
        }
        if !folder.is_absolute() {
            return Err(invalid(format!("the working folder `{}` is not absolute", folder.display())));
        }
        match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.home.as_ref().ok_or_else(|| {
                    invalid(format!("no home folder is known for `{path}`; use an absolute path"))
                })?;
                Ok(home.join(rest.trim_start_matches('/')))
            }
            _ => Ok(folder.join(path)),
        }
    }

    /// The first root that holds `real`, and the way from there.
    fn root_of<'a>(&self, real: &'a Path) -> Option<(&Root, &'a Path)> {
        self.roots.iter().find_map(|root| Some((root, real.strip_prefix(&root.path).ok()?)))
    }

    /// Opens the folder `path` below `root`, making what is missing if that is wanted.
    fn open_parents(
        &self,
        root: &OwnedFd,
        path: &Path,
        parents: ParentFolders,
    ) -> Result<OwnedFd, PathObstacle> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match open_below(root, or_here(path), flags) {
            Err(Errno::NOENT) if parents == ParentFolders::Made => {}
            outcome => return Ok(outcome?),
        }
        let mut folder = open_below(root, Path::new("."), flags)?;
        for part in path {
            folder = match open_below(&folder, Path::new(part), flags) {
                Err(Errno::NOENT) => {
                    self.check_write(folder.as_fd())?;
                    match mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => open_below(&folder, Path::new(part), flags)?,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                outcome => outcome?,
            };
        }
        Ok(folder)
    }

    fn check_write(&self, folder: BorrowedFd<'_>) -> Result<(), PathObstacle> {
        match &self.private {
            Some(private) if private.holds(folder)? => Err(PathObstacle::Unchangeable),
            Some(_) | None => Ok(()),
        }
    }

    fn private_refusal(&self, path: &str, why: &str) -> Failure {
        let place = self.private.as_ref().map(|private| private.path.display().to_string());
        let place = place.unwrap_or_default();
        failure(
            FailureCode::PathRefused,
            format!("`{path}` is in parlor's own state folder `{place}`, {why}"),
        )
    }

    fn refusal(&self, path: &str, wanted: &Path) -> Failure {
        let roots: Vec<String> = self.roots().map(|root| format!("`{}`", root.display())).collect();
        let folders = if roots.len() == 1 { "folder" } else { "folders" };
        let plain = wanted.components().all(|part| part != Component::ParentDir);
        let how = if plain && self.root_of(wanted).is_some() {
            "leads through a symbolic link to the outside"
        } else {
            "is outside"
        };
        failure(
            FailureCode::PathRefused,
            format!("`{path}` {how} of the allowed {folders} {}", roots.join(", ")),
        )
    }
}

/// Why an attempt to open something failed.
enum PathObstacle {
    System(Errno),
    /// It is in the state folder, and is to be read.
    Unreadable,
    /// It is in the state folder, and is to be changed.
    Unchangeable,
}

impl From<Errno> for PathObstacle {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl PrivateFolder {
    fn check_read(&self, folder: BorrowedFd<'_>, name: Option<&OsStr>) -> Result<(), PathObstacle> {
        if self.hides(folder, name)? { Err(PathObstacle::Unreadable) } else { Ok(()) }
    }
}

impl Root {
    fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        if !path.is_absolute() {
            return Err(invalid(format!("the allowed folder `{shown}` is not absolute")));
        }
        let path = follow(path).map_err(|_| {
            failure(FailureCode::ToolError, format!("`{shown}` has a loop of symbolic links"))
        })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, &path, flags, Mode::empty()).map_err(system("open", &shown))?;
        // Asked once here, so that a kernel without it is met with words and not with a riddle.
        open_below(&folder, Path::new("."), OFlags::PATH).map_err(|errno| cannot_open(&shown, errno))?;
        Ok(Self { path, folder })
    }
}

/// Why a root cannot be used. A kernel without `openat2` says so; a container may forbid it.
fn cannot_open(shown: &str, errno: Errno) -> Failure {
    if [Errno::NOSYS, Errno::PERM].contains(&errno) {
        let words = code::in_words(errno);
        let message = format!(
            "files cannot be opened safely here: openat2 (Linux 5.6) is missing or forbidden: {words}"
        );
        return failure(FailureCode::Unsupported, message);
    }
    system("open", shown)(errno)
}

/// Opens `path` below `folder`, or fails if anything on the way is a symbolic link.
pub fn open_below(folder: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(&folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// The folder itself, where a path has no parts.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_cannot_do_it_is_told_apart() {
        let failure = cannot_open("/x", Errno::NOSYS);
        assert_eq!(failure.code, FailureCode::Unsupported);
        assert!(failure.message.contains("openat2 (Linux 5.6) is missing"), "{}", failure.message);
        assert_eq!(cannot_open("/x", Errno::ACCESS).code, FailureCode::ToolError);
    }

    #[test]
    fn links_that_never_hold_still_are_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy::new([folder.path()]).unwrap();
        let tries = std::cell::Cell::new(0);
        let failure = policy
            .retry::<()>(folder.path(), "x", |_, _, _| {
                tries.set(tries.get() + 1);
                Err(Errno::LOOP.into())
            })
            .unwrap_err();
        assert_eq!(tries.get(), PATH_TRIES);
        assert_eq!((failure.code, failure.retryable), (FailureCode::PathChanged, true));
    }
}
