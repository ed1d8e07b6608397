//! What runs changed in the user's files: shown, and undone.

use std::path::Path;
use std::sync::Arc;

use parlor_tools::Policy;
use parlor_undo::{
    Background, ChangeRecorder, FileChange, FileDiff, KEPT_TOTAL_BYTES, KeptBytes, RunChanges, RunRecord,
    UndoError, UndoMode, UndoReport, UndoStore,
};
use parlor_vocab::{RunId, SessionId, SessionRefusal};

use super::Sessions;

/// Why the changes of a run cannot be shown or undone.
#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    /// The session refused.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// The record or the files are in the way.
    #[error(transparent)]
    Undo(#[from] UndoError),
}

impl Sessions {
    /// Keeps what runs change in `store`. Without this, nothing is kept and nothing can be undone.
    #[must_use]
    pub fn with_undo(mut self, store: UndoStore) -> Self {
        self.shared.undo = Some(store);
        self
    }

    /// What a run changed.
    pub async fn run_changes(&self, session: &SessionId, run: &RunId) -> Result<RunChanges, ChangesError> {
        let (session, run) = (session.clone(), run.clone());
        let folder = self.folder_of(&session).await?;
        self.undo_blocking(folder, move |store, policy| store.changes(&session, &run, policy)).await
    }

    /// Puts back what a run changed. Refused while a run of the session is active.
    pub async fn undo_run(
        &self,
        session: &SessionId,
        run: &RunId,
        mode: UndoMode,
    ) -> Result<UndoReport, ChangesError> {
        let record = self.record(session).await?;
        if let Some(active) = &record.running
            && !self.is_interrupted(&record).await
        {
            return Err(SessionRefusal::Busy { active: active.clone() }.into());
        }
        let (session, run, now) = (session.clone(), run.clone(), self.shared.deps.clock.now());
        let folder = self.folder_of(&session).await?;
        self.undo_blocking(folder, move |store, policy| store.undo(&session, &run, policy, mode, now)).await
    }

    /// The runs of a session that changed files, the oldest first.
    pub async fn changed_runs(&self, session: &SessionId) -> Result<Vec<RunRecord>, ChangesError> {
        let session = session.clone();
        let folder = self.folder_of(&session).await?;
        self.undo_blocking(folder, move |store, policy| store.runs(&session, policy)).await
    }

    /// The run that changed files in `folder` last, in any session.
    pub async fn last_changed_run_in(&self, folder: &Path) -> Result<Option<RunRecord>, ChangesError> {
        self.undo_blocking(Arc::from(folder), UndoStore::last_run_in).await
    }

    /// All runs of all sessions that changed files.
    pub async fn all_changed_runs(&self) -> Result<Vec<RunRecord>, ChangesError> {
        let Some(store) = self.shared.undo.clone() else { return Ok(Vec::new()) };
        Ok(run_blocking(move || store.all_runs()).await?)
    }

    /// The differences of these files, without the secrets that parlor knows. Files whose differences come after the first
    /// `max_bytes` of text are not shown.
    pub async fn diffs(
        &self,
        files: Vec<FileChange>,
        max_bytes: usize,
    ) -> Result<Vec<FileDiff>, ChangesError> {
        let Some(store) = self.shared.undo.clone() else { return Ok(Vec::new()) };
        let redact = Arc::clone(&self.shared.redact);
        let work = move || {
            let mut left = max_bytes;
            let diff = |file: &FileChange| {
                let diff = if left == 0 { FileDiff::NotShown } else { store.diff(file)? };
                let FileDiff::Text { text, is_cut } = diff else { return Ok(diff) };
                let text = redact.redact(&text).into_owned();
                if text.len() > left {
                    left = 0;
                    return Ok(FileDiff::NotShown);
                }
                left -= text.len();
                Ok(FileDiff::Text { text, is_cut })
            };
            files.iter().map(diff).collect::<Result<Vec<FileDiff>, UndoError>>()
        };
        Ok(run_blocking(work).await?)
    }

    /// How many bytes of files are kept for each session.
    pub(super) async fn kept_bytes(&self) -> KeptBytes {
        let Some(store) = self.shared.undo.clone() else { return KeptBytes::new() };
        // If they cannot be counted, they do not count: sessions are kept rather than deleted.
        run_blocking(move || store.kept_bytes()).await.unwrap_or_default()
    }

    /// Removes what is kept of a deleted session. What cannot be removed now, the next collection removes.
    pub(super) async fn delete_kept(&self, session: &SessionId) {
        let (Some(store), session) = (self.shared.undo.clone(), session.clone()) else { return };
        let _ = run_blocking(move || store.delete_session(&session)).await;
    }

    /// Removes what no record refers to, and the oldest records beyond [`KEPT_TOTAL_BYTES`].
    pub(super) async fn sweep_kept(&self) -> Result<(), UndoError> {
        let Some(store) = self.shared.undo.clone() else { return Ok(()) };
        run_blocking(move || store.sweep(KEPT_TOTAL_BYTES)).await.map(|_| ())
    }

    async fn folder_of(&self, session: &SessionId) -> Result<Arc<Path>, SessionRefusal> {
        let creation = self.creation(session).await?;
        creation
            .map(|new_session| Arc::from(new_session.folder))
            .ok_or_else(|| SessionRefusal::UnknownSession(session.clone()))
    }

    /// Runs `work` on a thread that may block, with a policy that allows `folder`.
    async fn undo_blocking<T: Send + 'static>(
        &self,
        folder: Arc<Path>,
        work: impl FnOnce(&UndoStore, &Policy) -> Result<T, UndoError> + Send + 'static,
    ) -> Result<T, ChangesError> {
        let store = self.shared.undo.clone();
        let state_folders = self.shared.state_folders.clone();
        let work = move || {
            let store = store.ok_or_else(|| UndoError::Folder("parlor keeps no changes here".to_owned()))?;
            let policy = Policy::new([&folder])?;
            let policy = state_folders.iter().fold(policy, |policy, folder| policy.without_state(folder));
            work(&store, &policy)
        };
        Ok(run_blocking(work).await?)
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UndoError> + Send + 'static,
) -> Result<T, UndoError> {
    let broken = |error| Err(UndoError::Folder(format!("the work on its files broke off: {error}")));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(broken)
}

/// Runs a step of `changes`, which may read many files, on a thread that may block. A recorder that broke off has said so.
pub(super) async fn record_changes(
    changes: &ChangeRecorder,
    step: impl FnOnce(&ChangeRecorder) + Send + 'static,
) {
    if changes.is_enabled() {
        let changes = changes.clone();
        let _ = tokio::task::spawn_blocking(move || step(&changes)).await;
    }
}

/// Whether processes of the session run beside its calls.
pub(super) fn background(processes: &parlor_tools::BackgroundProcesses) -> Background {
    match processes.list().iter().any(|process| process.exit.is_none()) {
        true => Background::Running,
        false => Background::Idle,
    }
}
