//! One output stream of a process, read when there is both something to read and somebody to
//! take it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_vocab::OutputStream;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::tail::Tail;
use crate::watched::Watched;
use crate::{
    BULK_PIECE_BYTES, DRAIN_BYTES, DRAIN_SILENCE, DRAIN_WAIT, HURRY_SILENCE, OUTPUT_PIECE_BYTES, ProcessNews,
    ProcessNumber, ProcessReport,
};

/// An output stream that is still open.
pub(crate) struct Source {
    fd: Watched,
    stream: OutputStream,
    tail: Arc<Mutex<Tail>>,
    /// How much is read at a time.
    piece: usize,
    /// How much was read, and how long was waited, since the child is gone.
    drained: usize,
    waited: Duration,
}

/// Whether there can be more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    Ended,
}

/// What a source is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The child lives.
    Live,
    /// The child was told to end and is gone; its group has until the end of its grace.
    Ending,
    /// The child is gone. Others may hold the stream open for ever, so there are limits.
    Draining,
    /// The child is gone, and its group was killed: only what the child wrote is still wanted, and
    /// that is there to be read without waiting.
    Hurrying,
}

impl Phase {
    /// How long a stream may be silent, and how long it is waited for in all.
    fn patience(self) -> Option<(Duration, Duration)> {
        match self {
            Self::Live | Self::Ending => None,
            Self::Draining => Some((DRAIN_SILENCE, DRAIN_WAIT)),
            Self::Hurrying => Some((HURRY_SILENCE, HURRY_SILENCE)),
        }
    }
}

impl Source {
    pub(crate) fn new(fd: Watched, stream: OutputStream, tail: Arc<Mutex<Tail>>) -> Self {
        Self { fd, stream, tail, piece: OUTPUT_PIECE_BYTES, drained: 0, waited: Duration::ZERO }
    }

    /// Passes on one piece of output. Cancel safe: what was read was sent.
    pub(crate) async fn pass_on(
        &mut self,
        phase: Phase,
        instance: ProcessNumber,
        to: &mpsc::Sender<ProcessReport>,
    ) -> Flow {
        loop {
            let before = Instant::now();
            let patience = phase.patience();
            let readable = match patience {
                None => self.fd.readable().await,
                Some((silence, _)) => match timeout(silence, self.fd.readable()).await {
                    Ok(readable) => readable,
                    Err(_) => return Flow::Ended,
                },
            };
            let Ok(mut ready) = readable else { return Flow::Ended };
            if patience.is_some() {
                self.waited += before.elapsed();
            }
            // Room first, bytes second: whoever cannot pass anything on holds no memory.
            let Ok(room) = to.reserve().await else { return Flow::Ended };
            let mut bytes = Vec::with_capacity(self.piece);
            match rustix::io::read(self.fd.get_ref(), spare_capacity(&mut bytes)) {
                Ok(0) => return Flow::Ended,
                Ok(count) => {
                    self.widen_for(count);
                    self.tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes);
                    room.send(ProcessReport {
                        instance,
                        news: ProcessNews::Output { stream: self.stream, bytes },
                    });
                    return patience.map_or(Flow::Open, |(_, wait)| self.drain(count, wait));
                }
                // The runtime would call a closed stream readable for ever.
                Err(Errno::AGAIN) if ready.ready().is_read_closed() => return Flow::Ended,
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                // A terminal says EIO when nobody has its other side open any more.
                Err(_) => return Flow::Ended,
            }
        }
    }

    /// A full pipe means a process in a hurry: with more room it is woken less often.
    fn widen_for(&mut self, count: usize) {
        if count == OUTPUT_PIECE_BYTES && self.piece == OUTPUT_PIECE_BYTES {
            self.piece = BULK_PIECE_BYTES;
            // Refused where the user has too much pipe memory already; then it stays as it is.
            let _ = fcntl_setpipe_size(self.fd.get_ref(), BULK_PIECE_BYTES);
        }
    }

    fn drain(&mut self, count: usize, wait: Duration) -> Flow {
        self.drained += count;
        if self.drained >= DRAIN_BYTES || self.waited >= wait { Flow::Ended } else { Flow::Open }
    }
}
