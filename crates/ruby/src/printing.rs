//! The pipe into which a worker prints.
//!
//! It is the host's own and not one of the process's supervisor: when a reply has arrived, one look
//! into the pipe tells whether there is more, without a word from the worker.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;

use crate::capture::{Capture, Secret};
use crate::{MAX_PIPE_BYTES, PrintedOutput};

/// How much is read at a time: what a pipe holds by default.
const READ_BYTES: usize = 64 * 1024;

/// What a worker has printed, and will print.
#[derive(Debug)]
pub(crate) struct Printing {
    /// None where nobody can print any more.
    pipe: Option<Receiver>,
    buffer: Vec<u8>,
    capture: Capture,
}

impl Printing {
    /// A pipe, with the end that the worker is to get.
    pub(crate) fn new(secret: Secret) -> std::io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let pipe = Some(Receiver::from_owned_fd(ours)?);
        Ok((Self { pipe, buffer: vec![0; READ_BYTES], capture: Capture::new(secret) }, theirs))
    }

    /// Whether somebody can still print.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Takes text from elsewhere: of a worker that does not have its pipe yet.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.capture.push(text);
    }

    /// Waits for text and takes it. Returns when there can be none any more. Cancel safe.
    pub(crate) async fn take_in(&mut self) {
        while let Some(pipe) = &self.pipe {
            if pipe.readable().await.is_err() {
                self.pipe = None;
                return;
            }
            match pipe.try_read(&mut self.buffer) {
                Ok(count) if count > 0 => self.capture.push(self.buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    /// All text that was printed up to now and not given out yet.
    pub(crate) fn give_out(&mut self) -> PrintedOutput {
        let mut taken = 0;
        // What is beyond a full pipe came after this was asked for.
        while let Some(pipe) = &self.pipe
            && taken < MAX_PIPE_BYTES
        {
            // Past the runtime, which may not have looked at the pipe yet.
            match rustix::io::read(pipe, &mut self.buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    taken += count;
                    self.capture.push(self.buffer.get(..count).unwrap_or_default());
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.capture.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn text_is_given_out_as_soon_as_it_is_in_the_pipe() {
        let (mut printing, pipe) = Printing::new(Secret::default()).unwrap();
        assert!(printing.give_out().is_empty());
        rustix::io::write(&pipe, b"one").unwrap();
        assert_eq!(printing.give_out().text(), "one");
        printing.push(b"two ");
        rustix::io::write(&pipe, b"three").unwrap();
        assert_eq!(printing.give_out().text(), "two three");
    }

    #[tokio::test]
    async fn a_pipe_that_nobody_holds_is_at_its_end() {
        let (mut printing, pipe) = Printing::new(Secret::default()).unwrap();
        rustix::io::write(&pipe, b"last").unwrap();
        drop(pipe);
        printing.take_in().await;
        assert_eq!(printing.give_out().text(), "last");
        assert!(printing.give_out().is_empty());
    }

    #[tokio::test]
    async fn one_who_prints_without_end_does_not_keep_an_answer() {
        let (mut printing, pipe) = Printing::new(Secret::default()).unwrap();
        // Several, so that the pipe is hardly ever empty. They end when it is closed.
        let printers: Vec<_> = (0..4)
            .map(|_| {
                let pipe = pipe.try_clone().unwrap();
                std::thread::spawn(move || while rustix::io::write(&pipe, &[b'x'; READ_BYTES]).is_ok() {})
            })
            .collect();
        for _ in 0..20 {
            let output = printing.give_out();
            let shown: usize = output.pieces.iter().map(|piece| piece.text.len()).sum();
            assert!(shown + output.cut as usize <= MAX_PIPE_BYTES + READ_BYTES);
        }
        drop(printing);
        printers.into_iter().for_each(|printer| printer.join().unwrap());
    }
}
