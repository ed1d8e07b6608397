//! The records of all runs, in a folder of the state folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_files::Policy;
use parlor_vocab::{RunId, SessionId, Timestamp};

use crate::changes::RunChanges;
use crate::content::{ContentId, Contents};
use crate::error::UndoError;
use crate::journal::{self, RunRecord};
use crate::locks::{LockKind, UNDO_LOCK_WAIT, lock};
use crate::recorder::{ChangeRecorder, complete_cut_run, read_baseline_record};
use crate::restore::{UndoMode, UndoReport, restore};

/// The name of the store's folder in the state folder.
const FOLDER: &str = "undo";

/// How many digits of a hash name the files of a session or a run: an id may be any text.
const NAME_DIGITS: usize = 32;

/// The records of what runs changed, in one state folder. Cheap to clone; several processes may use one folder.
#[derive(Clone, Debug)]
pub struct UndoStore {
    pub(crate) folder: PathBuf,
    pub(crate) contents: Contents,
}

impl UndoStore {
    /// The store in the state folder `home`. Creates nothing: the first change that is kept creates the folder.
    pub fn new(home: &Path) -> Self {
        let folder = home.join(FOLDER);
        Self { contents: Contents { folder: folder.join("contents"), added: Arc::default() }, folder }
    }

    /// Records the changes of a run in the first folder of `policy`.
    pub fn recorder(
        &self,
        session: &SessionId,
        run: &RunId,
        at: Timestamp,
        policy: Arc<Policy>,
    ) -> ChangeRecorder {
        let folder = policy.roots().next().unwrap_or(Path::new("/")).to_owned();
        let record = RunRecord { session: session.clone(), run: run.clone(), folder, at };
        ChangeRecorder::new(self.clone(), record, policy)
    }

    /// The runs of a session that changed files, the oldest first.
    pub fn runs(&self, session: &SessionId, policy: &Policy) -> Result<Vec<RunRecord>, UndoError> {
        self.complete(session, policy)?;
        runs_in(&self.session_folder(session))
    }

    /// The runs of all sessions that changed files, but for those whose process was killed and that nobody asked about yet.
    pub fn all_runs(&self) -> Result<Vec<RunRecord>, UndoError> {
        let sessions = entries(&self.folder.join("runs"))?;
        let runs: Result<Vec<Vec<RunRecord>>, _> = sessions.iter().map(|session| runs_in(session)).collect();
        Ok(runs?.into_iter().flatten().collect())
    }

    /// The run that changed files in the first folder of `policy` last, in any session.
    pub fn last_run_in(&self, policy: &Policy) -> Result<Option<RunRecord>, UndoError> {
        let Some(folder) = policy.roots().next() else { return Ok(None) };
        let mut last: Option<RunRecord> = None;
        for session in entries(&self.folder.join("runs"))? {
            for cut in cut_runs_in(&session)?.iter().filter(|cut| cut.folder == folder) {
                self.complete(&cut.session, policy)?;
            }
            let newest = runs_in(&session)?.into_iter().rfind(|record| record.folder == folder);
            last = last.into_iter().chain(newest).max_by_key(|record| record.at.0);
        }
        Ok(last)
    }

    /// What a run changed. Also completes the record of a run whose process was killed, for which `policy` allows the
    /// working folder.
    pub fn changes(
        &self,
        session: &SessionId,
        run: &RunId,
        policy: &Policy,
    ) -> Result<RunChanges, UndoError> {
        self.complete(session, policy)?;
        journal::read(&self.journal_path(session, run))?.ok_or_else(|| UndoError::NoRecord(run.clone()))
    }

    /// The content under `id`.
    pub fn content(&self, id: &ContentId) -> Result<Vec<u8>, UndoError> {
        self.contents.read(id)
    }

    /// Puts the files back that a run changed, below the first folder of `policy`.
    pub fn undo(
        &self,
        session: &SessionId,
        run: &RunId,
        policy: &Policy,
        mode: UndoMode,
        now: Timestamp,
    ) -> Result<UndoReport, UndoError> {
        if !self.session_folder(session).exists() {
            return Err(UndoError::NoRecord(run.clone()));
        }
        let locked = self.lock_session(session, Duration::ZERO)?;
        let _locked = locked.ok_or_else(|| UndoError::Busy(session.clone()))?;
        self.complete_cut_runs(session, policy)?;
        let path = self.journal_path(session, run);
        let changes = journal::read(&path)?.ok_or_else(|| UndoError::NoRecord(run.clone()))?;
        let report = restore(&changes, policy, &self.contents, mode);
        if mode != UndoMode::DryRun && report.kept() == 0 {
            journal::Journal::new(path, changes.record).undone(now)?;
        }
        Ok(report)
    }

    /// Completes the records of runs of the session whose process was killed. The caller holds the session's lock.
    pub(crate) fn complete_cut_runs(&self, session: &SessionId, policy: &Policy) -> Result<(), UndoError> {
        let snapshots = with_extension(&self.session_folder(session), BASELINE)?;
        snapshots.iter().try_for_each(|path| complete_cut_run(self, path, policy))
    }

    /// Like [`Self::complete_cut_runs`], unless a run is active.
    fn complete(&self, session: &SessionId, policy: &Policy) -> Result<(), UndoError> {
        if !self.session_folder(session).exists() {
            return Ok(());
        }
        match self.lock_session(session, Duration::ZERO)? {
            Some(_lock) => self.complete_cut_runs(session, policy),
            None => Ok(()),
        }
    }

    /// Locks the records of a session, for a run that changes files or for an undo. `None` if others held the lock for
    /// all of `wait`.
    pub(crate) fn lock_session(
        &self,
        session: &SessionId,
        wait: Duration,
    ) -> Result<Option<File>, UndoError> {
        lock(&self.session_folder(session).join("lock"), LockKind::Exclusive, wait)
    }

    /// Keeps a sweep away until the result is dropped.
    pub(crate) fn lock_contents(&self, kind: LockKind) -> Result<Option<File>, UndoError> {
        lock(&self.folder.join("lock"), kind, UNDO_LOCK_WAIT)
    }

    pub(crate) fn session_folder(&self, session: &SessionId) -> PathBuf {
        self.folder.join("runs").join(file_name(session.as_str().as_bytes()))
    }

    pub(crate) fn journal_path(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.run_path(session, run, JOURNAL)
    }

    /// The snapshot by which the changes of a run are found, while the run is active.
    pub(crate) fn baseline_path(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.run_path(session, run, BASELINE)
    }

    fn run_path(&self, session: &SessionId, run: &RunId, extension: &str) -> PathBuf {
        let name = format!("{}.{extension}", file_name(run.as_str().as_bytes()));
        self.session_folder(session).join(name)
    }

    /// The last snapshot of a working folder, from which the next run takes the contents that it need not read.
    pub(crate) fn cache_path(&self, folder: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.folder.join("folders").join(file_name(folder.as_os_str().as_bytes()))
    }
}

/// The extension of journals.
pub(crate) const JOURNAL: &str = "changes";
/// The extension of the snapshots of active runs.
pub(crate) const BASELINE: &str = "before";

fn runs_in(session: &Path) -> Result<Vec<RunRecord>, UndoError> {
    let mut runs = Vec::new();
    for path in with_extension(session, JOURNAL)? {
        runs.extend(journal::read_record(&path)?);
    }
    runs.sort_by(|a: &RunRecord, b| (a.at.0, a.run.as_str()).cmp(&(b.at.0, b.run.as_str())));
    Ok(runs)
}

/// The runs that are active, or whose process was killed.
fn cut_runs_in(session: &Path) -> Result<Vec<RunRecord>, UndoError> {
    let mut runs = Vec::new();
    for path in with_extension(session, BASELINE)? {
        runs.extend(read_baseline_record(&path)?);
    }
    Ok(runs)
}

fn with_extension(folder: &Path, wanted: &str) -> Result<Vec<PathBuf>, UndoError> {
    let mut paths = entries(folder)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == wanted));
    Ok(paths)
}

fn file_name(id: &[u8]) -> String {
    ContentId::of(id).as_str().chars().take(NAME_DIGITS).collect()
}

/// The paths in a folder; none if it does not exist.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, UndoError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(UndoError::io("read", folder)(error)),
    };
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    paths.map_err(UndoError::io("read", folder))
}
