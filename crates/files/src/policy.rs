//! Restricts file tools to the files below the allowed folders.
//!
//! A path is first resolved as text ([`crate::follow`]): `~`, `..` and symbolic links are replaced, which gives a guess
//! without links. The guess selects a root. Then the kernel decides: `openat2` opens the file from the descriptor of the
//! root and allows no symbolic link and no `..` on the way. If somebody changes a link in between, the guess is wrong and
//! the kernel refuses it, so there is no race between check and use. Absolute links, and links from one root into another,
//! work because they are resolved as text.
//!
//! This protects against mistakes of file tools. It is not a sandbox: a command of the `shell` tool can open any file that
//! the server's user can. It needs `openat2` (Linux 5.6); without it [`Policy::new`] fails and there are no file tools.
//!
//! All functions block: call them on a blocking thread.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{Failure, FailureCode};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;

use crate::failure::{errno_text, failure, invalid, system};
use crate::follow::{follow, follow_links};
use crate::obeyed::is_obeyed;
use crate::private::PrivateFolder;
use crate::secrets::Secrets;

/// The longest path in bytes: the kernel's limit.
pub const PATH_BYTES: usize = 4095;

/// How often to resolve a path again when its links change meanwhile.
pub const PATH_TRIES: usize = 32;

/// How many new folders above a file are created. Each costs checks of all folders above it.
pub const NEW_FOLDERS: usize = 64;

/// The end of the message when a tool wants to read a file in the state folder.
const UNREADABLE: &str = "of which only AGENTS.md, media and skills can be read";
/// The end of the message when a tool wants to change a file in the state folder.
const UNCHANGEABLE: &str = "which file tools cannot change; ask the person to do it";

/// The allowed folders, each with an open descriptor. Make a policy when a run starts, so that idle sessions hold no
/// descriptors.
#[derive(Debug)]
pub struct Policy {
    roots: Vec<Root>,
    /// Single files outside of the roots that may be read and not changed. A call works on a copy of the `Arc`, so
    /// that a file system that hangs does not block other calls.
    readable_files: Mutex<Arc<Vec<ReadableFiles>>>,
    home: Option<PathBuf>,
    private: Vec<PrivateFolder>,
    /// Whether tools may not change what other programs obey.
    keeps_obeyed: bool,
    secrets: Secrets,
}

#[derive(Debug)]
struct Root {
    /// Without symbolic links.
    path: PathBuf,
    folder: OwnedFd,
}

/// Files of one folder.
#[derive(Clone, Debug)]
struct ReadableFiles {
    folder: Arc<Root>,
    names: BTreeSet<OsString>,
}

/// An opened file or folder below a root.
#[derive(Debug)]
pub struct OpenedFile {
    /// The open descriptor.
    pub fd: OwnedFd,
    /// The path without symbolic links.
    pub path: PathBuf,
    /// The allowed folder that contains it.
    pub root: PathBuf,
}

/// The location of a file that exists or will be created: an open folder and a name in it.
#[derive(Debug)]
pub struct FileLocation {
    /// The folder, opened with `O_PATH`: usable for `*at` calls, not for listing.
    pub folder: OwnedFd,
    /// The last part of the path. Do not follow it if it is a symbolic link by now.
    pub name: OsString,
    /// The path without symbolic links.
    pub path: PathBuf,
    /// How many folders right above the file were created for it.
    pub new_folders: usize,
}

/// What to do with missing folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentFolders {
    /// Fail if a folder is missing.
    MustExist,
    /// Create missing folders.
    Create,
}

impl Policy {
    /// Allows all files below `roots`. A root may be a symbolic link; `/` allows everything.
    pub fn new<P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> Result<Self, Failure> {
        let roots: Vec<Root> =
            roots.into_iter().map(|root| Root::open(root.as_ref())).collect::<Result<_, _>>()?;
        if roots.is_empty() {
            return Err(invalid("no folder is allowed; name at least one"));
        }
        Ok(Self {
            roots,
            readable_files: Mutex::default(),
            home: None,
            private: Vec::new(),
            keeps_obeyed: false,
            secrets: Secrets::default(),
        })
    }

    /// Sets the folder that `~` at the start of a path stands for.
    #[must_use]
    pub fn with_home(self, home: impl Into<PathBuf>) -> Self {
        Self { home: Some(home.into()), ..self }
    }

    /// Sets `~` to the variable `HOME` of `env`, if that is an absolute path.
    #[must_use]
    pub fn with_home_of(self, env: &[(String, String)]) -> Self {
        match env.iter().find(|(name, value)| name == "HOME" && Path::new(value).is_absolute()) {
            Some((_, home)) => self.with_home(home),
            None => self,
        }
    }

    /// Protects a folder with parlor's state, by whatever path a tool reaches it: tools can change nothing in it, and can
    /// read only [`READABLE_STATE`](crate::READABLE_STATE). Has no effect if the folder does not exist. Call it once for
    /// each such folder.
    #[must_use]
    pub fn without_state(mut self, folder: &Path) -> Self {
        self.private.extend(PrivateFolder::open(folder));
        self
    }

    /// Protects files that other programs obey: settings and hooks of git repositories anywhere below the roots, and the
    /// folders `.agents`, `.codex` and `.parlor`. Tools can read and not change them.
    #[must_use]
    pub fn without_obeyed_changes(self) -> Self {
        Self { keeps_obeyed: true, ..self }
    }

    /// Protects the absolute `paths` of files and folders with secrets: tools can neither read nor change them, except for
    /// single files that [`allow_reading`](Self::allow_reading) allows. Replaces those of an earlier call.
    #[must_use]
    pub fn without_secrets(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let is_state = |path: &PathBuf| {
            // It has rules of its own.
            self.private.iter().any(|state| path.starts_with(&state.path) || state.path.starts_with(path))
        };
        let paths = paths.into_iter().filter(|path| !is_state(path)).collect::<Vec<_>>();
        self.secrets = Secrets::new(paths, self.roots());
        self
    }

    /// Allows to read the file `path`, which is absolute, outside of the roots too. Nothing else in its folder can be
    /// read, and the file cannot be changed.
    pub fn allow_reading(&self, path: &Path) -> Result<(), Failure> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(invalid(format!("`{}` is not the path of a file", path.display())));
        };
        let folder = Arc::new(Root::open(folder)?);
        let mut all = self.readable_files.lock().unwrap_or_else(PoisonError::into_inner);
        let all = Arc::make_mut(&mut all);
        match all.iter_mut().find(|files| files.folder.path == folder.path) {
            Some(files) => {
                files.names.insert(name.to_owned());
            }
            None => all.push(ReadableFiles { folder, names: BTreeSet::from([name.to_owned()]) }),
        }
        Ok(())
    }

    /// Whether a file that was found while walking an allowed folder has secrets of the user.
    pub fn is_secret(&self, found: &Stat) -> bool {
        self.secrets.has(found)
    }

    /// Whether a file that was found while walking an allowed folder may not be read: it belongs to the state folder, or has
    /// secrets of the user.
    pub fn is_private(&self, found: &Stat) -> bool {
        self.is_secret(found) || self.private.iter().any(|private| private.is_unreadable(found))
    }

    /// The allowed folders, without symbolic links.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// Opens `path`, relative to `folder`, for reading. Never creates anything.
    pub fn open(&self, folder: &Path, path: &str, flags: OFlags) -> Result<OpenedFile, Failure> {
        let readable_files = Arc::clone(&self.readable_files.lock().unwrap_or_else(PoisonError::into_inner));
        self.retry(folder, path, &readable_files, |root, real, below_root| {
            if self.secrets.has_path(real) && folder_of(&readable_files, real).is_none() {
                return Err(OpenError::Secret);
            }
            let fd = match below_root.file_name() {
                _ if self.private.is_empty() => open_below(&root.folder, or_dot(below_root), flags)?,
                None => {
                    self.check_read(root.folder.as_fd(), None)?;
                    open_below(&root.folder, Path::new("."), flags)?
                }
                // Open the file from the checked folder, so that nobody can replace the folder in between.
                Some(name) => {
                    let parent = below_root.parent().unwrap_or(Path::new(""));
                    let parent = open_below(&root.folder, or_dot(parent), OFlags::PATH | OFlags::DIRECTORY)?;
                    self.check_read(parent.as_fd(), Some(name))?;
                    let fd = open_below(&parent, Path::new(name), flags)?;
                    let stat = fstat(&fd)?;
                    match self.private.iter().find(|private| private.is_unreadable(&stat)) {
                        Some(private) => return Err(OpenError::Unreadable(private.path.clone())),
                        None => fd,
                    }
                }
            };
            Ok(OpenedFile { fd, path: real.to_owned(), root: root.path.clone() })
        })
    }

    /// Opens the folder `path`, relative to `folder`, as the working folder of a command. Allows the state folder, since a
    /// command can enter it anyway.
    pub fn open_folder(&self, folder: &Path, path: &str) -> Result<OpenedFile, Failure> {
        self.retry(folder, path, &[], |root, real, below_root| {
            let fd = open_below(&root.folder, or_dot(below_root), OFlags::PATH | OFlags::DIRECTORY)?;
            Ok(OpenedFile { fd, path: real.to_owned(), root: root.path.clone() })
        })
    }

    /// Locates `path`, relative to `folder`, for a change. The file need not exist.
    pub fn locate(&self, folder: &Path, path: &str, parents: ParentFolders) -> Result<FileLocation, Failure> {
        self.retry(folder, path, &[], |root, real, below_root| {
            let name = below_root.file_name().ok_or(Errno::ISDIR)?.to_owned();
            if self.secrets.has_path(real) {
                return Err(OpenError::Secret);
            }
            if self.keeps_obeyed && is_obeyed(real, below_root) {
                return Err(OpenError::Obeyed);
            }
            let parent = below_root.parent().unwrap_or(Path::new(""));
            let (folder, new_folders) = self.open_parents(&root.folder, parent, parents)?;
            self.check_write(folder.as_fd())?;
            Ok(FileLocation { folder, name, path: real.to_owned(), new_folders })
        })
    }

    /// Locates `path` below the first root for a change, without following any symbolic link. The file need not exist, but
    /// its folder must.
    pub fn locate_exactly(&self, path: &Path) -> Result<FileLocation, Failure> {
        let shown = path.display().to_string();
        let root = self.roots.first().ok_or_else(|| invalid("no folder is allowed"))?;
        let name = path.file_name().ok_or_else(|| invalid(format!("`{shown}` names no file")))?.to_owned();
        let parent = or_dot(path.parent().unwrap_or(Path::new("")));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let folder = open_below(&root.folder, parent, flags).map_err(system("open", &shown))?;
        match self.check_write(folder.as_fd()) {
            Ok(()) => Ok(FileLocation { folder, name, path: root.path.join(path), new_folders: 0 }),
            Err(OpenError::System(errno)) => Err(system("open", &shown)(errno)),
            Err(OpenError::Unchangeable(state) | OpenError::Unreadable(state)) => {
                Err(private_refusal(&shown, &state, UNCHANGEABLE))
            }
            Err(OpenError::NewFolders(_)) => Err(invalid(format!("`{shown}` needs new folders"))),
            Err(OpenError::Obeyed) => Err(obeyed_refusal(&shown)),
            Err(OpenError::Secret) => Err(secret_refusal(&shown)),
        }
    }

    /// Resolves `path`, which must be below a root or one of `files`, and calls `attempt`; repeats both if links changed
    /// in between.
    fn retry<T>(
        &self,
        folder: &Path,
        path: &str,
        files: &[ReadableFiles],
        attempt: impl Fn(&Root, &Path, &Path) -> Result<T, OpenError>,
    ) -> Result<T, Failure> {
        let wanted = self.expand(folder, path)?;
        for _ in 0..PATH_TRIES {
            let real = follow(&wanted).map_err(|_| {
                failure(FailureCode::ToolError, format!("`{path}` has a loop of symbolic links"))
            })?;
            let (root, below_root) = self
                .root_of(&real)
                .or_else(|| folder_of(files, &real))
                .ok_or_else(|| self.refusal(path, &wanted))?;
            match attempt(root, &real, below_root) {
                // The kernel met a link that the guess does not have: somebody changed it in between. Try again.
                Err(OpenError::System(Errno::LOOP | Errno::XDEV | Errno::AGAIN)) => {}
                Err(OpenError::System(errno)) => return Err(system("open", path)(errno)),
                Err(OpenError::Unreadable(state)) => return Err(private_refusal(path, &state, UNREADABLE)),
                Err(OpenError::Unchangeable(state)) => {
                    return Err(private_refusal(path, &state, UNCHANGEABLE));
                }
                Err(OpenError::Obeyed) => return Err(obeyed_refusal(path)),
                Err(OpenError::Secret) => return Err(secret_refusal(path)),
                Err(OpenError::NewFolders(missing)) => {
                    return Err(invalid(format!(
                        "`{path}` needs {missing} new folders, more than the limit of {NEW_FOLDERS}; use a shorter path"
                    )));
                }
                Ok(done) => return Ok(done),
            }
        }
        Err(failure(FailureCode::PathChanged, format!("`{path}` keeps changing while it is looked at")))
    }

    /// The absolute path of `path`, relative to `folder`, as written and with all links resolved. The second is a guess,
    /// because links may change at any time.
    pub fn resolve(&self, folder: &Path, path: &str) -> Result<(PathBuf, PathBuf), Failure> {
        let written = self.expand(folder, path)?;
        let resolved = follow_links(&written);
        Ok((written, resolved))
    }

    /// Makes the path absolute and replaces `~`. Keeps `..`, which means the parent of a link's target, as it does for
    /// other programs.
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

    /// The first root that contains `real`, and the path below it.
    fn root_of<'a>(&self, real: &'a Path) -> Option<(&Root, &'a Path)> {
        self.roots.iter().find_map(|root| Some((root, real.strip_prefix(&root.path).ok()?)))
    }

    /// Opens the folder `path` below `root`; creates missing folders if `parents` says so. Also returns how many it
    /// created.
    fn open_parents(
        &self,
        root: &OwnedFd,
        path: &Path,
        parents: ParentFolders,
    ) -> Result<(OwnedFd, usize), OpenError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match open_below(root, or_dot(path), flags) {
            Err(Errno::NOENT) if parents == ParentFolders::Create => {}
            result => return Ok((result?, 0)),
        }
        let mut created = 0;
        let mut folder = open_below(root, Path::new("."), flags)?;
        let mut parts = path.iter();
        while let Some(part) = parts.next() {
            folder = match open_below(&folder, Path::new(part), flags) {
                Err(Errno::NOENT) => {
                    let missing = parts.clone().count() + 1;
                    if missing > NEW_FOLDERS {
                        return Err(OpenError::NewFolders(missing));
                    }
                    self.check_write(folder.as_fd())?;
                    match mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) => {
                            created += 1;
                            open_below(&folder, Path::new(part), flags)?
                        }
                        Err(Errno::EXIST) => open_below(&folder, Path::new(part), flags)?,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                result => result?,
            };
        }
        Ok((folder, created))
    }

    fn check_read(&self, folder: BorrowedFd<'_>, name: Option<&OsStr>) -> Result<(), OpenError> {
        for private in &self.private {
            if private.hides(folder, name)? {
                return Err(OpenError::Unreadable(private.path.clone()));
            }
        }
        Ok(())
    }

    fn check_write(&self, folder: BorrowedFd<'_>) -> Result<(), OpenError> {
        for private in &self.private {
            if private.contains(folder)? {
                return Err(OpenError::Unchangeable(private.path.clone()));
            }
        }
        Ok(())
    }

    fn refusal(&self, path: &str, wanted: &Path) -> Failure {
        let roots: Vec<String> = self.roots().map(|root| format!("`{}`", root.display())).collect();
        let folders = if roots.len() == 1 { "folder" } else { "folders" };
        let has_no_parent_part = wanted.components().all(|part| part != Component::ParentDir);
        let how = if has_no_parent_part && self.root_of(wanted).is_some() {
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

/// The folder of `real` and its name, if it is one of `files`.
fn folder_of<'f, 'r>(all: &'f [ReadableFiles], real: &'r Path) -> Option<(&'f Root, &'r Path)> {
    let (folder, name) = (real.parent()?, real.file_name()?);
    let files = all.iter().find(|files| files.folder.path == folder && files.names.contains(name))?;
    Some((&files.folder, Path::new(name)))
}

/// Why an attempt to open a file failed.
enum OpenError {
    System(Errno),
    /// So many folders above the file are missing, more than [`NEW_FOLDERS`].
    NewFolders(usize),
    /// The file is in this state folder and may not be read.
    Unreadable(PathBuf),
    /// The file is in this state folder and may not be changed.
    Unchangeable(PathBuf),
    /// Other programs obey the file, and it may not be changed.
    Obeyed,
    /// The file is, or belongs to, a secret of the user.
    Secret,
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

fn private_refusal(path: &str, state_folder: &Path, why: &str) -> Failure {
    let state_folder = state_folder.display();
    failure(
        FailureCode::PathRefused,
        format!("`{path}` is in parlor's own state folder `{state_folder}`, {why}"),
    )
}

fn obeyed_refusal(path: &str) -> Failure {
    failure(
        FailureCode::PathRefused,
        format!(
            "`{path}` belongs to the settings or hooks of a git repository, or to .agents, .codex or .parlor, which file \
             tools cannot change under the policy; ask the person to do it"
        ),
    )
}

fn secret_refusal(path: &str) -> Failure {
    failure(
        FailureCode::PathRefused,
        format!(
            "`{path}` is among the files in which programs keep keys, logins and histories, which file tools can neither \
             read nor change under the policy; ask the person to do it"
        ),
    )
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
        // Try `openat2` once here, so that a kernel without it gives a clear error.
        open_below(&folder, Path::new("."), OFlags::PATH).map_err(|errno| cannot_open(&shown, errno))?;
        Ok(Self { path, folder })
    }
}

/// Why a root cannot be used. The kernel may lack `openat2`, or a container may forbid it.
fn cannot_open(shown: &str, errno: Errno) -> Failure {
    if [Errno::NOSYS, Errno::PERM].contains(&errno) {
        let reason = errno_text(errno);
        let message = format!(
            "files cannot be opened safely here: openat2 (Linux 5.6) is missing or forbidden: {reason}"
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
            result => return result,
        }
    }
}

/// `.` if the path is empty.
fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_openat2_is_reported() {
        let failure = cannot_open("/x", Errno::NOSYS);
        assert_eq!(failure.code, FailureCode::Unsupported);
        assert!(failure.message.contains("openat2 (Linux 5.6) is missing"), "{}", failure.message);
        assert_eq!(cannot_open("/x", Errno::ACCESS).code, FailureCode::ToolError);
    }

    #[test]
    fn a_path_that_keeps_changing_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy::new([folder.path()]).unwrap();
        let tries = std::cell::Cell::new(0);
        let failure = policy
            .retry::<()>(folder.path(), "x", &[], |_, _, _| {
                tries.set(tries.get() + 1);
                Err(Errno::LOOP.into())
            })
            .unwrap_err();
        assert_eq!(tries.get(), PATH_TRIES);
        assert_eq!((failure.code, failure.retryable), (FailureCode::PathChanged, true));
    }
}
