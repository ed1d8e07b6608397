//! The processes of one caller, under the names that the caller chose.
//!
//! A name is free again when its process was reported as exited, or when the caller had it
//! terminated. In the second case the old process may still be ending: a new one of the same name
//! then starts right after the old one's last event, so that the two cannot be mixed up.

use std::collections::HashMap;
use std::time::Duration;

use parlor_process::{
    Instance, News, Process, Report, Retained, STDIN_BACKLOG_BYTES, STDIN_BACKLOG_WRITES, SpawnError,
    TERMINATE_GRACE, WriteError, WriteId, Written, spawn,
};
use parlor_vocab::{Command, Event, ProcessId, Refusal, Reply, StartProcess};
use tokio::sync::mpsc;

/// How many processes one caller may have at a time, counting those that are ending.
pub const MAX_PROCESSES: usize = 1024;

/// How long process groups may take to end when their caller leaves, before they are killed.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// Reports that wait for the caller. Few: each may hold a whole piece of output.
const REPORTS: usize = 8;

/// The processes of one caller. `Q` is the caller's name for a question.
#[derive(Debug)]
pub struct Processes<Q> {
    /// By name, those that the caller can speak of.
    named: HashMap<ProcessId, Instance>,
    /// By the name they had, those that were terminated and are not over yet.
    ending: HashMap<ProcessId, Instance>,
    /// All that have not been reported as exited, named or not.
    living: HashMap<Instance, (ProcessId, Process)>,
    /// Starts that wait for the previous bearer of their name to be over.
    held: HashMap<ProcessId, (Q, StartProcess)>,
    /// A start that need not wait any longer.
    released: Option<(Q, StartProcess)>,
    /// Writes that wait for room.
    writes: HashMap<WriteId, (Q, ProcessId)>,
    next_number: u64,
    is_ending: bool,
    reports: mpsc::Receiver<Report>,
    reporter: mpsc::Sender<Report>,
}

/// What comes back from processes.
#[derive(Debug)]
pub enum Happening<Q> {
    /// The answer to a question that could not be answered at once.
    Answer(Q, Result<Reply, Refusal>),
    /// Something that happened.
    Event(Event),
}

impl<Q> Default for Processes<Q> {
    fn default() -> Self {
        let (reporter, reports) = mpsc::channel(REPORTS);
        Self {
            named: HashMap::new(),
            ending: HashMap::new(),
            living: HashMap::new(),
            held: HashMap::new(),
            released: None,
            writes: HashMap::new(),
            next_number: 0,
            is_ending: false,
            reports,
            reporter,
        }
    }
}

impl<Q> Processes<Q> {
    /// Does what `command` says, for a caller that will know the answer by `question`. An answer
    /// that has to wait comes from [`next`] later.
    ///
    /// [`next`]: Processes::next
    pub fn perform(&mut self, question: Q, command: Command) -> Option<(Q, Result<Reply, Refusal>)> {
        match command {
            Command::StartProcess(start) => self.start(question, start),
            Command::WriteProcess { process, bytes } => self.write(question, process, bytes),
            Command::TerminateProcess { process } => {
                let was_running = self.terminate(&process);
                Some((question, Ok(Reply::ProcessTerminating { was_running })))
            }
        }
    }

    /// Waits for the next thing to happen; none when, after [`end_all`], every process is over and
    /// reported. Cancel safe.
    ///
    /// [`end_all`]: Processes::end_all
    pub async fn next(&mut self) -> Option<Happening<Q>> {
        if let Some((question, start)) = self.released.take() {
            return Some(Happening::Answer(question, self.spawn(start)));
        }
        while !(self.is_ending && self.living.is_empty()) {
            // The channel cannot close: we hold a sender.
            let report = self.reports.recv().await?;
            if let Some(happening) = self.on_report(report) {
                return Some(happening);
            }
        }
        None
    }

    /// The number of a process, and what is retained of its output.
    pub fn look_at(&self, name: &ProcessId) -> Option<(u32, Retained)> {
        let (_, process) = self.living.get(self.named.get(name)?)?;
        Some((process.pid(), process.retains()))
    }

    /// Begins to end all processes. [`next`] goes on to report.
    ///
    /// [`next`]: Processes::next
    pub fn end_all(&mut self) {
        self.is_ending = true;
        self.held.clear();
        self.released = None;
        for (_, process) in self.living.values() {
            process.terminate(SHUTDOWN_GRACE);
        }
    }

    /// Waits until nothing is left of any process, whether or not anybody hears of it.
    pub async fn gone(self) {
        drop((self.reports, self.reporter));
        for (_, process) in self.living.into_values() {
            process.terminate(SHUTDOWN_GRACE);
            process.gone().await;
        }
    }

    fn start(&mut self, question: Q, start: StartProcess) -> Option<(Q, Result<Reply, Refusal>)> {
        if self.named.contains_key(&start.process) || self.held.contains_key(&start.process) {
            return Some((question, Err(Refusal::ProcessExists(start.process))));
        }
        if self.living.len() >= MAX_PROCESSES {
            return Some((question, Err(Refusal::TooManyProcesses { limit: MAX_PROCESSES })));
        }
        if let Some((_, process)) = self.ending.get(&start.process).and_then(|old| self.living.get(old)) {
            process.terminate(Duration::ZERO);
            self.held.insert(start.process.clone(), (question, start));
            return None;
        }
        Some((question, self.spawn(start)))
    }

    fn spawn(&mut self, start: StartProcess) -> Result<Reply, Refusal> {
        let instance = Instance(self.number());
        let process = spawn(&start, instance, self.reporter.clone()).map_err(refusal)?;
        self.named.insert(start.process.clone(), instance);
        self.living.insert(instance, (start.process, process));
        Ok(Reply::ProcessStarted)
    }

    fn write(&mut self, question: Q, name: ProcessId, bytes: Vec<u8>) -> Option<(Q, Result<Reply, Refusal>)> {
        let id = WriteId(self.number());
        let Some((_, process)) = self.named.get(&name).and_then(|instance| self.living.get(instance)) else {
            return Some((question, Err(Refusal::UnknownProcess(name))));
        };
        let answer = match process.write(id, bytes) {
            Ok(Written::Accepted) => Ok(Reply::WriteAccepted),
            Ok(Written::Waiting) => {
                self.writes.insert(id, (question, name));
                return None;
            }
            Err(WriteError::Closed) => Err(Refusal::StdinClosed(name)),
            Err(WriteError::Gone) => Err(Refusal::StdinGone(name)),
            Err(WriteError::TooManyBytes) => {
                Err(Refusal::StdinFull { process: name, limit: STDIN_BACKLOG_BYTES, what: "bytes" })
            }
            Err(WriteError::TooManyWrites) => {
                Err(Refusal::StdinFull { process: name, limit: STDIN_BACKLOG_WRITES, what: "writes" })
            }
        };
        Some((question, answer))
    }

    fn terminate(&mut self, name: &ProcessId) -> bool {
        let Some(&instance) = self.named.get(name) else { return false };
        let Some((_, process)) = self.living.get(&instance) else { return false };
        let was_running = process.terminate(TERMINATE_GRACE);
        // Its name is free now, also if it was gone already and only its last events are to come.
        self.named.remove(name);
        self.ending.insert(name.clone(), instance);
        was_running
    }

    fn on_report(&mut self, report: Report) -> Option<Happening<Q>> {
        let Report { instance, news } = report;
        match news {
            News::Output { stream, bytes } => {
                let (process, _) = self.living.get(&instance)?;
                Some(Happening::Event(Event::ProcessOutput { process: process.clone(), stream, bytes }))
            }
            News::WriteAccepted(id) => {
                let (question, _) = self.writes.remove(&id)?;
                Some(Happening::Answer(question, Ok(Reply::WriteAccepted)))
            }
            News::WriteLost(id) => {
                let (question, process) = self.writes.remove(&id)?;
                Some(Happening::Answer(question, Err(Refusal::StdinGone(process))))
            }
            News::Exited(ending) => {
                let (process, _) = self.living.remove(&instance)?;
                // A process that was terminated has lost its name already.
                if self.ending.remove(&process).is_none() {
                    self.named.remove(&process);
                }
                self.released = self.held.remove(&process);
                Some(Happening::Event(Event::ProcessExited { process, ending }))
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

pub(crate) fn refusal(error: SpawnError) -> Refusal {
    let (attempt, reason) = match &error {
        SpawnError::RelativeFolder(folder) => {
            return Refusal::RelativeFolder(folder.display().to_string());
        }
        SpawnError::NulByte(_) => ("start the process".to_owned(), error.to_string()),
        SpawnError::Folder { folder, errno } => {
            (format!("enter working folder {folder:?}"), errno.to_string())
        }
        SpawnError::Program { program, errno } => (format!("run {program:?}"), errno.to_string()),
        SpawnError::System { attempt, errno } => ((*attempt).to_owned(), errno.to_string()),
    };
    Refusal::CannotStart { attempt, reason }
}
