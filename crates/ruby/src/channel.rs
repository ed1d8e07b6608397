//! The connection to a worker: sends requests and receives replies.
//!
//! Two pipes instead of one socket, because a socket wakes its writer when the other side reads, which made a call
//! take twice as long.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::frame::{Decoder, request};
use crate::{RubyError, RubySource, reply};

/// How many bytes are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// The value of `__FILE__` in a snippet.
const SNIPPET_FILE: &[u8] = b"(eval)";

/// A value as text, or the error.
pub(crate) type Outcome = Result<String, RubyError>;

/// Why a worker cannot answer any more.
#[derive(Debug)]
pub(crate) enum WorkerLoss {
    /// The process has exited.
    Exited,
    /// The process may be alive, but has closed the connection.
    Disconnected,
    /// The worker sent an invalid reply, or did not start in time. The text tells what happened.
    Invalid(String),
}

/// The host's ends of the pipes.
#[derive(Debug)]
pub(crate) struct Channel {
    requests: Sender,
    replies: Receiver,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The number of the last request.
    number: u32,
    /// The socket over which the worker got its pipes. The worker exits when this end is closed.
    socket: Option<UnixStream>,
}

impl Channel {
    /// Creates the pipes. Also returns the worker's ends: requests, then replies.
    pub(crate) fn new() -> std::io::Result<(Self, [OwnedFd; 2])> {
        let (their_requests, requests) = pipe_with(PipeFlags::CLOEXEC)?;
        let (replies, their_replies) = pipe_with(PipeFlags::CLOEXEC)?;
        let channel = Self {
            requests: Sender::from_owned_fd(requests)?,
            replies: Receiver::from_owned_fd(replies)?,
            decoder: Decoder::default(),
            buffer: vec![0; READ_BYTES],
            number: 0,
            socket: None,
        };
        Ok((channel, [their_requests, their_replies]))
    }

    /// Whether the worker has its ends of the pipes.
    pub(crate) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Opens the channel to a worker that got its ends over `socket`, by sending the hello request with the marks'
    /// secret and the limits.
    pub(crate) fn open(
        &mut self,
        socket: UnixStream,
        secret: &[u8],
        limits: &[u8],
    ) -> Result<(), WorkerLoss> {
        self.socket = Some(socket);
        let hello = request(b'h', self.number, secret, limits);
        // A new pipe has room for all of it. If the write fails, the worker has exited.
        self.requests.try_write(&hello).map(|_| ()).map_err(|_| WorkerLoss::Disconnected)
    }

    /// Encodes the request for `source`. From now on, replies to earlier requests are ignored.
    pub(crate) fn request(&mut self, source: &RubySource) -> Vec<u8> {
        self.number = self.number.wrapping_add(1);
        match source {
            RubySource::Snippet { code } => request(b's', self.number, SNIPPET_FILE, code.as_bytes()),
            RubySource::File { path, content } => {
                request(b'f', self.number, path.as_os_str().as_bytes(), content)
            }
            RubySource::Console { path, code } => {
                request(b'c', self.number, path.as_os_str().as_bytes(), code.as_bytes())
            }
        }
    }

    /// Writes `unwritten` as far as the pipe takes it, until some bytes of a reply come. Returns the outcome of
    /// `source` if the reply is complete. Cancel safe.
    pub(crate) async fn exchange(
        &mut self,
        unwritten: &mut &[u8],
        source: &RubySource,
    ) -> Result<Option<Outcome>, WorkerLoss> {
        loop {
            self.write(unwritten);
            tokio::select! {
                count = self.replies.read(&mut self.buffer) => {
                    return self.decode(count.unwrap_or(0), source);
                }
                writable = self.requests.writable(), if !unwritten.is_empty() => {
                    writable.map_err(|_| WorkerLoss::Disconnected)?;
                }
            }
        }
    }

    /// Writes as much as the pipe takes without blocking.
    fn write(&self, unwritten: &mut &[u8]) {
        while !unwritten.is_empty() {
            match self.requests.try_write(unwritten) {
                Ok(count) => *unwritten = unwritten.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A worker that does not read any more has replied already, or its exit will be reported.
                Err(_) => *unwritten = &[],
            }
        }
    }

    /// Reads a reply to `source` that a worker sent before it exited.
    pub(crate) fn read_final_reply(&mut self, source: &RubySource) -> Option<Outcome> {
        loop {
            // Reads the pipe directly, because tokio may not have noticed yet that it is readable.
            let count = rustix::io::read(&self.replies, &mut self.buffer).ok()?;
            if let Some(outcome) = self.decode(count, source).ok()? {
                return Some(outcome);
            }
        }
    }

    /// Decodes `count` bytes of the buffer. Zero bytes mean that the worker has closed the pipe.
    fn decode(&mut self, count: usize, source: &RubySource) -> Result<Option<Outcome>, WorkerLoss> {
        if count == 0 {
            return Err(WorkerLoss::Disconnected);
        }
        self.decoder.push(self.buffer.get(..count).unwrap_or_default());
        loop {
            let reply =
                self.decoder.next().map_err(|oversized| WorkerLoss::Invalid(oversized.to_string()))?;
            let Some(reply) = reply else { return Ok(None) };
            // Evaluated code can forge a reply. Then the worker's own reply to that earlier request is still to come.
            if reply.number == self.number {
                let outcome = reply::read(&reply.fields, source);
                let invalid = || WorkerLoss::Invalid("it sent a reply without meaning".to_owned());
                return outcome.map(Some).ok_or_else(invalid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reply_that_an_exited_worker_left_in_the_pipe_counts() {
        let source = RubySource::Snippet { code: String::new() };
        let (mut channel, [_requests, replies]) = Channel::new().unwrap();
        rustix::io::write(&replies, b"\0\0\0\0\0\0\0\x02\0\0\0\x05\0\0\0\x01val").unwrap();
        rustix::io::write(&replies, b"ue7").unwrap();
        drop(replies);
        assert_eq!(channel.read_final_reply(&source), Some(Ok("7".to_owned())));
        assert_eq!(channel.read_final_reply(&source), None);
    }

    #[tokio::test]
    async fn a_reply_to_an_earlier_request_is_ignored() {
        let source = RubySource::Snippet { code: String::new() };
        let (mut channel, [_requests, replies]) = Channel::new().unwrap();
        let reply = |number: u8| {
            [&[0, 0, 0, number][..], b"\0\0\0\x02\0\0\0\x05\0\0\0\x01value", &[b'0' + number]].concat()
        };
        channel.request(&source);
        assert_eq!(channel.request(&source).get(..5), Some(&b"s\0\0\0\x02"[..]));
        rustix::io::write(&replies, &[reply(1), reply(1), reply(2)].concat()).unwrap();
        let outcome = channel.exchange(&mut &b""[..], &source).await.unwrap();
        assert_eq!(outcome, Some(Ok("2".to_owned())));
    }

    #[tokio::test]
    async fn a_worker_that_disconnects_or_sends_an_invalid_reply_is_lost() {
        let source = RubySource::Snippet { code: String::new() };
        let (mut channel, [requests, replies]) = Channel::new().unwrap();
        rustix::io::write(&replies, b"\0\0\0\0\0\0\0\x01\0\0\0\x02hm").unwrap();
        assert!(matches!(channel.exchange(&mut &b"x"[..], &source).await, Err(WorkerLoss::Invalid(_))));
        drop((requests, replies));
        assert!(matches!(channel.exchange(&mut &b"x"[..], &source).await, Err(WorkerLoss::Disconnected)));
    }
}
