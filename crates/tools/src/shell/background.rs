//! Background processes: commands that go on after the call that started them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_process::{ChildEvent, Process, ProcessNumber, ProcessReport, WriteId, WriteStatus, spawn_in};
use parlor_vocab::{Failure, FailureCode, ProcessExit, StartProcess, StdioKind};
use tokio::sync::{mpsc, watch};

use crate::failure::failure;
use crate::shell::unread_output::{Page, UnreadOutput};
use crate::shell::{REPORT_QUEUE, STOP_GRACE, spawn_failure};
use crate::tool::ToolContext;

/// How many background processes of one session may run at once.
pub const BACKGROUND_RUNNING: usize = 16;

/// How many ended processes are kept, so that their last output can be read.
pub const BACKGROUND_KEPT: usize = 16;

/// The background processes of one session. Clones share them; dropping the last clone terminates the running ones.
#[derive(Clone, Debug, Default)]
pub struct BackgroundProcesses {
    inner: Arc<Inner>,
}

/// The state of one background process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundStatus {
    /// The id by which the `processes` tool knows it.
    pub id: String,
    /// The shell command, as the agent wrote it.
    pub command: String,
    /// Whether it runs on a terminal. Only such a process can be written to.
    pub terminal: bool,
    /// How it ended; `None` while it runs.
    pub exit: Option<ProcessExit>,
}

impl BackgroundProcesses {
    /// Starts a process on the calling thread and returns its id. Fails if [`BACKGROUND_RUNNING`] processes run.
    pub(super) fn start(
        &self,
        start: &StartProcess,
        command: &str,
        folder: &str,
        context: &ToolContext,
    ) -> Result<String, Failure> {
        let mut state = self.inner.lock();
        let running = state.entries.values().filter(|entry| entry.exit().is_none()).count();
        if running >= BACKGROUND_RUNNING {
            let message = format!("{running} background processes run, which is the limit; stop one first");
            return Err(failure(FailureCode::LimitReached, message));
        }
        let (sender, reports) = mpsc::channel(REPORT_QUEUE);
        let process = spawn_in(context.sandbox.as_deref(), start, ProcessNumber(0), sender)
            .map_err(|error| spawn_failure(error, folder))?;
        state.last_number += 1;
        let number = state.last_number;
        let entry = Arc::new(Entry {
            command: command.to_owned(),
            terminal: start.stdio == StdioKind::Terminal,
            process,
            output: Mutex::new(UnreadOutput::new(&context.redact)),
            progress: watch::Sender::new(EntryProgress::default()),
        });
        tokio::spawn(collect_output(Arc::clone(&entry), reports));
        state.entries.insert(number, entry);
        state.remove_oldest_ended();
        Ok(id(number))
    }

    /// The running processes and the last [`BACKGROUND_KEPT`] that ended, oldest first.
    pub fn list(&self) -> Vec<BackgroundStatus> {
        self.inner.lock().entries.iter().map(|(number, entry)| entry.status(*number)).collect()
    }

    /// Stops the process groups of all processes and waits until they have ended. All get the same [`STOP_GRACE`], so
    /// this takes no longer than for one process.
    pub async fn stop_all(&self) {
        let entries: Vec<Arc<Entry>> = self.inner.lock().entries.values().cloned().collect();
        for entry in &entries {
            entry.process.terminate(STOP_GRACE);
        }
        for entry in entries {
            entry.wait_for_exit().await;
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
    /// A plain mutex, because no task holds it across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<u64, Arc<Entry>>,
    last_number: u64,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove_oldest_ended(&mut self) {
        let ended: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.exit().is_some())
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

/// A background process and its unread output.
#[derive(Debug)]
pub(super) struct Entry {
    command: String,
    terminal: bool,
    process: Process,
    output: Mutex<UnreadOutput>,
    progress: watch::Sender<EntryProgress>,
}

/// The events that a reader can wait for.
#[derive(Clone, Copy, Debug, Default)]
struct EntryProgress {
    has_output: bool,
    exit: Option<ProcessExit>,
}

impl Entry {
    fn status(&self, number: u64) -> BackgroundStatus {
        BackgroundStatus {
            id: id(number),
            command: self.command.clone(),
            terminal: self.terminal,
            exit: self.exit(),
        }
    }

    pub(super) fn exit(&self) -> Option<ProcessExit> {
        self.progress.borrow().exit
    }

    /// The output since the last read, and how the process ended if it has.
    pub(super) fn read(&self) -> (Page, Option<ProcessExit>) {
        // The exit status first: once it is set, `output` holds everything that the process wrote.
        let exit = self.exit();
        let mut output = self.output();
        let page = output.read();
        let has_output = !output.is_empty();
        self.progress.send_modify(|progress| progress.has_output = has_output);
        (page, exit)
    }

    /// Waits until there is output to read, or the process has ended.
    pub(super) async fn wait_for_output(&self) {
        // This cannot fail, because `self` owns the sender.
        let _ = self
            .progress
            .subscribe()
            .wait_for(|progress| progress.has_output || progress.exit.is_some())
            .await;
    }

    async fn wait_for_exit(&self) -> Option<ProcessExit> {
        let mut progress = self.progress.subscribe();
        progress.wait_for(|progress| progress.exit.is_some()).await.ok().and_then(|progress| progress.exit)
    }

    /// Queues `bytes` for the terminal of the process. [`WriteStatus::Waiting`] means that the process reads slowly.
    pub(super) fn write(&self, bytes: Vec<u8>) -> Result<WriteStatus, Failure> {
        // All writes share one id, because no caller waits for a particular write.
        self.process
            .write(WriteId(0), bytes)
            .map_err(|error| failure(FailureCode::ToolError, format!("cannot write to the process: {error}")))
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.terminal
    }

    /// Stops the process group. Returns whether the process was running, and how it ended.
    pub(super) async fn stop(&self) -> (bool, Option<ProcessExit>) {
        let was_running = self.process.terminate(STOP_GRACE);
        (was_running, self.wait_for_exit().await)
    }

    fn output(&self) -> MutexGuard<'_, UnreadOutput> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores all output of a process at once, so that the process never waits for a reader.
async fn collect_output(entry: Arc<Entry>, mut reports: mpsc::Receiver<ProcessReport>) {
    let mut exit = ProcessExit::Unknown;
    while let Some(report) = reports.recv().await {
        match report.event {
            ChildEvent::Output { bytes, .. } => {
                let mut output = entry.output();
                output.push(&bytes);
                let has_output = !output.is_empty();
                drop(output);
                entry.progress.send_modify(|progress| progress.has_output = has_output);
            }
            ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
            ChildEvent::Exited(how) => exit = how,
        }
    }
    entry.output().finish(exit);
    entry.progress.send_modify(|progress| progress.exit = Some(exit));
}
