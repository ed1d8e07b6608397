//! The file with the texts that the user sent, which the line editor of the plain chat uses too.

use std::io;
use std::path::{Path, PathBuf};

use rustyline::Config;
use rustyline::error::ReadlineError;
use rustyline::history::{FileHistory, History};

use super::super::editor::{HISTORY_LINE_BYTES, HISTORY_LINES};

/// The file, and what is in it.
pub(super) struct HistoryFile {
    path: PathBuf,
    history: FileHistory,
}

impl HistoryFile {
    /// Opens the file, and reads it if it is there.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_LINES)?.history_ignore_space(true).build();
        let mut history = FileHistory::with_config(&config);
        match history.load(path) {
            Ok(()) => {}
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self { path: path.to_owned(), history })
    }

    /// The texts, the oldest first.
    pub(super) fn texts(&self) -> Vec<String> {
        self.history.iter().cloned().collect()
    }

    /// Adds a text, and writes it at once, in case the program is killed.
    pub(super) fn add(&mut self, text: &str) -> anyhow::Result<()> {
        if text.trim().is_empty() || text.len() > HISTORY_LINE_BYTES {
            return Ok(());
        }
        self.history.add(text)?;
        Ok(self.history.append(&self.path)?)
    }
}
