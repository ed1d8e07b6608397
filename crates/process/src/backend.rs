//! The process backend: the processes of one connection, under the ids that its client chose.
//!
//! An id is free again after its process was reported as exited, or after the client terminated it. In the second case the
//! old process may still be ending; then a new process with the same id starts only after the old one's last event, so
//! that the client cannot confuse the two.

use std::collections::HashMap;
use std::time::Duration;

use crate::{
    ChildEvent, Process, ProcessNumber, ProcessReport, RetainedOutput, STDIN_BACKLOG_WRITES, SpawnError,
    TERMINATE_GRACE, WriteError, WriteId, WriteStatus, spawn,
};
use parlor_vocab::{
    Answer, Backend, ProcessEvent, ProcessId, ProcessRefusal, ProcessReply, ProcessRequest, StartProcess,
    Ticket, Update, UpdateOf,
};
use tokio::sync::mpsc;

/// How many processes one connection may have at a time, including those that are ending.
pub const MAX_PROCESSES: usize = 1024;

/// How long process groups may take to end after their connection closed, before SIGKILL. Shorter than the second that
/// the transport waits for a closed connection's backend (`SHUTDOWN_WAIT`): after that nobody is left to send SIGKILL.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// The size of the channel of reports. Small, because each may hold a large piece of output.
const REPORT_QUEUE: usize = 8;

/// The processes of one connection.
#[derive(Debug)]
pub struct Processes {
    /// The processes that the client can use.
    by_id: HashMap<ProcessId, ProcessNumber>,
    /// Terminated processes that have not exited yet, by the id they had.
    ending: HashMap<ProcessId, ProcessNumber>,
    /// All processes that have not been reported as exited.
    living: HashMap<ProcessNumber, (ProcessId, Process)>,
    /// Starts that wait for the old process with the same id to exit.
    waiting_starts: HashMap<ProcessId, (Ticket, StartProcess)>,
    /// A start that no longer has to wait.
    ready_start: Option<(Ticket, StartProcess)>,
    /// Writes that the process has not accepted yet.
    waiting_writes: HashMap<WriteId, (Ticket, ProcessId)>,
    last_number: u64,
    is_closing: bool,
    reports: mpsc::Receiver<ProcessReport>,
    reporter: mpsc::Sender<ProcessReport>,
}

type ProcessUpdate = UpdateOf<Processes>;
type ProcessAnswer = Answer<ProcessReply, ProcessRefusal>;

impl Default for Processes {
    fn default() -> Self {
        let (reporter, reports) = mpsc::channel(REPORT_QUEUE);
        Self {
            by_id: HashMap::new(),
            ending: HashMap::new(),
            living: HashMap::new(),
            waiting_starts: HashMap::new(),
            ready_start: None,
            waiting_writes: HashMap::new(),
            last_number: 0,
            is_closing: false,
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
        if let Some((ticket, start)) = self.ready_start.take() {
            return Some(Update::Answer(ticket, self.spawn(start)));
        }
        while !(self.is_closing && self.living.is_empty()) {
            // The channel cannot close, since `self` has a sender.
            let report = self.reports.recv().await?;
            if let Some(update) = self.on_report(report) {
                return Some(update);
            }
        }
        None
    }

    fn begin_close(&mut self) {
        self.is_closing = true;
        self.waiting_starts.clear();
        self.ready_start = None;
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
    /// The pid and the retained output of a process.
    pub fn pid_and_output(&self, id: &ProcessId) -> Option<(u32, RetainedOutput)> {
        let (_, process) = self.living.get(self.by_id.get(id)?)?;
        Some((process.pid(), process.retained_output()))
    }

    fn start(&mut self, ticket: Ticket, start: StartProcess) -> Option<ProcessAnswer> {
        if self.by_id.contains_key(&start.process) || self.waiting_starts.contains_key(&start.process) {
            return Some((ticket, Err(ProcessRefusal::ProcessExists(start.process))));
        }
        if self.living.len() >= MAX_PROCESSES {
            return Some((ticket, Err(ProcessRefusal::TooManyProcesses { limit: MAX_PROCESSES })));
        }
        if let Some((_, process)) = self.ending.get(&start.process).and_then(|old| self.living.get(old)) {
            process.terminate(Duration::ZERO);
            self.waiting_starts.insert(start.process.clone(), (ticket, start));
            return None;
        }
        Some((ticket, self.spawn(start)))
    }

    fn spawn(&mut self, start: StartProcess) -> Result<ProcessReply, ProcessRefusal> {
        let number = ProcessNumber(self.new_number());
        let process = spawn(&start, number, self.reporter.clone()).map_err(spawn_refusal)?;
        self.by_id.insert(start.process.clone(), number);
        self.living.insert(number, (start.process, process));
        Ok(ProcessReply::ProcessStarted)
    }

    fn write(&mut self, ticket: Ticket, id: ProcessId, bytes: Vec<u8>) -> Option<ProcessAnswer> {
        let write = WriteId(self.new_number());
        let Some((_, process)) = self.by_id.get(&id).and_then(|number| self.living.get(number)) else {
            return Some((ticket, Err(ProcessRefusal::UnknownProcess(id))));
        };
        let answer = match process.write(write, bytes) {
            Ok(WriteStatus::Accepted) => Ok(ProcessReply::WriteAccepted),
            Ok(WriteStatus::Waiting) => {
                self.waiting_writes.insert(write, (ticket, id));
                return None;
            }
            Err(WriteError::Closed) => Err(ProcessRefusal::StdinClosed(id)),
            Err(WriteError::Gone) => Err(ProcessRefusal::StdinGone(id)),
            Err(WriteError::TooManyBytes { limit }) => {
                Err(ProcessRefusal::StdinFull { process: id, limit, what: "bytes" })
            }
            Err(WriteError::TooManyWrites) => {
                Err(ProcessRefusal::StdinFull { process: id, limit: STDIN_BACKLOG_WRITES, what: "writes" })
            }
        };
        Some((ticket, answer))
    }

    fn terminate(&mut self, id: &ProcessId) -> bool {
        let Some(&number) = self.by_id.get(id) else { return false };
        let Some((_, process)) = self.living.get(&number) else { return false };
        let was_running = process.terminate(TERMINATE_GRACE);
        // The id is free now, even if the process had exited and only its last events are missing.
        self.by_id.remove(id);
        self.ending.insert(id.clone(), number);
        was_running
    }

    fn on_report(&mut self, report: ProcessReport) -> Option<ProcessUpdate> {
        let ProcessReport { process: number, event } = report;
        match event {
            ChildEvent::Output { stream, bytes } => {
                let (process, _) = self.living.get(&number)?;
                Some(Update::Event(ProcessEvent::ProcessOutput { process: process.clone(), stream, bytes }))
            }
            ChildEvent::WriteAccepted(write) => {
                let (ticket, _) = self.waiting_writes.remove(&write)?;
                Some(Update::Answer(ticket, Ok(ProcessReply::WriteAccepted)))
            }
            ChildEvent::WriteLost(write) => {
                let (ticket, process) = self.waiting_writes.remove(&write)?;
                Some(Update::Answer(ticket, Err(ProcessRefusal::StdinGone(process))))
            }
            // Only sequenced processes report it.
            ChildEvent::LeaderExited(_) => None,
            ChildEvent::Exited(ending) => {
                let (process, _) = self.living.remove(&number)?;
                // A terminated process is no longer in `by_id`.
                if self.ending.remove(&process).is_none() {
                    self.by_id.remove(&process);
                }
                self.ready_start = self.waiting_starts.remove(&process);
                Some(Update::Event(ProcessEvent::ProcessExited { process, ending }))
            }
        }
    }

    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// Translates an error for the client.
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
        SpawnError::Sandbox(reason) => ("set up the sandbox".to_owned(), reason.clone()),
        SpawnError::System { attempt, errno } => ((*attempt).to_owned(), errno.to_string()),
    };
    ProcessRefusal::CannotStart { attempt, reason }
}
