//! The processes of one caller, under the names that the caller chose.
//!
//! A name is free again when its process was reported as exited, or when the caller had it
//! terminated. In the second case the old process may still be ending: a new one of the same name
//! then starts right after the old one's last event, so that the two cannot be mixed up.

use std::collections::HashMap;
use std::time::Duration;

use crate::{
    Process, ProcessNews, ProcessNumber, ProcessReport, Retained, STDIN_BACKLOG_BYTES, STDIN_BACKLOG_WRITES,
    SpawnError, TERMINATE_GRACE, WriteError, WriteId, Written, spawn,
};
use parlor_vocab::{
    Answer, Backend, ProcessEvent, ProcessId, ProcessRefusal, ProcessReply, ProcessRequest, StartProcess,
    Ticket, Update, UpdateOf,
};
use tokio::sync::mpsc;

/// How many processes one caller may have at a time, counting those that are ending.
pub const MAX_PROCESSES: usize = 1024;

/// How long process groups may take to end when their caller leaves, before they are killed.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// Reports that wait for the caller. Few: each may hold a whole piece of output.
const REPORTS: usize = 8;

/// The processes of one connection.
#[derive(Debug)]
pub struct Processes {
    /// By name, those that the caller can speak of.
    named: HashMap<ProcessId, ProcessNumber>,
    /// By the name they had, those that were terminated and are not over yet.
    ending: HashMap<ProcessId, ProcessNumber>,
    /// All that have not been reported as exited, named or not.
    living: HashMap<ProcessNumber, (ProcessId, Process)>,
    /// Starts that wait for the previous bearer of their name to be over.
    held: HashMap<ProcessId, (Ticket, StartProcess)>,
    /// A start that need not wait any longer.
    released: Option<(Ticket, StartProcess)>,
    /// Writes that wait for room.
    writes: HashMap<WriteId, (Ticket, ProcessId)>,
    next_number: u64,
    is_ending: bool,
    reports: mpsc::Receiver<ProcessReport>,
    reporter: mpsc::Sender<ProcessReport>,
}

type ProcessUpdate = UpdateOf<Processes>;
type ProcessAnswer = Answer<ProcessReply, ProcessRefusal>;

impl Default for Processes {
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

impl Backend for Processes {
    type Request = ProcessRequest;
    type Reply = ProcessReply;
    type Event = ProcessEvent;
    type Error = ProcessRefusal;

    fn submit(&mut self, ticket: Ticket, request: ProcessRequest) -> Option<ProcessAnswer> {
        match request {
            ProcessRequest::StartProcess(start) => self.start(ticket, start),
            ProcessRequest::WriteProcess { process, bytes } => self.write(ticket, process, bytes),
            ProcessRequest::TerminateProcess { process } => {
                let was_running = self.terminate(&process);
                Some((ticket, Ok(ProcessReply::ProcessTerminating { was_running })))
            }
        }
    }

    async fn next(&mut self) -> Option<ProcessUpdate> {
        if let Some((ticket, start)) = self.released.take() {
            return Some(Update::Answer(ticket, self.spawn(start)));
        }
        while !(self.is_ending && self.living.is_empty()) {
            // The channel cannot close: we hold a sender.
            let report = self.reports.recv().await?;
            if let Some(update) = self.on_report(report) {
                return Some(update);
            }
        }
        None
    }

    fn begin_close(&mut self) {
        self.is_ending = true;
        self.held.clear();
        self.released = None;
        for (_, process) in self.living.values() {
            process.terminate(SHUTDOWN_GRACE);
        }
    }

    async fn closed(self) {
        drop((self.reports, self.reporter));
        for (_, process) in self.living.into_values() {
            process.terminate(SHUTDOWN_GRACE);
            process.gone().await;
        }
    }
}

impl Processes {
    /// The number of a process, and what is retained of its output.
    pub fn look_at(&self, name: &ProcessId) -> Option<(u32, Retained)> {
        let (_, process) = self.living.get(self.named.get(name)?)?;
        Some((process.pid(), process.retains()))
    }

    fn start(&mut self, ticket: Ticket, start: StartProcess) -> Option<ProcessAnswer> {
        if self.named.contains_key(&start.process) || self.held.contains_key(&start.process) {
            return Some((ticket, Err(ProcessRefusal::ProcessExists(start.process))));
        }
        if self.living.len() >= MAX_PROCESSES {
            return Some((ticket, Err(ProcessRefusal::TooManyProcesses { limit: MAX_PROCESSES })));
        }
        if let Some((_, process)) = self.ending.get(&start.process).and_then(|old| self.living.get(old)) {
            process.terminate(Duration::ZERO);
            self.held.insert(start.process.clone(), (ticket, start));
            return None;
        }
        Some((ticket, self.spawn(start)))
    }

    fn spawn(&mut self, start: StartProcess) -> Result<ProcessReply, ProcessRefusal> {
        let instance = ProcessNumber(self.number());
        let process = spawn(&start, instance, self.reporter.clone()).map_err(spawn_refusal)?;
        self.named.insert(start.process.clone(), instance);
        self.living.insert(instance, (start.process, process));
        Ok(ProcessReply::ProcessStarted)
    }

    fn write(&mut self, ticket: Ticket, name: ProcessId, bytes: Vec<u8>) -> Option<ProcessAnswer> {
        let id = WriteId(self.number());
        let Some((_, process)) = self.named.get(&name).and_then(|instance| self.living.get(instance)) else {
            return Some((ticket, Err(ProcessRefusal::UnknownProcess(name))));
        };
        let answer = match process.write(id, bytes) {
            Ok(Written::Accepted) => Ok(ProcessReply::WriteAccepted),
            Ok(Written::Waiting) => {
                self.writes.insert(id, (ticket, name));
                return None;
            }
            Err(WriteError::Closed) => Err(ProcessRefusal::StdinClosed(name)),
            Err(WriteError::Gone) => Err(ProcessRefusal::StdinGone(name)),
            Err(WriteError::TooManyBytes) => {
                Err(ProcessRefusal::StdinFull { process: name, limit: STDIN_BACKLOG_BYTES, what: "bytes" })
            }
            Err(WriteError::TooManyWrites) => {
                Err(ProcessRefusal::StdinFull { process: name, limit: STDIN_BACKLOG_WRITES, what: "writes" })
            }
        };
        Some((ticket, answer))
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

    fn on_report(&mut self, report: ProcessReport) -> Option<ProcessUpdate> {
        let ProcessReport { instance, news } = report;
        match news {
            ProcessNews::Output { stream, bytes } => {
                let (process, _) = self.living.get(&instance)?;
                Some(Update::Event(ProcessEvent::ProcessOutput { process: process.clone(), stream, bytes }))
            }
            ProcessNews::WriteAccepted(id) => {
                let (ticket, _) = self.writes.remove(&id)?;
                Some(Update::Answer(ticket, Ok(ProcessReply::WriteAccepted)))
            }
            ProcessNews::WriteLost(id) => {
                let (ticket, process) = self.writes.remove(&id)?;
                Some(Update::Answer(ticket, Err(ProcessRefusal::StdinGone(process))))
            }
            ProcessNews::Exited(ending) => {
                let (process, _) = self.living.remove(&instance)?;
                // A process that was terminated has lost its name already.
                if self.ending.remove(&process).is_none() {
                    self.named.remove(&process);
                }
                self.released = self.held.remove(&process);
                Some(Update::Event(ProcessEvent::ProcessExited { process, ending }))
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

/// The refusal that tells a client of `error`.
pub fn spawn_refusal(error: SpawnError) -> ProcessRefusal {
    let (attempt, reason) = match &error {
        SpawnError::RelativeFolder(folder) => {
            return ProcessRefusal::RelativeFolder(folder.display().to_string());
        }
        SpawnError::NulByte(_) => ("start the process".to_owned(), error.to_string()),
        SpawnError::Folder { folder, errno } => {
            (format!("enter working folder {folder:?}"), errno.to_string())
        }
        SpawnError::Program { program, errno } => (format!("run {program:?}"), errno.to_string()),
        SpawnError::System { attempt, errno } => ((*attempt).to_owned(), errno.to_string()),
    };
    ProcessRefusal::CannotStart { attempt, reason }
}
