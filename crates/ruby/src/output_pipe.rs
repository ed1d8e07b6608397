//! The pipe into which a worker prints.
//!
//! The host reads it directly instead of through the process supervisor: when a reply has come, a non-blocking read
//! tells whether there is more printed text.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;

use crate::capture::{Capture, Secret};
use crate::{MAX_PIPE_BYTES, PrintedOutput};

/// How many bytes are read at a time: the default capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// The host's end of the pipe, and the text that was read from it.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    /// `None` once all writers have closed their ends.
    pipe: Option<Receiver>,
    buffer: Vec<u8>,
    capture: Capture,
}

impl OutputPipe {
    /// Creates the pipe. Also returns the worker's end.
    pub(crate) fn new(secret: Secret) -> std::io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let pipe = Some(Receiver::from_owned_fd(ours)?);
        Ok((Self { pipe, buffer: vec![0; READ_BYTES], capture: Capture::new(secret) }, theirs))
    }

    /// Whether some process can still print.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Adds text that a worker printed before it had this pipe.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.capture.push(text);
    }

    /// Reads text until all writers have closed the pipe. Cancel safe.
    pub(crate) async fn read_to_end(&mut self) {
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

    /// Takes all text that was printed up to now.
    pub(crate) fn take_output(&mut self) -> PrintedOutput {
        let mut taken = 0;
        // More than a full pipe was printed after this call began.
        while let Some(pipe) = &self.pipe
            && taken < MAX_PIPE_BYTES
        {
            // Reads the pipe directly, because tokio may not have noticed yet that it is readable.
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
    async fn text_is_available_as_soon_as_it_is_in_the_pipe() {
        let (mut output, pipe) = OutputPipe::new(Secret::default()).unwrap();
        assert!(output.take_output().is_empty());
        rustix::io::write(&pipe, b"one").unwrap();
        assert_eq!(output.take_output().text(), "one");
        output.push(b"two ");
        rustix::io::write(&pipe, b"three").unwrap();
        assert_eq!(output.take_output().text(), "two three");
    }

    #[tokio::test]
    async fn a_pipe_without_writers_is_at_its_end() {
        let (mut output, pipe) = OutputPipe::new(Secret::default()).unwrap();
        rustix::io::write(&pipe, b"last").unwrap();
        drop(pipe);
        output.read_to_end().await;
        assert_eq!(output.take_output().text(), "last");
        assert!(output.take_output().is_empty());
    }

    #[tokio::test]
    async fn endless_printing_does_not_delay_an_answer() {
        let (mut output, pipe) = OutputPipe::new(Secret::default()).unwrap();
        // Several threads keep the pipe full. They end when the pipe is closed.
        let printers: Vec<_> = (0..4)
            .map(|_| {
                let pipe = pipe.try_clone().unwrap();
                std::thread::spawn(move || while rustix::io::write(&pipe, &[b'x'; READ_BYTES]).is_ok() {})
            })
            .collect();
        for _ in 0..20 {
            let taken = output.take_output();
            let shown: usize = taken.pieces.iter().map(|piece| piece.text.len()).sum();
            assert!(shown + taken.omitted_bytes as usize <= MAX_PIPE_BYTES + READ_BYTES);
        }
        drop(output);
        printers.into_iter().for_each(|printer| printer.join().unwrap());
    }
}
