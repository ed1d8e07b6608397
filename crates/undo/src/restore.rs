//! Puts files back. Each file is replaced by a rename, so that a reader sees the old content or the new one.
//!
//! Nothing is followed: the policy opens the folder of each file below the working folder without symbolic links, and not in
//! parlor's state folder. A file that is not as the run left it stays, unless the undo is forced. Nothing is synced to disk: a
//! thousand files would take a minute on a busy disk, and after a loss of power the undo can be repeated.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_files::{FileLocation, Policy, open_below};
use parlor_vocab::FailureCode;
use rustix::fs::{
    AtFlags, Mode, OFlags, chmod, fchmod, linkat, mkdirat, openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::changes::{Doubt, FileChange, RunChanges};
use crate::content::Contents;
use crate::journal::RunRecord;
use crate::state::{FileIdentity, FileState};
use crate::walk::observe;

/// The permissions without which an owner cannot change what is in a folder.
const OWNER_WRITES: u32 = 0o300;

/// What an undo does with files that are not as the run left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoMode {
    /// Changes nothing, and reports what [`Careful`](Self::Careful) would do.
    DryRun,
    /// Keeps them.
    Careful,
    /// Puts them back too.
    Force,
}

/// What an undo did.
#[derive(Clone, Debug, PartialEq)]
pub struct UndoReport {
    /// Which run was undone.
    pub record: RunRecord,
    /// The files that the run changed, by their paths.
    pub files: Vec<UndoneFile>,
    /// What the record of the run does not have.
    pub notes: Vec<String>,
}

/// What an undo did with one file.
#[derive(Clone, Debug, PartialEq)]
pub struct UndoneFile {
    /// The path below the working folder.
    pub path: PathBuf,
    /// What the run had done to it: see [`FileChange::kind`].
    pub change: &'static str,
    /// What the undo did.
    pub outcome: UndoOutcome,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// It is as it was before the run; in a dry run, it would be.
    Restored,
    /// It was as before the run already.
    AlreadyDone,
    /// It stays as it is, for this reason: a sentence without its subject, the file.
    Kept(String),
}

impl UndoReport {
    /// How many files were put back.
    pub fn restored(&self) -> usize {
        self.count(|outcome| *outcome == UndoOutcome::Restored)
    }

    /// How many files stay although the run changed them.
    pub fn kept(&self) -> usize {
        self.count(|outcome| matches!(outcome, UndoOutcome::Kept(_)))
    }

    fn count(&self, is_counted: impl Fn(&UndoOutcome) -> bool) -> usize {
        self.files.iter().filter(|file| is_counted(&file.outcome)).count()
    }
}

/// Puts back what `changes` has, below the first folder of `policy`.
pub(crate) fn restore(
    changes: &RunChanges,
    policy: &Policy,
    contents: &Contents,
    mode: UndoMode,
) -> UndoReport {
    let mut plan: Vec<Planned<'_>> =
        changes.files.iter().map(|change| Planned::new(change, policy, mode)).collect();
    if mode != UndoMode::DryRun {
        let restorer = Restorer { policy, contents };
        plan.iter_mut().for_each(|file| file.attempt(|file| restorer.make_writable(file)));
        // What is in a folder comes after the folder, so it is removed first.
        plan.iter_mut().rev().for_each(|file| file.attempt(|file| restorer.clear(file)));
        plan.iter_mut().for_each(|file| file.attempt(|file| restorer.put_back(file)));
        plan.iter_mut().rev().for_each(|file| file.attempt(|file| restorer.restrict(file)));
    }
    let files = plan.into_iter().map(|file| UndoneFile {
        path: file.change.path.clone(),
        change: file.change.kind(),
        outcome: file.outcome,
    });
    UndoReport { record: changes.record.clone(), files: files.collect(), notes: changes.notes.clone() }
}

/// A file and what is to become of it.
struct Planned<'a> {
    change: &'a FileChange,
    outcome: UndoOutcome,
    now: FileState,
    identity: Option<FileIdentity>,
}

impl<'a> Planned<'a> {
    fn new(change: &'a FileChange, policy: &Policy, mode: UndoMode) -> Self {
        let found = match policy.locate_exactly(&change.path) {
            Ok(spot) => observe(&spot.folder, Path::new(&spot.name), None).map_err(|error| error.to_string()),
            // The folder of the file is missing, so the file is.
            Err(failure) if failure.code == FailureCode::NotFound => Ok((FileState::Missing, None)),
            Err(failure) => Err(failure.message),
        };
        match found {
            Ok((now, identity)) => {
                let outcome = outcome(change, &now, identity, mode);
                Self { change, outcome, now, identity }
            }
            Err(reason) => {
                Self { change, outcome: UndoOutcome::Kept(reason), now: FileState::Missing, identity: None }
            }
        }
    }

    /// Takes a step for a file that is to be put back. An error keeps the file.
    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> Result<(), String>) {
        if self.outcome == UndoOutcome::Restored
            && let Err(reason) = step(self)
        {
            self.outcome = UndoOutcome::Kept(reason);
        }
    }
}

fn outcome(
    change: &FileChange,
    now: &FileState,
    identity: Option<FileIdentity>,
    mode: UndoMode,
) -> UndoOutcome {
    let kept = |reason: &str| UndoOutcome::Kept(reason.to_owned());
    if change.before.is_found(now, identity) {
        return UndoOutcome::AlreadyDone;
    }
    if let Some(obstacle) = change.obstacle() {
        return UndoOutcome::Kept(obstacle.reason());
    }
    if mode != UndoMode::Force {
        if !change.after.is_found(now, identity) {
            return kept("it was changed after the run");
        }
        match change.doubt {
            Some(Doubt::ChangedMeanwhile) => return kept("somebody else changed it during the run"),
            Some(Doubt::Late) => return kept("it was changed after the process of the run was killed"),
            None => {}
        }
    }
    UndoOutcome::Restored
}

struct Restorer<'a> {
    policy: &'a Policy,
    contents: &'a Contents,
}

impl Restorer<'_> {
    fn locate(&self, path: &Path) -> Result<FileLocation, String> {
        self.policy.locate_exactly(path).map_err(|failure| failure.message)
    }

    /// Lets the owner change what is in a folder that the run made read-only.
    fn make_writable(&self, file: &Planned<'_>) -> Result<(), String> {
        let wanted = match (&file.now, &file.change.before) {
            (FileState::Folder { mode: now, .. }, FileState::Folder { mode, .. }) if now != mode => {
                mode | OWNER_WRITES
            }
            (FileState::Folder { mode, .. }, _) if mode & OWNER_WRITES != OWNER_WRITES => 0o700,
            _ => return Ok(()),
        };
        set_mode(&self.locate(&file.change.path)?, wanted).map_err(cannot("change the permissions"))
    }

    /// Removes what is in the place of the file, unless a rename replaces it.
    fn clear(&self, file: &mut Planned<'_>) -> Result<(), String> {
        let is_folder = |state: &FileState| matches!(state, FileState::Folder { .. });
        let is_replaced = matches!(file.change.before, FileState::File { .. } | FileState::Link { .. });
        let (now, before) = (is_folder(&file.now), is_folder(&file.change.before));
        if file.now == FileState::Missing || now && before || !now && is_replaced {
            return Ok(());
        }
        let spot = self.locate(&file.change.path)?;
        if !now {
            check_unchanged(&spot, file.identity)?;
        }
        let flags = if now { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(&spot.folder, Path::new(&spot.name), flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                return Err("it has files that are not put back, or that the run did not create".to_owned());
            }
            Err(errno) => return Err(cannot("remove it")(errno)),
        }
        (file.now, file.identity) = (FileState::Missing, None);
        Ok(())
    }

    fn put_back(&self, file: &Planned<'_>) -> Result<(), String> {
        let FileChange { path, before, linked, .. } = file.change;
        match before {
            FileState::Missing | FileState::Special => Ok(()),
            FileState::Folder { .. } if file.now != FileState::Missing => Ok(()),
            FileState::Folder { mode, .. } => {
                let spot = self.locate(path)?;
                match mkdirat(&spot.folder, Path::new(&spot.name), Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(cannot("create the folder")(errno)),
                }
                set_mode(&spot, mode | OWNER_WRITES).map_err(cannot("change the permissions"))
            }
            FileState::Link { target } => {
                let spot = self.locate(path)?;
                let name = temporary_name();
                symlinkat(OsStr::from_bytes(target), &spot.folder, &name)
                    .map_err(cannot("create the link"))?;
                self.rename(&spot, &name, file.identity)
            }
            FileState::File { mode, .. } => {
                let spot = self.locate(path)?;
                if self.link(&spot, linked.as_deref(), before, file.identity) {
                    return Ok(());
                }
                if same_content(&file.now, before)
                    && let Some(mode) = mode
                {
                    return set_mode(&spot, *mode).map_err(cannot("change the permissions"));
                }
                let id = before.content().ok_or("its content was not kept")?;
                let bytes = self.contents.read(id).map_err(|error| error.to_string())?;
                let name = temporary_name();
                let written = write_new(&spot.folder, &name, &bytes, mode.unwrap_or(0o644));
                if written.is_err() {
                    let _ = unlinkat(&spot.folder, &name, AtFlags::empty());
                }
                written.map_err(|error| format!("parlor cannot write it: {error}"))?;
                self.rename(&spot, &name, file.identity)
            }
        }
    }

    /// Gives a folder its permissions when nothing in it is to be changed any more.
    fn restrict(&self, file: &Planned<'_>) -> Result<(), String> {
        let FileState::Folder { mode, .. } = &file.change.before else { return Ok(()) };
        if mode & OWNER_WRITES == OWNER_WRITES {
            return Ok(());
        }
        set_mode(&self.locate(&file.change.path)?, *mode).map_err(cannot("change the permissions"))
    }

    /// Makes the file a hard link again, if its other name still has, or has again, the same content and permissions.
    fn link(
        &self,
        spot: &FileLocation,
        other: Option<&Path>,
        wanted: &FileState,
        seen: Option<FileIdentity>,
    ) -> bool {
        let Some(other) = other.and_then(|other| self.policy.locate_exactly(other).ok()) else {
            return false;
        };
        let name = temporary_name();
        observe(&other.folder, Path::new(&other.name), None).is_ok_and(|(state, _)| wanted.is_same(&state))
            && statat(&other.folder, Path::new(&other.name), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| seen.is_none_or(|seen| FileIdentity::of(&stat).ino != seen.ino))
            && linkat(&other.folder, Path::new(&other.name), &spot.folder, &name, AtFlags::empty()).is_ok()
            && self.rename(spot, &name, seen).is_ok()
    }

    fn rename(&self, spot: &FileLocation, temporary: &str, seen: Option<FileIdentity>) -> Result<(), String> {
        let renamed = check_unchanged(spot, seen).and_then(|()| {
            renameat(&spot.folder, temporary, &spot.folder, Path::new(&spot.name))
                .map_err(cannot("replace it"))
        });
        if renamed.is_err() {
            // If this fails too, a file named .parlor-undo-….tmp stays. The first failure is the one to report.
            let _ = unlinkat(&spot.folder, temporary, AtFlags::empty());
        }
        renamed
    }
}

fn same_content(now: &FileState, before: &FileState) -> bool {
    now.content().is_some() && now.content() == before.content()
}

/// Fails if the file is not the one that was looked at before.
fn check_unchanged(spot: &FileLocation, seen: Option<FileIdentity>) -> Result<(), String> {
    let now = statat(&spot.folder, Path::new(&spot.name), AtFlags::SYMLINK_NOFOLLOW).ok();
    let content = |identity: FileIdentity| (identity.dev, identity.ino, identity.size, identity.modified);
    match now.map(|stat| content(FileIdentity::of(&stat))) == seen.map(content) {
        true => Ok(()),
        false => Err("it is being changed at this moment".to_owned()),
    }
}

fn write_new(folder: &OwnedFd, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, name, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(bytes)?;
    Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
}

/// Sets the permissions of a file or folder that may not be readable.
fn set_mode(spot: &FileLocation, mode: u32) -> Result<(), Errno> {
    let file = open_below(&spot.folder, Path::new(&spot.name), OFlags::PATH | OFlags::NOFOLLOW)?;
    // The kernel changes permissions through a descriptor that only names a file by this path alone.
    chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode))
}

fn temporary_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!(".parlor-undo-{}-{}.tmp", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn cannot(action: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("parlor cannot {action}: {}", io::Error::from(errno))
}
