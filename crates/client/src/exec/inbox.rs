//! What one process said and its handle has not taken yet: a queue bounded by bytes.
//!
//! The connection's task puts in, the one handle takes out; each side waits for the other. Knows
//! nothing of the wire.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_doors::exec::ExecOutputStream;
use tokio::sync::Notify;

use super::ExecServerError;

/// How much output of one process is kept for a handle that does not take it.
///
/// A few chunks would be correct; this much lets a server that bursts run on while its reader is
/// busy, and is small enough for dozens of processes.
pub const OUTPUT_BACKLOG_BYTES: usize = 8 << 20;

/// What a chunk costs on top of its bytes. Without it a process that writes single bytes would fill
/// many times the backlog's size with bookkeeping.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// A piece of a process's output. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Where the process wrote it to.
    pub stream: ExecOutputStream,
    /// What it wrote. Where a piece ends means nothing, and may be inside a letter.
    pub bytes: Vec<u8>,
}

impl ExecOutput {
    fn cost(&self) -> usize {
        self.bytes.len() + CHUNK_OVERHEAD_BYTES
    }
}

/// How a process's story ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Exited(i32),
    /// The connection ended first.
    Lost(ExecServerError),
}

#[derive(Debug)]
pub(super) struct Inbox {
    /// The name of the process whose output this is.
    pub(super) process_id: String,
    /// A plain mutex: it is held for a queue operation and never across an `await`.
    state: Mutex<State>,
    /// Something to take. One permit is enough, since there is one handle.
    arrived: Notify,
    /// Something was taken. One permit is enough, since there is one task that puts in.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    backlog: VecDeque<ExecOutput>,
    cost: usize,
    ending: Option<Ending>,
    /// Whether more output is of no use: the handle is gone, or a terminate cut it off.
    deaf: bool,
    /// How many terminate calls wait for their answer.
    terminating: usize,
}

impl Inbox {
    pub(super) fn new(process_id: String) -> Self {
        Self { process_id, state: Mutex::default(), arrived: Notify::new(), room: Notify::new() }
    }

    /// Puts `output` in, or gives it back if there is no room.
    pub(super) fn offer(&self, output: ExecOutput) -> Result<(), ExecOutput> {
        let mut state = self.state();
        // An empty chunk tells nothing, and in a queue counted by bytes it would be free.
        if state.deaf || output.bytes.is_empty() {
            return Ok(());
        }
        let cost = state.cost + output.cost();
        // A chunk over the limit is taken alone, or it would never be taken.
        if cost > OUTPUT_BACKLOG_BYTES && !state.backlog.is_empty() {
            if state.terminating == 0 {
                return Err(output);
            }
            // The answer to the terminate is behind this chunk, and its caller cannot make room:
            // waiting would be forever. What is kept stays a prefix of what the process wrote.
            state.deaf = true;
            return Ok(());
        }
        state.cost = cost;
        state.backlog.push_back(output);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Puts `output` in, once there is room.
    pub(super) async fn push(&self, mut output: ExecOutput) {
        while let Err(back) = self.offer(output) {
            output = back;
            self.room.notified().await;
        }
    }

    /// The first ending is the one that counts.
    pub(super) fn end(&self, ending: Ending) {
        self.state().ending.get_or_insert(ending);
        self.arrived.notify_one();
    }

    /// The next output, or how the story ended. Cancel safe: what it takes, it returns.
    pub(super) async fn next(&self) -> Result<Option<ExecOutput>, ExecServerError> {
        // A server that is as fast as its reader would otherwise keep this task from ever yielding.
        tokio::task::coop::consume_budget().await;
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.arrived.notified().await;
        }
    }

    fn take(&self) -> Option<Result<Option<ExecOutput>, ExecServerError>> {
        let mut state = self.state();
        let Some(output) = state.backlog.pop_front() else {
            return state.ending.clone().map(|ending| match ending {
                Ending::Exited(_) => Ok(None),
                Ending::Lost(error) => Err(error),
            });
        };
        state.cost -= output.cost();
        drop(state);
        self.room.notify_one();
        Some(Ok(Some(output)))
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.state().ending.clone()
    }

    /// The handle is gone: forgets the backlog and lets the task go on.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.deaf = true;
        state.cost = 0;
        let backlog = std::mem::take(&mut state.backlog);
        drop(state);
        drop(backlog);
        self.room.notify_one();
    }

    /// Until the result is dropped, output that finds no room is cut off instead of waiting.
    pub(super) fn terminating(&self) -> Terminating<'_> {
        self.state().terminating += 1;
        self.room.notify_one();
        Terminating(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A terminate call that waits for its answer.
#[derive(Debug)]
pub(super) struct Terminating<'a>(&'a Inbox);

impl Drop for Terminating<'_> {
    fn drop(&mut self) {
        self.0.state().terminating -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes: usize) -> ExecOutput {
        ExecOutput { stream: ExecOutputStream::Stdout, bytes: vec![b'x'; bytes] }
    }

    #[test]
    fn a_chunk_over_the_limit_is_taken_alone() {
        let inbox = Inbox::new("p".to_owned());
        assert!(inbox.offer(output(OUTPUT_BACKLOG_BYTES + 1)).is_ok());
        assert!(inbox.offer(output(1)).is_err());
        assert!(inbox.take().is_some());
        assert!(inbox.offer(output(1)).is_ok());
    }

    #[test]
    fn single_bytes_cost_more_than_a_byte() {
        let inbox = Inbox::new("p".to_owned());
        let taken = (0..OUTPUT_BACKLOG_BYTES).take_while(|_| inbox.offer(output(1)).is_ok()).count();
        assert_eq!(taken, OUTPUT_BACKLOG_BYTES / (1 + CHUNK_OVERHEAD_BYTES));
    }

    #[test]
    fn empty_chunks_are_not_kept() {
        let inbox = Inbox::new("p".to_owned());
        assert!(inbox.offer(output(0)).is_ok());
        assert!(inbox.take().is_none());
    }

    #[test]
    fn what_a_terminate_leaves_is_a_prefix() {
        let inbox = Inbox::new("p".to_owned());
        assert!(inbox.offer(output(OUTPUT_BACKLOG_BYTES)).is_ok());
        let terminating = inbox.terminating();
        assert!(inbox.offer(output(7)).is_ok(), "cut off");
        drop(terminating);
        assert!(matches!(inbox.take(), Some(Ok(Some(kept))) if kept.bytes.len() == OUTPUT_BACKLOG_BYTES));
        assert!(inbox.offer(output(8)).is_ok());
        assert!(inbox.take().is_none(), "nothing follows the cut");
    }

    #[test]
    fn the_first_ending_counts() {
        let inbox = Inbox::new("p".to_owned());
        inbox.end(Ending::Exited(3));
        inbox.end(Ending::Lost(ExecServerError::CLOSED));
        assert!(matches!(inbox.ending(), Some(Ending::Exited(3))));
    }
}
