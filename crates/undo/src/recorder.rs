//! Records what one run changes.
//!
//! While a run may change files, a snapshot of its working folder lies beside its journal, and the session's records are
//! locked. If the process is killed, the lock is free and the snapshot still there: whoever needs the record next compares
//! the folder with the snapshot and completes the journal ([`complete_cut_run`]).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_files::{FileLocation, Policy};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::changes::Change;
use crate::content::ContentId;
use crate::error::UndoError;
use crate::journal::{Journal, RunRecord, StoredRecord};
use crate::locks::{LockKind, UNDO_LOCK_WAIT};
use crate::snapshot::{Entry, Snapshot, parents};
use crate::state::{FileState, KeptContent};
use crate::store::UndoStore;
use crate::walk::{Known, WRITTEN_FILE_BYTES, WalkLimits, observe, walk};

/// How often a process shows that a command of a run still runs. See [`ChangeRecorder::show_alive`].
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// A file that changed so much later than the last sign of life of a killed process was changed by somebody else.
pub const CUT_SLACK: Duration = Duration::from_secs(3);

/// Records the changes of a run. Cheap to clone; the default records nothing.
///
/// An error never fails the tool call: the journal says which changes are not recorded.
#[derive(Clone, Debug, Default)]
pub struct ChangeRecorder {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    store: UndoStore,
    record: RunRecord,
    policy: Arc<Policy>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    journal: Journal,
    /// The session's lock, from the first change on.
    lock: Option<File>,
    /// The working folder as the last snapshot saw it, with the changes that file tools made since.
    baseline: Option<Snapshot>,
    /// Errors that the journal has already.
    noted: Vec<String>,
}

/// Whether processes of the session run beside the run's current call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// None: what changes between two calls, somebody else changes.
    Idle,
    /// Some: what changes between two calls is theirs.
    Running,
}

impl ChangeRecorder {
    pub(crate) fn new(store: UndoStore, record: RunRecord, policy: Arc<Policy>) -> Self {
        let journal = Journal::new(store.journal_path(&record.session, &record.run), record.clone());
        let state = State { journal, lock: None, baseline: None, noted: Vec::new() };
        Self { inner: Some(Arc::new(Inner { store, record, policy, state: Mutex::new(state) })) }
    }

    /// Whether it records anything.
    pub fn is_enabled(&self) -> bool {
        self.inner.is_some()
    }

    /// Takes a snapshot before a call that may change any file.
    pub fn before_call(&self, background: Background) {
        self.with(|inner, state| {
            let first = state.baseline.is_none();
            inner.look(state, first || background == Background::Idle)
        });
    }

    /// Finds out what a call has changed.
    pub fn after_call(&self) {
        self.with(|inner, state| inner.look(state, false));
    }

    /// Keeps the file that is about to get `new` as its content. Files that no policy would restore are not recorded.
    pub fn before_write(&self, location: &FileLocation, new: &[u8]) {
        self.with(|inner, state| {
            let Some(path) = inner.path_of(location).filter(|path| !is_of_git(path)) else { return Ok(()) };
            inner.begin(state)?;
            let _sweep = inner.store.lock_contents(LockKind::Shared)?;
            let contents = &inner.store.contents;
            let name = Path::new(&location.name);
            let (before, _) = observe(&location.folder, name, Some(contents))?;
            let mode = if let FileState::File { mode, .. } = &before { *mode } else { None };
            let id = ContentId::of(new);
            // By its hash the content is recognized even if it is too large to be kept.
            if new.len() as u64 <= WRITTEN_FILE_BYTES {
                contents.put(&id, new)?;
            }
            let after = FileState::File { content: KeptContent::Kept(id), size: new.len() as u64, mode };
            let mut changes = inner.new_folders(location, &path);
            changes.push(Change { path, before, after, linked: None, is_late: false });
            state.journal.append(changes)
        });
    }

    /// Takes note of the file that [`Self::before_write`] was told about, so that the next snapshot does not find it changed.
    pub fn after_write(&self, location: &FileLocation) {
        self.with(|inner, state| {
            let (Some(path), Some(baseline)) = (inner.path_of(location), &mut state.baseline) else {
                return Ok(());
            };
            let (state, identity) = observe(&location.folder, Path::new(&location.name), None)?;
            if let Some(identity) = identity {
                baseline.entries.insert(path.clone(), Entry { state, identity });
            }
            let folders = inner.new_folders(location, &path).into_iter();
            for Change { path, after, .. } in folders {
                // The identity of a folder is not compared.
                let identity = identity.unwrap_or_default();
                baseline.entries.insert(path, Entry { state: after, identity });
            }
            Ok(())
        });
    }

    /// Shows that the process lives, while a call runs. Call it every [`HEARTBEAT`].
    pub fn show_alive(&self) {
        let Some(inner) = &self.inner else { return };
        let path = inner.store.baseline_path(&inner.record.session, &inner.record.run);
        if let Ok(file) = File::options().append(true).open(path) {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            // If this fails, later changes count as made by somebody else, which an undo says.
            let _ = futimens(&file, &Timestamps { last_access: now, last_modification: now });
        }
    }

    /// Ends the recording: the run changes nothing any more. Sweeps the store if much was added to it.
    pub fn finish(&self, background: Background) {
        self.with(|inner, state| {
            if state.baseline.is_some() && background == Background::Running {
                inner.look(state, false)?;
            }
            inner.end(state)?;
            inner.store.sweep_if_grown()
        });
    }

    fn with(&self, work: impl FnOnce(&Inner, &mut State) -> Result<(), UndoError>) {
        let Some(inner) = &self.inner else { return };
        let mut state = inner.lock();
        if let Err(error) = work(inner, &mut state) {
            let note = format!("Some changes are not recorded and cannot be undone: {error}.");
            if !state.noted.contains(&note) {
                // If the disk is full, this fails too. The run goes on: its work matters more than the record of it.
                let _ = state.journal.note(note.clone());
                state.noted.push(note);
            }
        }
    }
}

impl Inner {
    /// Locks in spite of poisoning: a snapshot that is not the newest is still a snapshot.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the session's records, and completes those of runs that were killed.
    fn begin(&self, state: &mut State) -> Result<(), UndoError> {
        if state.lock.is_some() {
            return Ok(());
        }
        state.lock = self.store.lock_session(&self.record.session, UNDO_LOCK_WAIT)?;
        if state.lock.is_some() {
            self.store.complete_cut_runs(&self.record.session, &self.policy)?;
        }
        Ok(())
    }

    /// Takes a snapshot. Unless `is_foreign`, the run made what differs from the last one.
    fn look(&self, state: &mut State, is_foreign: bool) -> Result<(), UndoError> {
        self.begin(state)?;
        let _sweep = self.store.lock_contents(LockKind::Shared)?;
        let cached;
        let known = match &state.baseline {
            Some(baseline) => Known::Held(baseline),
            None => {
                cached = self.cached_snapshot();
                Known::Cached(&cached)
            }
        };
        let now = walk(&self.policy, known, &self.store.contents, WalkLimits::default())?;
        let is_changed = match &state.baseline {
            Some(baseline) if !is_foreign => {
                let changes = baseline.changes_until(&now);
                state.journal.append(changes)?;
                baseline.entries != now.entries
            }
            Some(baseline) => baseline.entries != now.entries,
            None => true,
        };
        if now.is_partial && state.journal.exists() {
            self.note_partial(state)?;
        }
        if is_changed {
            let path = self.store.baseline_path(&self.record.session, &self.record.run);
            now.write(&path, &StoredRecord::from(&self.record))?;
        }
        state.baseline = Some(now);
        Ok(())
    }

    /// Says once in a journal that exists that the folder is too large.
    fn note_partial(&self, state: &mut State) -> Result<(), UndoError> {
        let note = "The working folder has more files than parlor keeps for a run, or folders deeper than that; changes \
                    in the folders that were left out are not recorded and cannot be undone."
            .to_owned();
        if !state.noted.contains(&note) {
            state.journal.note(note.clone())?;
            state.noted.push(note);
        }
        Ok(())
    }

    /// The last snapshot that any run took of the folder.
    fn cached_snapshot(&self) -> Snapshot {
        let cached = Snapshot::read::<StoredRecord>(&self.store.cache_path(&self.record.folder));
        cached.ok().flatten().map(|(_, snapshot)| snapshot).unwrap_or_default()
    }

    /// Leaves the snapshot for the next run, and unlocks the session's records.
    fn end(&self, state: &mut State) -> Result<(), UndoError> {
        let baseline_path = self.store.baseline_path(&self.record.session, &self.record.run);
        let ended = state.baseline.take().map_or(Ok(()), |baseline| {
            let _sweep = self.store.lock_contents(LockKind::Shared)?;
            let cache = self.store.cache_path(&self.record.folder);
            let parent = cache.parent().expect("the cache is in a folder");
            crate::content::create_folder(parent).map_err(UndoError::io("create", parent))?;
            let written = baseline.write(&cache, &StoredRecord::from(&self.record));
            let removed = fs::remove_file(&baseline_path);
            written.and(removed.map_err(UndoError::io("remove", &baseline_path)))
        });
        state.lock = None;
        ended
    }

    /// The path below the working folder; `None` if it is elsewhere.
    fn path_of(&self, location: &FileLocation) -> Option<Vec<u8>> {
        let below = location.path.strip_prefix(&self.record.folder).ok()?;
        Some(below.as_os_str().as_bytes().to_vec())
    }

    /// The folders that were created for the file `path`.
    fn new_folders(&self, location: &FileLocation, path: &[u8]) -> Vec<Change> {
        let mut changes = Vec::new();
        for folder in parents(path).take(location.new_folders) {
            let below = Path::new(OsStr::from_bytes(folder));
            let Ok(spot) = self.policy.locate_exactly(below) else { continue };
            let observed = observe(&spot.folder, Path::new(&spot.name), None);
            if let Ok((after @ FileState::Folder { .. }, _)) = observed {
                let (path, before) = (folder.to_vec(), FileState::Missing);
                changes.push(Change { path, before, after, linked: None, is_late: false });
            }
        }
        changes
    }
}

/// Whether a file belongs to git, which parlor leaves alone.
fn is_of_git(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b".git")
}

impl Drop for Inner {
    /// A run whose future was dropped ends like one whose process was killed: its snapshot stays, for whoever needs the
    /// record next.
    fn drop(&mut self) {
        self.lock().lock = None;
    }
}

/// Reads whose snapshot this is.
pub(crate) fn read_baseline_record(path: &Path) -> Result<Option<RunRecord>, UndoError> {
    use std::io::BufRead;
    let file = match File::open(path) {
        Ok(file) => file,
        // The run ended meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(UndoError::io("read", path)(error)),
    };
    let mut line = Vec::new();
    std::io::BufReader::new(file).read_until(b'\n', &mut line).map_err(UndoError::io("read", path))?;
    Ok(serde_json::from_slice::<StoredRecord>(&line).ok().and_then(StoredRecord::read))
}

/// Completes the record of a run whose process was killed while it could change files, from the snapshot at `path`.
/// The caller holds the session's lock.
pub(crate) fn complete_cut_run(store: &UndoStore, path: &Path, policy: &Policy) -> Result<(), UndoError> {
    let alive_until = fs::metadata(path).and_then(|metadata| metadata.modified());
    let alive_until = alive_until.map_err(UndoError::io("look at", path))?;
    let Some((stored, before)) = Snapshot::read::<StoredRecord>(path)? else { return Ok(()) };
    let Some(record) = stored.read() else { return Ok(()) };
    if policy.roots().next() != Some(&record.folder) {
        return Ok(());
    }
    let _sweep = store.lock_contents(LockKind::Shared)?;
    let now = walk(policy, Known::Held(&before), &store.contents, WalkLimits::default())?;
    let ended = alive_until.duration_since(std::time::UNIX_EPOCH).unwrap_or_default() + CUT_SLACK;
    let ended = (i64::try_from(ended.as_secs()).unwrap_or(i64::MAX), u64::from(ended.subsec_nanos()));
    let mut changes = before.changes_until(&now);
    for change in &mut changes {
        change.is_late = now.changed_at(&change.path).is_some_and(|changed| changed > ended);
    }
    let mut journal = Journal::new(store.journal_path(&record.session, &record.run), record);
    if !changes.is_empty() {
        journal.append(changes)?;
    }
    if journal.exists() {
        let note = "The process of the run was killed. What changed until then is found by a comparison of the folder \
                    with a snapshot from before."
            .to_owned();
        journal.note(note)?;
    }
    fs::remove_file(path).map_err(UndoError::io("remove", path))
}
