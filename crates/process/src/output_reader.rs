//! Reads one output stream of a process, when there is output and the consumer has room for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_vocab::OutputStream;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::async_fd::RegisteredFd;
use crate::tail::Tail;
use crate::{
    BULK_PIECE_BYTES, ChildEvent, DRAIN_BYTES, DRAIN_SILENCE, DRAIN_WAIT, HURRY_SILENCE, OUTPUT_PIECE_BYTES,
    ProcessNumber, ProcessReport,
};

/// Reads an open output stream.
pub(crate) struct OutputReader {
    fd: RegisteredFd,
    stream: OutputStream,
    tail: Arc<Mutex<Tail>>,
    /// The size of one read.
    read_bytes: usize,
    /// Bytes read since the exit of the child.
    drained_bytes: usize,
    /// Time waited since the exit of the child.
    waited: Duration,
}

/// Whether more output can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    Ended,
}

/// What is known of the child while its output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The child is alive.
    Live,
    /// The child was told to end and has exited; others in its group have time until the deadline.
    Ending,
    /// The child has exited by itself. Others may keep the stream open forever, so limits apply.
    Draining,
    /// The child has exited and its group was killed. What they wrote can be read without waiting, so the limits are
    /// short.
    Killed,
}

impl Phase {
    /// How long to wait for output, each time and in all; `None` without limit.
    fn wait_limits(self) -> Option<(Duration, Duration)> {
        match self {
            Self::Live | Self::Ending => None,
            Self::Draining => Some((DRAIN_SILENCE, DRAIN_WAIT)),
            Self::Killed => Some((HURRY_SILENCE, HURRY_SILENCE)),
        }
    }
}

impl OutputReader {
    pub(crate) fn new(fd: RegisteredFd, stream: OutputStream, tail: Arc<Mutex<Tail>>) -> Self {
        Self { fd, stream, tail, read_bytes: OUTPUT_PIECE_BYTES, drained_bytes: 0, waited: Duration::ZERO }
    }

    /// Forwards one piece of output. Cancel safe: everything that was read has been sent.
    pub(crate) async fn forward(
        &mut self,
        phase: Phase,
        process: ProcessNumber,
        to: &mpsc::Sender<ProcessReport>,
    ) -> Flow {
        loop {
            let before = Instant::now();
            let limits = phase.wait_limits();
            let readable = match limits {
                None => self.fd.readable().await,
                Some((silence, _)) => match timeout(silence, self.fd.readable()).await {
                    Ok(readable) => readable,
                    Err(_) => return Flow::Ended,
                },
            };
            let Ok(mut ready) = readable else { return Flow::Ended };
            if limits.is_some() {
                self.waited += before.elapsed();
            }
            // Reserve a slot before reading, so that a blocked reader holds no memory.
            let Ok(permit) = to.reserve().await else { return Flow::Ended };
            let mut bytes = Vec::with_capacity(self.read_bytes);
            match rustix::io::read(self.fd.get_ref(), spare_capacity(&mut bytes)) {
                Ok(0) => return Flow::Ended,
                Ok(count) => {
                    self.widen_after(count);
                    self.tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes);
                    permit.send(ProcessReport {
                        process,
                        event: ChildEvent::Output { stream: self.stream, bytes },
                    });
                    return limits.map_or(Flow::Open, |(_, total)| self.check_limits(count, total));
                }
                // The runtime reports a closed stream as readable forever.
                Err(Errno::AGAIN) if ready.ready().is_read_closed() => return Flow::Ended,
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                // A terminal returns EIO after its other side was closed.
                Err(_) => return Flow::Ended,
            }
        }
    }

    /// After a read of a full pipe, makes the pipe and the reads larger, so that the process is woken less often.
    fn widen_after(&mut self, count: usize) {
        if count == OUTPUT_PIECE_BYTES && self.read_bytes == OUTPUT_PIECE_BYTES {
            self.read_bytes = BULK_PIECE_BYTES;
            // Fails if the user has reached the limit of pipe memory; then the pipe keeps its size.
            let _ = fcntl_setpipe_size(self.fd.get_ref(), BULK_PIECE_BYTES);
        }
    }

    fn check_limits(&mut self, count: usize, total: Duration) -> Flow {
        self.drained_bytes += count;
        if self.drained_bytes >= DRAIN_BYTES || self.waited >= total { Flow::Ended } else { Flow::Open }
    }
}
