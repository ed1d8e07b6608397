//! Commands that go on after the call that started them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_process::{Process, ProcessNews, ProcessNumber, ProcessReport, WriteId, Written, spawn};
use parlor_vocab::{Failure, FailureCode, ProcessExit, StartProcess, StdioKind};
use tokio::sync::{mpsc, watch};

use crate::code::failure;
use crate::redact::Redact;
use crate::shell::journal::{Journal, Page};
use crate::shell::{REPORTS, STOP_GRACE, not_started};

/// How many background processes of one session may run at once.
pub const BACKGROUND_RUNNING: usize = 16;

/// How many processes that have ended are remembered, for their last output to be read.
pub const BACKGROUND_KEPT: usize = 16;

/// The background processes of one session. Clones share them; when the last one is dropped, what
/// still runs is told to end.
#[derive(Clone, Debug, Default)]
pub struct Shells {
    inner: Arc<Inner>,
}

/// One background process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundStatus {
    /// The id by which the `processes` tool knows it.
    pub id: String,
    /// What it runs.
    pub command: String,
    /// Whether it has a terminal, and can be written to.
    pub terminal: bool,
    /// How it ended, if it has.
    pub ending: Option<ProcessExit>,
}

impl Shells {
    /// Starts a process, on the calling thread.
    pub(super) fn start(
        &self,
        start: &StartProcess,
        command: &str,
        folder: &str,
        redact: &Arc<dyn Redact>,
    ) -> Result<String, Failure> {
        let mut state = self.inner.lock();
        let running = state.entries.values().filter(|entry| entry.ending().is_none()).count();
        if running >= BACKGROUND_RUNNING {
            let message = format!("{running} background processes run, which is the limit; stop one first");
            return Err(failure(FailureCode::LimitReached, message));
        }
        let (sender, reports) = mpsc::channel(REPORTS);
        let process = spawn(start, ProcessNumber(0), sender).map_err(|error| not_started(error, folder))?;
        state.last += 1;
        let number = state.last;
        let entry = Arc::new(Entry {
            command: command.to_owned(),
            terminal: start.stdio == StdioKind::Terminal,
            process,
            journal: Mutex::new(Journal::new(redact)),
            life: watch::Sender::new(Life::default()),
        });
        tokio::spawn(collect(Arc::clone(&entry), reports));
        state.entries.insert(number, entry);
        state.forget_oldest();
        Ok(id(number))
    }

    /// All processes that are remembered, the oldest first.
    pub fn list(&self) -> Vec<BackgroundStatus> {
        self.inner.lock().entries.iter().map(|(number, entry)| entry.status(*number)).collect()
    }

    /// Ends all processes with all that they have started, and waits until they are gone: at most a
    /// little longer than [`STOP_GRACE`], as for one.
    pub async fn end_all(&self) {
        let entries: Vec<Arc<Entry>> = self.inner.lock().entries.values().cloned().collect();
        for entry in &entries {
            entry.process.terminate(STOP_GRACE);
        }
        for entry in entries {
            entry.ended().await;
        }
    }

    pub(super) fn find(&self, wanted: &str) -> Result<Arc<Entry>, Failure> {
        let state = self.inner.lock();
        let found = state.entries.iter().find(|(number, _)| id(**number) == wanted);
        found.map(|(_, entry)| Arc::clone(entry)).ok_or_else(|| {
            let ids: Vec<String> = state.entries.keys().map(|number| id(*number)).collect();
            let known = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            failure(
                FailureCode::NotFound,
                format!("there is no background process `{wanted}`; there are: {known}"),
            )
        })
    }
}

fn id(number: u64) -> String {
    format!("p{number}")
}

#[derive(Debug, Default)]
struct Inner {
    /// A plain mutex: it is held for moments, never across a wait.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<u64, Arc<Entry>>,
    last: u64,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_oldest(&mut self) {
        let ended: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.ending().is_some())
            .map(|(number, _)| *number)
            .collect();
        for number in ended.iter().take(ended.len().saturating_sub(BACKGROUND_KEPT)) {
            self.entries.remove(number);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for entry in self.lock().entries.values() {
            entry.process.terminate(STOP_GRACE);
        }
    }
}

/// A background process and what it has said.
#[derive(Debug)]
pub(super) struct Entry {
    command: String,
    terminal: bool,
    process: Process,
    journal: Mutex<Journal>,
    life: watch::Sender<Life>,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// Whether there is output that nobody has read.
    unread: bool,
    ending: Option<ProcessExit>,
}

impl Entry {
    fn status(&self, number: u64) -> BackgroundStatus {
        BackgroundStatus {
            id: id(number),
            command: self.command.clone(),
            terminal: self.terminal,
            ending: self.ending(),
        }
    }

    pub(super) fn ending(&self) -> Option<ProcessExit> {
        self.life.borrow().ending
    }

    /// What was written since the last read, and how the process ended if it has.
    pub(super) fn read(&self) -> (Page, Option<ProcessExit>) {
        // The ending first: output of which it is the end is then in the journal already.
        let ending = self.ending();
        let mut journal = self.journal();
        let page = journal.read();
        let unread = !journal.is_empty();
        self.life.send_modify(|life| life.unread = unread);
        (page, ending)
    }

    /// Waits until there is something to read, or the process has ended.
    pub(super) async fn news(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.life.subscribe().wait_for(|life| life.unread || life.ending.is_some()).await;
    }

    async fn ended(&self) -> Option<ProcessExit> {
        let mut life = self.life.subscribe();
        life.wait_for(|life| life.ending.is_some()).await.ok().and_then(|life| life.ending)
    }

    /// Queues `bytes` to be read by the process. Says whether it is far behind.
    pub(super) fn write(&self, bytes: Vec<u8>) -> Result<Written, Failure> {
        // Nobody waits for a particular write, so they need no numbers of their own.
        self.process
            .write(WriteId(0), bytes)
            .map_err(|error| failure(FailureCode::ToolError, format!("cannot write to the process: {error}")))
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.terminal
    }

    /// Ends the process with all that it has started. Says whether it was alive, and how it ended.
    pub(super) async fn stop(&self) -> (bool, Option<ProcessExit>) {
        let was_running = self.process.terminate(STOP_GRACE);
        (was_running, self.ended().await)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives all that a process says, so that it never waits for a reader.
async fn collect(entry: Arc<Entry>, mut reports: mpsc::Receiver<ProcessReport>) {
    let mut ending = ProcessExit::Unknown;
    while let Some(report) = reports.recv().await {
        match report.news {
            ProcessNews::Output { bytes, .. } => {
                let mut journal = entry.journal();
                journal.push(&bytes);
                let unread = !journal.is_empty();
                drop(journal);
                entry.life.send_modify(|life| life.unread = unread);
            }
            ProcessNews::WriteAccepted(_) | ProcessNews::WriteLost(_) => {}
            ProcessNews::Exited(how) => ending = how,
        }
    }
    entry.journal().finish(ending);
    entry.life.send_modify(|life| life.ending = Some(ending));
}
