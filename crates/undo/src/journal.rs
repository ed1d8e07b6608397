//! The journal of a run: a file of lines of JSON to which changes are appended before or right after they happen.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parlor_vocab::{RunId, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::changes::{Change, RunChanges, fold};
use crate::error::UndoError;
use crate::state::path_text;

/// How many changes the record of a run has. Further ones are not recorded, which the record then says.
pub const MAX_RECORDED_CHANGES: usize = 50_000;

/// Whose changes a record has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The session.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The working folder, without symbolic links.
    pub folder: PathBuf,
    /// When the run began to change files.
    pub at: Timestamp,
}

/// The first line of a journal, and of a stored snapshot.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredRecord {
    format: u32,
    session: String,
    run: String,
    #[serde(with = "path_text")]
    folder: Vec<u8>,
    at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Run(StoredRecord),
    Change(Change),
    Note(String),
    Undone(i64),
}

/// The format of the files that this version writes.
const FORMAT: u32 = 1;

impl From<&RunRecord> for StoredRecord {
    fn from(record: &RunRecord) -> Self {
        use std::os::unix::ffi::OsStrExt;
        Self {
            format: FORMAT,
            session: record.session.as_str().to_owned(),
            run: record.run.as_str().to_owned(),
            folder: record.folder.as_os_str().as_bytes().to_vec(),
            at: record.at.0,
        }
    }
}

impl StoredRecord {
    /// `None` if a newer version wrote it.
    pub(crate) fn read(self) -> Option<RunRecord> {
        use std::os::unix::ffi::OsStringExt;
        Some(RunRecord {
            session: SessionId::parse(&self.session).ok()?,
            run: RunId::parse(&self.run).ok().filter(|_| self.format == FORMAT)?,
            folder: std::ffi::OsString::from_vec(self.folder).into(),
            at: Timestamp(self.at),
        })
    }
}

/// The journal of one run. The first line that is appended creates the file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    record: RunRecord,
    file: Option<File>,
    changes: usize,
    is_full: bool,
}

impl Journal {
    pub(crate) fn new(path: PathBuf, record: RunRecord) -> Self {
        Self { path, record, file: None, changes: 0, is_full: false }
    }

    /// Appends changes with one write. Drops those beyond [`MAX_RECORDED_CHANGES`], and says so in the journal.
    pub(crate) fn append(&mut self, changes: Vec<Change>) -> Result<(), UndoError> {
        let room = MAX_RECORDED_CHANGES.saturating_sub(self.changes);
        let is_over = changes.len() > room;
        let mut lines: Vec<Line> = changes.into_iter().take(room).map(Line::Change).collect();
        self.changes += lines.len();
        if is_over && !self.is_full {
            self.is_full = true;
            lines.push(Line::Note(format!(
                "The run made more than {MAX_RECORDED_CHANGES} changes; those beyond are not recorded and cannot be undone."
            )));
        }
        self.write(&lines)
    }

    pub(crate) fn note(&mut self, note: String) -> Result<(), UndoError> {
        self.write(&[Line::Note(note)])
    }

    pub(crate) fn undone(&mut self, at: Timestamp) -> Result<(), UndoError> {
        self.write(&[Line::Undone(at.0)])
    }

    pub(crate) fn exists(&self) -> bool {
        self.file.is_some() || self.path.exists()
    }

    fn write(&mut self, lines: &[Line]) -> Result<(), UndoError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        if self.file.is_none() {
            let options = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
            let file = options.map_err(UndoError::io("write", &self.path))?;
            match file.metadata().map_err(UndoError::io("write", &self.path))?.len() {
                0 => push_line(&mut bytes, &Line::Run(StoredRecord::from(&self.record))),
                // A process that was killed may have left a part of a line.
                _ => bytes.push(b'\n'),
            }
            self.file = Some(file);
        }
        lines.iter().for_each(|line| push_line(&mut bytes, line));
        let file = self.file.as_mut().expect("it was opened above");
        file.write_all(&bytes).map_err(UndoError::io("write", &self.path))
    }
}

fn push_line(bytes: &mut Vec<u8>, line: &Line) {
    serde_json::to_writer(&mut *bytes, line).expect("a line is written to memory");
    bytes.push(b'\n');
}

/// Reads a journal. `None` if there is none, or if a newer version wrote it.
pub(crate) fn read(path: &Path) -> Result<Option<RunChanges>, UndoError> {
    let Some(lines) = lines(path)? else { return Ok(None) };
    let (mut record, mut changes, mut notes, mut is_undone) = (None, Vec::new(), Vec::new(), false);
    for line in lines {
        match line? {
            Some(Line::Run(stored)) => record = stored.read(),
            Some(Line::Change(change)) => {
                changes.push(change);
                is_undone = false;
            }
            Some(Line::Note(note)) => notes.push(note),
            Some(Line::Undone(_)) => is_undone = true,
            None => {}
        }
    }
    Ok(record.map(|record| RunChanges { record, files: fold(changes), notes, is_undone }))
}

/// Reads whose changes a journal has.
pub(crate) fn read_record(path: &Path) -> Result<Option<RunRecord>, UndoError> {
    let first = lines(path)?.and_then(|mut lines| lines.next()).transpose()?.flatten();
    Ok(match first {
        Some(Line::Run(stored)) => stored.read(),
        Some(Line::Change(_) | Line::Note(_) | Line::Undone(_)) | None => None,
    })
}

/// The lines of a journal; `None` in place of a line that is not complete.
fn lines(
    path: &Path,
) -> Result<Option<impl Iterator<Item = Result<Option<Line>, UndoError>> + use<>>, UndoError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(UndoError::io("read", path)(error)),
    };
    let path = path.to_owned();
    Ok(Some(BufReader::with_capacity(64 << 10, file).split(b'\n').map(move |line| {
        let line = line.map_err(UndoError::io("read", &path))?;
        Ok(serde_json::from_slice(&line).ok())
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::FileState;

    fn record() -> RunRecord {
        RunRecord {
            session: SessionId::parse("s/../1").unwrap(),
            run: RunId::parse("r").unwrap(),
            folder: "/x".into(),
            at: Timestamp(7),
        }
    }

    fn change(name: usize) -> Change {
        let after = FileState::Folder { mode: 0o755, skipped: None };
        let path = format!("f{name}").into_bytes();
        Change { path, before: FileState::Missing, after, linked: Some(b"\xff".to_vec()), is_late: false }
    }

    #[test]
    fn a_line_that_was_cut_off_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journal = Journal::new(path.clone(), record());
        journal.append(vec![change(1), change(2)]).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        Journal::new(path.clone(), record()).append(vec![change(3)]).unwrap();
        let changes = read(&path).unwrap().unwrap();
        assert_eq!(changes.record, record());
        let names: Vec<_> = changes.files.iter().map(|file| file.path.to_str().unwrap()).collect();
        assert_eq!(names, ["f1", "f3"]);
    }

    #[test]
    fn a_journal_has_a_limited_number_of_changes_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journal = Journal::new(path.clone(), record());
        journal.append((0..MAX_RECORDED_CHANGES - 1).map(change).collect()).unwrap();
        journal.append((MAX_RECORDED_CHANGES..MAX_RECORDED_CHANGES + 5).map(change).collect()).unwrap();
        journal.append(vec![change(1)]).unwrap();
        let changes = read(&path).unwrap().unwrap();
        assert_eq!(changes.files.len(), MAX_RECORDED_CHANGES);
        assert_eq!(changes.notes.len(), 1, "{:?}", changes.notes);
        assert!(changes.notes[0].contains("more than 50000 changes"), "{}", changes.notes[0]);
    }
}
