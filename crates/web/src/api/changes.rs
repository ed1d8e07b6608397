//! What a run changed in the user's files, and the undo of it.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use parlor_engine::{ChangesError, Sessions};
use parlor_undo::{
    FileChange, FileDiff, FileState, RunChanges, UndoError, UndoMode, UndoOutcome, UndoReport,
};
use parlor_vocab::{RunId, SessionId};
use serde::{Deserialize, Serialize};

use super::session_error::SessionApiError;
use crate::response::{json, read_only, text};
use crate::response_memory::{NoMemory, ResponseMemory};
use crate::site::Site;

/// How many changed files an answer lists. Further ones are counted.
pub const MAX_LISTED_CHANGES: usize = 2_000;

/// How many bytes the differences in an answer have. Files after that are listed without.
pub const MAX_DIFF_BYTES: usize = 4 << 20;

/// What a run changed, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangesAnswer {
    session: String,
    run: String,
    folder: String,
    /// Whether the run was undone since, and completely.
    undone: bool,
    /// How many files the run changed, also those that are not listed.
    total: usize,
    files: Vec<ChangedFileInfo>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChangedFileInfo {
    path: String,
    change: &'static str,
    before: FileInfo,
    after: FileInfo,
    /// The lines of a unified diff; absent if there is none to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// `text`, `binary`, `not_shown` or `no_file`.
    shown: &'static str,
    /// Whether lines of the diff are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// Why an undo cannot put the file back.
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct FileInfo {
    /// `missing`, `file`, `folder`, `link` or `special`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// The permissions in octal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// What an undo did, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UndoAnswer {
    session: String,
    run: String,
    folder: String,
    dry_run: bool,
    restored: usize,
    kept: usize,
    files: Vec<UndoneFileInfo>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct UndoneFileInfo {
    path: String,
    change: &'static str,
    /// `restored`, `unchanged` or `kept`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ChangesAnswer {
    /// The answer with as many files as there are `diffs`.
    pub fn new(changes: &RunChanges, diffs: Vec<FileDiff>) -> Self {
        let file = |(file, diff): (&FileChange, FileDiff)| {
            let (shown, diff, truncated) = match diff {
                FileDiff::Text { text, is_cut } => ("text", Some(text), is_cut),
                FileDiff::Binary => ("binary", None, false),
                FileDiff::NotShown => ("not_shown", None, false),
                FileDiff::NoFile => ("no_file", None, false),
            };
            ChangedFileInfo {
                path: file.path.to_string_lossy().into_owned(),
                change: file.kind(),
                before: FileInfo::new(&file.before),
                after: FileInfo::new(&file.after),
                diff,
                shown,
                truncated,
                obstacle: file.obstacle().map(parlor_undo::Obstacle::reason),
            }
        };
        Self {
            session: changes.record.session.to_string(),
            run: changes.record.run.to_string(),
            folder: changes.record.folder.to_string_lossy().into_owned(),
            undone: changes.is_undone,
            total: changes.files.len(),
            files: changes.files.iter().zip(diffs).map(file).collect(),
            notes: changes.notes.clone(),
        }
    }
}

impl FileInfo {
    fn new(state: &FileState) -> Self {
        let octal = |mode: u32| format!("{mode:o}");
        let (kind, size, mode, target) = match state {
            FileState::Missing => ("missing", None, None, None),
            FileState::File { size, mode, .. } => ("file", Some(*size), mode.map(octal), None),
            FileState::Folder { mode, .. } => ("folder", None, Some(octal(*mode)), None),
            FileState::Link { target } => {
                ("link", None, None, Some(String::from_utf8_lossy(target).into_owned()))
            }
            FileState::Special => ("special", None, None, None),
        };
        Self { kind, size, mode, target }
    }
}

impl UndoAnswer {
    /// The answer about an undo in this mode. Lists at most `max` files, and among these first those that are kept.
    pub fn new(report: &UndoReport, mode: UndoMode, max: usize) -> Self {
        let is_kept = |outcome: &UndoOutcome| matches!(outcome, UndoOutcome::Kept(_));
        let kept = report.files.iter().filter(|file| is_kept(&file.outcome));
        let others = report.files.iter().filter(|file| !is_kept(&file.outcome));
        let file = |file: &parlor_undo::UndoneFile| {
            let (outcome, reason) = match &file.outcome {
                UndoOutcome::Restored => ("restored", None),
                UndoOutcome::AlreadyDone => ("unchanged", None),
                UndoOutcome::Kept(reason) => ("kept", Some(reason.clone())),
            };
            let path = file.path.to_string_lossy().into_owned();
            UndoneFileInfo { path, change: file.change, outcome, reason }
        };
        Self {
            session: report.record.session.to_string(),
            run: report.record.run.to_string(),
            folder: report.record.folder.to_string_lossy().into_owned(),
            dry_run: mode == UndoMode::DryRun,
            restored: report.restored(),
            kept: report.kept(),
            files: kept.chain(others).take(max).map(file).collect(),
            notes: report.notes.clone(),
        }
    }
}

pub(crate) async fn read(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
    ids: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Response {
    let Ok(_permit) = site.session_reader().await else { return NoMemory::response() };
    match read_changes(&site.deps.sessions, ids.ok()).await {
        Ok(answer) => memory.json(&answer, site.deps.settings.limits.answer_wait).await,
        Err(error) => error.response(),
    }
}

pub(crate) async fn undo(
    State(site): State<Arc<Site>>,
    ids: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    body: Bytes,
) -> Response {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct UndoParams {
        dry_run: bool,
        force: bool,
    }
    if !site.deps.settings.may_send {
        return read_only();
    }
    let params = if body.is_empty() { Ok(UndoParams::default()) } else { serde_json::from_slice(&body) };
    let mode = match params {
        Ok(UndoParams { dry_run: true, force: false }) => UndoMode::DryRun,
        Ok(UndoParams { dry_run: false, force: true }) => UndoMode::Force,
        Ok(UndoParams { dry_run: false, force: false }) => UndoMode::Careful,
        Ok(UndoParams { dry_run: true, force: true }) | Err(_) => {
            let expected = "the body is empty, or {\"dry_run\":true}, or {\"force\":true}";
            return text(StatusCode::BAD_REQUEST, expected);
        }
    };
    match undo_run(&site.deps.sessions, ids.ok(), mode).await {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(error) => error.response(),
    }
}

async fn read_changes(
    sessions: &Sessions,
    ids: Option<Path<(String, String)>>,
) -> Result<ChangesAnswer, SessionApiError> {
    let (session, run) = parse(ids)?;
    let changes = sessions.run_changes(&session, &run).await?;
    let listed = changes.files.iter().take(MAX_LISTED_CHANGES).cloned().collect();
    let diffs = sessions.diffs(listed, MAX_DIFF_BYTES).await?;
    Ok(ChangesAnswer::new(&changes, diffs))
}

async fn undo_run(
    sessions: &Sessions,
    ids: Option<Path<(String, String)>>,
    mode: UndoMode,
) -> Result<UndoAnswer, SessionApiError> {
    let (session, run) = parse(ids)?;
    let report = sessions.undo_run(&session, &run, mode).await?;
    Ok(UndoAnswer::new(&report, mode, MAX_LISTED_CHANGES))
}

fn parse(ids: Option<Path<(String, String)>>) -> Result<(SessionId, RunId), SessionApiError> {
    let Path((session, run)) = ids.ok_or(SessionApiError::Unknown)?;
    let session = SessionId::parse(&session).map_err(|_| SessionApiError::Unknown)?;
    Ok((session, RunId::parse(&run).map_err(|_| SessionApiError::Unknown)?))
}

impl From<ChangesError> for SessionApiError {
    fn from(error: ChangesError) -> Self {
        match error {
            ChangesError::Session(refusal) => refusal.into(),
            ChangesError::Undo(error @ UndoError::NoRecord(_)) => Self::NoChanges(error.to_string()),
            ChangesError::Undo(error @ (UndoError::Busy(_) | UndoError::Folder(_))) => {
                Self::Busy(error.to_string())
            }
            ChangesError::Undo(error @ (UndoError::Damaged { .. } | UndoError::Io { .. })) => {
                Self::Failed(error.to_string())
            }
        }
    }
}
