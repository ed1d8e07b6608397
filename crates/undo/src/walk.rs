//! Walks a working folder for a snapshot, and keeps the contents that are not kept yet.
//!
//! Folders are read level by level, so that a limit cuts off what is deepest. No symbolic link is followed.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use parlor_files::{Policy, open_below};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::content::{ContentId, Contents};
use crate::error::UndoError;
use crate::snapshot::{Entry, Snapshot};
use crate::state::{FileIdentity, FileState, KeptContent, NotKept};

/// The largest file whose content is kept: 4 MiB.
pub const KEPT_FILE_BYTES: u64 = 4 << 20;

/// The largest file whose content is kept when a file tool changes it: 16 MiB, what `edit_file` can edit.
pub const WRITTEN_FILE_BYTES: u64 = 16 << 20;

/// How many bytes of a working folder are kept for a run: 256 MiB.
pub const KEPT_RUN_BYTES: u64 = 256 << 20;

/// How many files and folders a snapshot has. Deeper folders are left out.
pub const SNAPSHOT_FILES: usize = 20_000;

/// The deepest folder that a snapshot looks into.
pub const SNAPSHOT_DEPTH: usize = 64;

/// How long a snapshot may take. Folders that it has not reached by then are left out.
pub const SNAPSHOT_TIME: Duration = Duration::from_secs(30);

/// Folders that a snapshot does not look into: those of version control, and those that programs fill and can fill again.
/// A folder with a file `CACHEDIR.TAG`, such as cargo's `target`, is one of the latter too.
pub const SKIPPED_FOLDERS: [&str; 8] =
    [".git", ".hg", ".jj", ".svn", ".venv", "__pycache__", "node_modules", "venv"];

/// Marks a folder that programs can fill again.
const CACHE_MARK: &[u8] = b"CACHEDIR.TAG";

/// A file that changed so shortly before a snapshot may have changed again without a new time: times of files advance in
/// steps of up to 10 milliseconds.
const RACY_NANOSECONDS: u64 = 20_000_000;

/// The limits of a walk; tests pass smaller ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkLimits {
    pub(crate) files: usize,
    pub(crate) file_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) time: Duration,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            files: SNAPSHOT_FILES,
            file_bytes: KEPT_FILE_BYTES,
            total_bytes: KEPT_RUN_BYTES,
            time: SNAPSHOT_TIME,
        }
    }
}

/// Where the snapshot comes from whose contents need not be read again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'a> {
    /// It lies beside the journal of the run, so no sweep removes its contents.
    Held(&'a Snapshot),
    /// It is of an earlier run: its contents may have been removed.
    Cached(&'a Snapshot),
}

/// Takes a snapshot of the policy's first folder. Contents of files that have not changed since `known` are not read again.
pub(crate) fn walk(
    policy: &Policy,
    known: Known<'_>,
    contents: &Contents,
    limits: WalkLimits,
) -> Result<Snapshot, UndoError> {
    let folder = policy.roots().next().ok_or_else(|| UndoError::Folder("there is none".to_owned()))?;
    let root = policy.open_folder(folder, ".")?;
    let (known, is_held) = match known {
        Known::Held(snapshot) => (snapshot, true),
        Known::Cached(snapshot) => (snapshot, false),
    };
    let mut walk = Walk {
        policy,
        known,
        is_held,
        contents,
        limits,
        ends_at: Instant::now() + limits.time,
        kept_bytes: 0,
        snapshot: Snapshot { taken_at: file_clock(), ..Snapshot::default() },
        waiting: VecDeque::from([(Vec::new(), 0)]),
    };
    while let Some((path, depth)) = walk.waiting.pop_front() {
        walk.visit(&root.fd, path, depth)?;
    }
    Ok(walk.snapshot)
}

/// The state of one file that is not part of a snapshot, with its identity, and keeps its content.
pub(crate) fn observe(
    folder: impl AsFd,
    name: &Path,
    contents: Option<&Contents>,
) -> Result<(FileState, Option<FileIdentity>), UndoError> {
    let stat = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok((FileState::Missing, None)),
        Err(errno) => return Err(UndoError::io("look at", name)(errno.into())),
    };
    let identity = FileIdentity::of(&stat);
    let state = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let content = read_content(&folder, name, &stat, WRITTEN_FILE_BYTES, contents)?;
            FileState::File { content, size: identity.size, mode: Some(permissions(&stat)) }
        }
        FileType::Directory => FileState::Folder { mode: permissions(&stat), skipped: None },
        FileType::Symlink => link_state(&folder, name)?,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => FileState::Special,
    };
    Ok((state, Some(identity)))
}

/// The time by the clock from which files get their times.
pub(crate) fn file_clock() -> (i64, u64) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0))
}

struct Walk<'a> {
    policy: &'a Policy,
    known: &'a Snapshot,
    is_held: bool,
    contents: &'a Contents,
    limits: WalkLimits,
    ends_at: Instant,
    kept_bytes: u64,
    snapshot: Snapshot,
    /// Folders to look into, with their depths.
    waiting: VecDeque<(Vec<u8>, usize)>,
}

impl Walk<'_> {
    /// Reads one folder. A folder that cannot be read is noted in the entry that its parent made of it.
    fn visit(&mut self, root: &OwnedFd, path: Vec<u8>, depth: usize) -> Result<(), UndoError> {
        let below = if path.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&path)) };
        let names = open_below(root, below, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|folder| Ok((list_names(&folder)?, folder)));
        let (names, folder) = match names {
            Ok(found) => found,
            // Removed or replaced meanwhile: the next snapshot shows it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !path.is_empty() => {
                self.snapshot.entries.remove(&path);
                return Ok(());
            }
            Err(_) if !path.is_empty() => return self.skip(&path, NotKept::Unreadable),
            Err(errno) => return Err(UndoError::io("read", below)(errno.into())),
        };
        if !path.is_empty() && names.iter().any(|name| name == CACHE_MARK) {
            return self.skip(&path, NotKept::Generated);
        }
        let is_full = self.snapshot.entries.len() + names.len() > self.limits.files;
        if is_full || depth > SNAPSHOT_DEPTH || Instant::now() > self.ends_at {
            self.snapshot.is_partial = true;
            return self.skip(&path, NotKept::LimitReached);
        }
        for name in names {
            let mut full = path.clone();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&name);
            self.add(&folder, Path::new(OsStr::from_bytes(&name)), full, depth)?;
        }
        Ok(())
    }

    fn skip(&mut self, path: &[u8], why: NotKept) -> Result<(), UndoError> {
        if let Some(entry) = self.snapshot.entries.get_mut(path)
            && let FileState::Folder { skipped, .. } = &mut entry.state
        {
            *skipped = Some(why);
        }
        Ok(())
    }

    fn add(&mut self, folder: &OwnedFd, name: &Path, path: Vec<u8>, depth: usize) -> Result<(), UndoError> {
        let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        if self.policy.is_private(&stat) {
            return Ok(());
        }
        let identity = FileIdentity::of(&stat);
        let state = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let content = self.content(folder, name, &path, &stat)?;
                if matches!(content, KeptContent::Kept(_)) {
                    self.kept_bytes += identity.size;
                }
                FileState::File { content, size: identity.size, mode: Some(permissions(&stat)) }
            }
            FileType::Directory => {
                let is_skipped = SKIPPED_FOLDERS.iter().any(|skipped| name.as_os_str() == *skipped);
                let skipped = is_skipped.then_some(NotKept::Generated);
                if !is_skipped {
                    self.waiting.push_back((path.clone(), depth + 1));
                }
                FileState::Folder { mode: permissions(&stat), skipped }
            }
            FileType::Symlink => match link_state(folder, name) {
                Ok(link) => link,
                Err(_) => return Ok(()),
            },
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => FileState::Special,
        };
        // A file `.git` leads to a repository elsewhere; parlor leaves it alone like the folder.
        if !(name == Path::new(".git") && matches!(state, FileState::File { .. })) {
            self.snapshot.entries.insert(path, Entry { state, identity });
        }
        Ok(())
    }

    fn content(
        &self,
        folder: &OwnedFd,
        name: &Path,
        path: &[u8],
        stat: &Stat,
    ) -> Result<KeptContent, UndoError> {
        let identity = FileIdentity::of(stat);
        if self.kept_bytes.saturating_add(identity.size) > self.limits.total_bytes {
            return Ok(KeptContent::NotKept { identity, why: NotKept::LimitReached });
        }
        if let Some(known) = self.known.content_of(path, &identity, RACY_NANOSECONDS)
            && (self.is_held || self.contents.has(known))
        {
            return Ok(KeptContent::Kept(known.clone()));
        }
        read_content(folder, name, stat, self.limits.file_bytes, Some(self.contents))
    }
}

/// Reads a file, and keeps its content if `contents` is given.
fn read_content(
    folder: impl AsFd,
    name: &Path,
    stat: &Stat,
    limit: u64,
    contents: Option<&Contents>,
) -> Result<KeptContent, UndoError> {
    let not_kept = |why| KeptContent::NotKept { identity: FileIdentity::of(stat), why };
    if FileIdentity::of(stat).size > limit {
        return Ok(not_kept(NotKept::TooLarge));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(fd) = openat(folder, name, flags, Mode::empty()) else { return Ok(not_kept(NotKept::Unreadable)) };
    // Another file may have taken the name since.
    if !fstat(&fd).is_ok_and(|now| (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino)) {
        return Ok(not_kept(NotKept::Unreadable));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(FileIdentity::of(stat).size).unwrap_or(0) + 1);
    if File::from(fd).take(limit + 1).read_to_end(&mut bytes).is_err() {
        return Ok(not_kept(NotKept::Unreadable));
    }
    if bytes.len() as u64 > limit {
        return Ok(not_kept(NotKept::TooLarge));
    }
    let id = ContentId::of(&bytes);
    if let Some(contents) = contents {
        contents.put(&id, &bytes)?;
    }
    Ok(KeptContent::Kept(id))
}

fn link_state(folder: impl AsFd, name: &Path) -> Result<FileState, UndoError> {
    let target = readlinkat(folder, name, Vec::new());
    let target = target.map_err(|errno| UndoError::io("read", name)(errno.into()))?;
    Ok(FileState::Link { target: target.into_bytes() })
}

fn permissions(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

fn list_names(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
        // Enough to be over the limit: the folder is left out then.
        if names.len() > SNAPSHOT_FILES {
            break;
        }
    }
    names.sort_unstable();
    Ok(names)
}
