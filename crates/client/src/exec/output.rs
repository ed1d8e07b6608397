//! The output of one process that its handle has not taken yet, and how the process ended.

use parlor_doors::exec::ExecOutputStream;

use super::ExecServerError;
use crate::child::backlog::{Backlog, DropOverflow};

/// How much output of one process is kept for a handle that does not take it.
///
/// A few chunks would be correct; this size lets a server write a burst while its reader is busy, and is small enough for
/// dozens of processes.
pub const OUTPUT_BACKLOG_BYTES: usize = 8 << 20;

/// What a chunk costs on top of its bytes. Without it, a process that writes single bytes would use many times the
/// backlog's size for bookkeeping.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// A piece of a process's output. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// The stream that the process wrote to.
    pub stream: ExecOutputStream,
    /// The bytes. A piece may end anywhere, even inside of a character.
    pub bytes: Vec<u8>,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub(super) enum ProcessEnd {
    /// The server has reported this exit code.
    Exited(i32),
    /// The connection ended first.
    Lost(ExecServerError),
}

#[derive(Debug)]
pub(super) struct ProcessOutput {
    pub(super) process_id: String,
    backlog: Backlog<ExecOutput, Option<ProcessEnd>>,
}

impl ProcessOutput {
    pub(super) fn new(process_id: String) -> Self {
        Self { process_id, backlog: Backlog::new(OUTPUT_BACKLOG_BYTES) }
    }

    /// Puts `output` in, or returns it if there is no room.
    pub(super) fn try_push(&self, output: ExecOutput) -> Result<(), ExecOutput> {
        // An empty chunk means nothing to a reader.
        if output.bytes.is_empty() {
            return Ok(());
        }
        let cost = cost(&output);
        self.backlog.try_push(output, cost)
    }

    /// Puts `output` in once there is room.
    pub(super) async fn push(&self, output: ExecOutput) {
        let cost = cost(&output);
        self.backlog.push(output, cost).await;
    }

    /// Notes how the process ended. Only the first end counts.
    pub(super) fn end(&self, end: ProcessEnd) {
        self.backlog.set_status(|status| {
            status.get_or_insert(end);
        });
    }

    /// The next output, or how the process ended. Cancel safe.
    pub(super) async fn next(&self) -> Result<Option<ExecOutput>, ExecServerError> {
        // Without this, a server that is as fast as its reader would keep the reader's task from ever yielding.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.backlog.take(Option::clone) {
                Ok(output) => return Ok(Some(output)),
                Err(Some(ProcessEnd::Exited(_))) => return Ok(None),
                Err(Some(ProcessEnd::Lost(error))) => return Err(error),
                Err(None) => self.backlog.arrived().await,
            }
        }
    }

    pub(super) fn process_end(&self) -> Option<ProcessEnd> {
        self.backlog.status(Option::clone)
    }

    /// Drops all output, because the handle is gone.
    pub(super) fn abandon(&self) {
        self.backlog.abandon();
    }

    /// Drops output that does not fit until the guard is dropped: the answer to a `terminate` comes after the output.
    pub(super) fn drop_overflow(&self) -> DropOverflow<'_, ExecOutput, Option<ProcessEnd>> {
        self.backlog.drop_overflow()
    }
}

fn cost(output: &ExecOutput) -> usize {
    output.bytes.len() + CHUNK_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes: usize) -> ExecOutput {
        ExecOutput { stream: ExecOutputStream::Stdout, bytes: vec![b'x'; bytes] }
    }

    #[test]
    fn single_bytes_cost_more_than_a_byte() {
        let process = ProcessOutput::new("p".to_owned());
        let accepted = (0..OUTPUT_BACKLOG_BYTES).take_while(|_| process.try_push(output(1)).is_ok()).count();
        assert_eq!(accepted, OUTPUT_BACKLOG_BYTES / (1 + CHUNK_OVERHEAD_BYTES));
    }

    #[test]
    fn empty_chunks_are_dropped() {
        let process = ProcessOutput::new("p".to_owned());
        assert!(process.try_push(output(0)).is_ok());
        assert!(process.backlog.take(|_| ()).is_err());
    }

    #[test]
    fn only_the_first_end_counts() {
        let process = ProcessOutput::new("p".to_owned());
        process.end(ProcessEnd::Exited(3));
        process.end(ProcessEnd::Lost(ExecServerError::CLOSED));
        assert!(matches!(process.process_end(), Some(ProcessEnd::Exited(3))));
    }
}
