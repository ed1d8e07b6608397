//! Reads one output stream of a process, when there is output and the consumer has room for it.

use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::OutputStream;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::sync::mpsc;

use crate::async_fd::RegisteredFd;
use crate::tail::Tail;
use crate::{BULK_PIECE_BYTES, ChildEvent, DRAIN_BYTES, OUTPUT_PIECE_BYTES, ProcessNumber, ProcessReport};

/// Reads an open output stream.
pub(crate) struct OutputReader {
    fd: RegisteredFd,
    stream: OutputStream,
    /// Shared with the reader of the other stream.
    tail: Arc<Mutex<Tail>>,
    /// The size of one read.
    read_bytes: usize,
    /// Bytes read since the exit of the child.
    drained_bytes: usize,
}

/// Whether more output can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    Ended,
}

/// How far a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// To its end: the child is alive, or its group has time to end.
    Everything,
    /// The child has exited, and others may keep the stream open forever: at most [`DRAIN_BYTES`].
    Limited,
    /// Only what can be read without waiting: at most [`DRAIN_BYTES`].
    Available,
}

impl OutputReader {
    pub(crate) fn new(fd: RegisteredFd, stream: OutputStream, tail: Arc<Mutex<Tail>>) -> Self {
        Self { fd, stream, tail, read_bytes: OUTPUT_PIECE_BYTES, drained_bytes: 0 }
    }

    /// Forwards one piece of output. Cancel safe: everything that was read has been sent.
    pub(crate) async fn forward(
        &mut self,
        mode: ReadMode,
        process: ProcessNumber,
        to: &mpsc::Sender<ProcessReport>,
    ) -> Flow {
        loop {
            let ready = match mode {
                ReadMode::Everything | ReadMode::Limited => match self.fd.readable().await {
                    Ok(ready) => Some(ready),
                    Err(_) => return Flow::Ended,
                },
                ReadMode::Available => None,
            };
            // Reserve a slot before reading, so that a blocked reader holds no memory.
            let Ok(permit) = to.reserve().await else { return Flow::Ended };
            let mut bytes = Vec::with_capacity(self.read_bytes);
            match rustix::io::read(self.fd.get_ref(), spare_capacity(&mut bytes)) {
                Ok(0) => return Flow::Ended,
                Ok(count) => {
                    self.widen_after(count);
                    self.tail.lock().unwrap_or_else(PoisonError::into_inner).push(self.stream, &bytes);
                    permit.send(ProcessReport {
                        process,
                        event: ChildEvent::Output { stream: self.stream, bytes },
                    });
                    return self.flow_after(count, mode);
                }
                Err(Errno::AGAIN) => match ready {
                    // The runtime reports a closed stream as readable forever.
                    Some(ready) if ready.ready().is_read_closed() => return Flow::Ended,
                    Some(mut ready) => ready.clear_ready(),
                    None => return Flow::Ended,
                },
                Err(Errno::INTR) => {}
                // A terminal returns EIO after its other side was closed.
                Err(_) => return Flow::Ended,
            }
        }
    }

    /// Whether bytes can be read now. True also while the consumer has no room for them.
    pub(crate) fn has_output(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.get_ref(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
    }

    /// After a read of a full pipe, makes the pipe and the reads larger, so that the process is woken less often.
    fn widen_after(&mut self, count: usize) {
        if count == OUTPUT_PIECE_BYTES && self.read_bytes == OUTPUT_PIECE_BYTES {
            self.read_bytes = BULK_PIECE_BYTES;
            // Fails if the user has reached the limit of pipe memory; then the pipe keeps its size.
            let _ = fcntl_setpipe_size(self.fd.get_ref(), BULK_PIECE_BYTES);
        }
    }

    fn flow_after(&mut self, count: usize, mode: ReadMode) -> Flow {
        if mode == ReadMode::Everything {
            return Flow::Open;
        }
        self.drained_bytes += count;
        if self.drained_bytes >= DRAIN_BYTES { Flow::Ended } else { Flow::Open }
    }
}
