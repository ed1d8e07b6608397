//! Processes whose events are numbered, and whose last output can be read again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{
    ExecutorEvent, ExecutorRefusal, ExecutorReply, OutputPage, OutputStream, ProcessExit, ProcessId,
    ProcessRefusal, ReadOutput, SequencedChunk, StartProcess, StartSequenced, Ticket, Update, WriteOutcome,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ExecutorUpdate;
use super::denial::is_denied;
use super::environment::variables;
use super::intent::sandbox;
use crate::{
    ChildEvent, MAX_PROCESSES, Process, ProcessNumber, ProcessReport, SHUTDOWN_GRACE, STDIN_BACKLOG_WRITES,
    SpawnError, TERMINATE_GRACE, WriteError, WriteId, WriteStatus, spawn_refusal, spawn_sequenced_in,
};

/// How many of the last output bytes of a process can be read again. Whole chunks are dropped.
pub const RETAINED_CHUNK_BYTES: usize = 1 << 20;

/// How many of the last chunks of a process can be read again.
pub const RETAINED_CHUNKS: usize = 16_384;

/// How long the id and the output of a process are kept after its last event.
pub const KEPT_PROCESS_TIME: Duration = Duration::from_secs(30);

/// How many processes are kept after their last events; the oldest goes first.
pub const MAX_KEPT_PROCESSES: usize = 64;

/// How many of the last ids of writes are remembered for each process.
pub const WRITE_IDS: usize = 4096;

/// How long a read waits at most.
pub const MAX_READ_WAIT: Duration = Duration::from_secs(3600);

/// How many reads may wait; more are answered at once.
pub const MAX_WAITING_READS: usize = 1024;

/// The size of the channel of reports. Small, because each may hold a large piece of output.
const REPORT_QUEUE: usize = 8;

/// The processes of one connection that have numbered events.
#[derive(Debug)]
pub(super) struct SequencedProcesses {
    by_id: HashMap<ProcessId, Entry>,
    /// The ids of processes whose last event was not reported yet.
    living: HashMap<ProcessNumber, ProcessId>,
    /// Processes whose last event was reported, with the time when they are forgotten, oldest first.
    kept: VecDeque<(Instant, ProcessId)>,
    waiting_reads: Vec<(Ticket, ReadOutput, Instant)>,
    waiting_writes: HashMap<WriteId, Ticket>,
    updates: VecDeque<ExecutorUpdate>,
    last_number: u64,
    reports: mpsc::Receiver<ProcessReport>,
    reporter: mpsc::Sender<ProcessReport>,
}

impl Default for SequencedProcesses {
    fn default() -> Self {
        let (reporter, reports) = mpsc::channel(REPORT_QUEUE);
        Self {
            by_id: HashMap::new(),
            living: HashMap::new(),
            kept: VecDeque::new(),
            waiting_reads: Vec::new(),
            waiting_writes: HashMap::new(),
            updates: VecDeque::new(),
            last_number: 0,
            reports,
            reporter,
        }
    }
}

type Answer = Result<ExecutorReply, ExecutorRefusal>;

impl SequencedProcesses {
    pub(super) fn start(&mut self, request: StartSequenced) -> Answer {
        self.forget_expired();
        let StartSequenced { start, inherit, intent, origin: _ } = request;
        if self.by_id.contains_key(&start.process) {
            return Err(ProcessRefusal::ProcessExists(start.process).into());
        }
        if self.living.len() >= MAX_PROCESSES {
            return Err(ProcessRefusal::TooManyProcesses { limit: MAX_PROCESSES }.into());
        }
        let number = ProcessNumber(self.new_number());
        let start = StartProcess { env: variables(inherit, start.env), ..start };
        let sandbox = intent.as_ref().map(sandbox).transpose()?;
        let process = spawn_sequenced_in(sandbox.as_ref(), &start, number, self.reporter.clone());
        let process = process.map_err(|error| {
            if let SpawnError::Sandbox(reason) = error {
                ExecutorRefusal::NoSandbox(reason)
            } else {
                spawn_refusal(error).into()
            }
        })?;
        self.living.insert(number, start.process.clone());
        let entry = Entry { is_sandboxed: sandbox.is_some(), ..Entry::new(Some(process)) };
        self.by_id.insert(start.process, entry);
        Ok(ExecutorReply::SequencedStarted { is_sandboxed: sandbox.is_some() })
    }

    pub(super) fn write(
        &mut self,
        ticket: Ticket,
        id: ProcessId,
        write_id: String,
        bytes: Vec<u8>,
    ) -> Option<Answer> {
        self.forget_expired();
        let write = WriteId(self.new_number());
        let Some(entry) = self.by_id.get_mut(&id) else {
            return Some(Ok(ExecutorReply::Write(WriteOutcome::UnknownProcess)));
        };
        let accepted = Some(Ok(ExecutorReply::Write(WriteOutcome::Accepted)));
        let Some(process) = &entry.process else { return accepted };
        if entry.write_ids.contains(&write_id) {
            return accepted;
        }
        let full = |limit, what| Some(Err(ProcessRefusal::StdinFull { process: id, limit, what }.into()));
        let answer = match process.write(write, bytes) {
            Ok(WriteStatus::Accepted) => accepted,
            Ok(WriteStatus::Waiting) => {
                self.waiting_writes.insert(write, ticket);
                None
            }
            Err(WriteError::Gone) => return accepted,
            Err(WriteError::Closed) => return Some(Ok(ExecutorReply::Write(WriteOutcome::StdinClosed))),
            Err(WriteError::TooManyBytes { limit }) => return full(limit, "bytes"),
            Err(WriteError::TooManyWrites) => return full(STDIN_BACKLOG_WRITES, "writes"),
        };
        entry.remember_write(write_id);
        answer
    }

    pub(super) fn interrupt(&self, id: &ProcessId) {
        if let Some(process) = self.by_id.get(id).and_then(|entry| entry.process.as_ref()) {
            process.interrupt();
        }
    }

    /// Ends a process. Returns whether it was alive.
    pub(super) fn end(&self, id: &ProcessId) -> bool {
        let process = self.by_id.get(id).and_then(|entry| entry.process.as_ref());
        process.is_some_and(|process| process.terminate(TERMINATE_GRACE))
    }

    pub(super) fn read(&mut self, ticket: Ticket, read: ReadOutput) -> Option<Answer> {
        self.forget_expired();
        let Some(entry) = self.by_id.get(&read.process) else {
            return Some(Err(ProcessRefusal::UnknownProcess(read.process).into()));
        };
        let may_wait = !read.wait.is_zero() && self.waiting_reads.len() < MAX_WAITING_READS;
        if may_wait && !entry.has_news(read.after) {
            let deadline = Instant::now() + read.wait.min(MAX_READ_WAIT);
            self.waiting_reads.push((ticket, read, deadline));
            return None;
        }
        Some(Ok(ExecutorReply::Output(entry.page(&read))))
    }

    /// Drops the waiting reads.
    pub(super) fn forget_reads(&mut self) {
        self.waiting_reads.clear();
    }

    pub(super) fn take_update(&mut self) -> Option<ExecutorUpdate> {
        self.updates.pop_front()
    }

    pub(super) fn has_living(&self) -> bool {
        !self.living.is_empty()
    }

    /// When [`on_timer`](Self::on_timer) has something to do.
    pub(super) fn timer(&self) -> Option<Instant> {
        let reads = self.waiting_reads.iter().map(|(_, _, deadline)| *deadline);
        reads.chain(self.kept.front().map(|(expiry, _)| *expiry)).min()
    }

    pub(super) fn on_timer(&mut self) {
        let now = Instant::now();
        self.answer_reads(|entry, read, deadline| deadline <= now || entry.has_news(read.after));
        self.forget_expired();
    }

    /// Waits for a report and turns it into updates. Cancel safe.
    pub(super) async fn advance(&mut self) {
        // The channel cannot close, since `self` has a sender.
        let Some(ProcessReport { process: number, event }) = self.reports.recv().await else { return };
        let accepted = ExecutorReply::Write(WriteOutcome::Accepted);
        match event {
            ChildEvent::WriteAccepted(write) | ChildEvent::WriteLost(write) => {
                let ticket = self.waiting_writes.remove(&write);
                self.updates.extend(ticket.map(|ticket| Update::Answer(ticket, Ok(accepted))));
                return;
            }
            ChildEvent::Output { stream, bytes } => {
                self.report(number, |process, entry, seq| {
                    let chunk = entry.retain(seq, stream, bytes);
                    ExecutorEvent::SequencedOutput { process, chunk }
                });
            }
            ChildEvent::LeaderExited(ending) => self.report(number, |process, entry, seq| {
                entry.ending = Some(ending);
                // What the process itself wrote was reported before its exit.
                entry.is_denied = entry.is_sandboxed && is_denied(ending, &entry.chunks);
                ExecutorEvent::SequencedExited { process, seq, ending, is_denied: entry.is_denied }
            }),
            ChildEvent::Exited(_) => {
                self.report(number, |process, entry, seq| {
                    entry.process = None;
                    entry.write_ids = VecDeque::new();
                    ExecutorEvent::SequencedClosed { process, seq }
                });
                if let Some(id) = self.living.remove(&number) {
                    self.kept.push_back((Instant::now() + KEPT_PROCESS_TIME, id));
                }
            }
        }
        self.answer_reads(|entry, read, _| entry.has_news(read.after));
        self.forget_expired();
    }

    fn report(
        &mut self,
        number: ProcessNumber,
        event: impl FnOnce(ProcessId, &mut Entry, u64) -> ExecutorEvent,
    ) {
        let Some(id) = self.living.get(&number) else { return };
        let Some(entry) = self.by_id.get_mut(id) else { return };
        let seq = entry.next_seq;
        entry.next_seq += 1;
        self.updates.push_back(Update::Event(event(id.clone(), entry, seq)));
    }

    /// Answers the waiting reads for which `is_due`, and those whose process is forgotten.
    fn answer_reads(&mut self, is_due: impl Fn(&Entry, &ReadOutput, Instant) -> bool) {
        let Self { by_id, waiting_reads, updates, .. } = self;
        waiting_reads.retain(|(ticket, read, deadline)| {
            let answer = match by_id.get(&read.process) {
                Some(entry) if !is_due(entry, read, *deadline) => return true,
                Some(entry) => Ok(ExecutorReply::Output(entry.page(read))),
                None => Err(ProcessRefusal::UnknownProcess(read.process.clone()).into()),
            };
            updates.push_back(Update::Answer(*ticket, answer));
            false
        });
    }

    fn forget_expired(&mut self) {
        let now = Instant::now();
        while self
            .kept
            .front()
            .is_some_and(|(expiry, _)| *expiry <= now || self.kept.len() > MAX_KEPT_PROCESSES)
        {
            if let Some((_, id)) = self.kept.pop_front() {
                self.by_id.remove(&id);
            }
        }
    }

    pub(super) fn end_all(&self) {
        for process in self.by_id.values().filter_map(|entry| entry.process.as_ref()) {
            process.terminate(SHUTDOWN_GRACE);
        }
    }

    /// Waits until all processes have ended.
    pub(super) async fn closed(self) {
        drop((self.reports, self.reporter));
        for process in self.by_id.into_values().filter_map(|entry| entry.process) {
            process.gone().await;
        }
    }

    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// A process, or what is kept of it.
#[derive(Debug)]
struct Entry {
    /// `None` after the last event.
    process: Option<Process>,
    is_sandboxed: bool,
    next_seq: u64,
    ending: Option<ProcessExit>,
    /// Whether the sandbox probably made the process fail.
    is_denied: bool,
    chunks: VecDeque<SequencedChunk>,
    /// The size of all `chunks`.
    chunk_bytes: usize,
    write_ids: VecDeque<String>,
}

impl Entry {
    fn new(process: Option<Process>) -> Self {
        Self {
            process,
            is_sandboxed: false,
            next_seq: 1,
            ending: None,
            is_denied: false,
            chunks: VecDeque::new(),
            chunk_bytes: 0,
            write_ids: VecDeque::new(),
        }
    }

    fn retain(&mut self, seq: u64, stream: OutputStream, mut bytes: Vec<u8>) -> SequencedChunk {
        // The reader allocates for a large piece, and most pieces are small.
        if bytes.len() < bytes.capacity() / 2 {
            bytes.shrink_to_fit();
        }
        let chunk = SequencedChunk { seq, stream, bytes: Arc::new(bytes) };
        self.chunk_bytes += chunk.bytes.len();
        self.chunks.push_back(chunk.clone());
        while self.chunk_bytes > RETAINED_CHUNK_BYTES || self.chunks.len() > RETAINED_CHUNKS {
            let Some(oldest) = self.chunks.pop_front() else { break };
            self.chunk_bytes -= oldest.bytes.len();
        }
        chunk
    }

    fn remember_write(&mut self, write_id: String) {
        self.write_ids.push_back(write_id);
        if self.write_ids.len() > WRITE_IDS {
            self.write_ids.pop_front();
        }
    }

    fn is_closed(&self) -> bool {
        self.process.is_none()
    }

    /// Whether a read of what comes after the number `after` need not wait.
    fn has_news(&self, after: u64) -> bool {
        let has_chunk = self.chunks.back().is_some_and(|chunk| chunk.seq > after);
        // The number of the exit is below `next_seq`.
        has_chunk || self.is_closed() || (self.ending.is_some() && after < self.next_seq - 1)
    }

    fn page(&self, read: &ReadOutput) -> OutputPage {
        let mut room = read.max_bytes.unwrap_or(u64::MAX);
        let mut chunks: Vec<SequencedChunk> = Vec::new();
        for chunk in self.chunks.iter().skip_while(|chunk| chunk.seq <= read.after) {
            let size = chunk.bytes.len() as u64;
            if size > room && !chunks.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            chunks.push(chunk.clone());
        }
        let next_seq = match (read.max_bytes, chunks.last()) {
            (Some(_), Some(last)) => last.seq + 1,
            _ => self.next_seq,
        };
        let (ending, is_closed, is_denied) = (self.ending, self.is_closed(), self.is_denied);
        OutputPage { chunks, next_seq, ending, is_closed, is_denied }
    }
}

#[cfg(test)]
mod tests;
