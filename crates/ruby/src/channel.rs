//! The way to a worker that is up: requests go in, what came of them comes out.
//!
//! Two pipes and not one socket: a socket wakes its writer when what was written is read, and with
//! that a call took twice as long.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::frame::{Decoder, request};
use crate::{RubyError, RubySource, reply};

/// How much is read at a time.
const READ_BYTES: usize = 64 * 1024;

/// What `__FILE__` is in a snippet.
const NO_FILE: &[u8] = b"(eval)";

/// A value, or why there is none.
pub(crate) type Outcome = Result<String, RubyError>;

/// Why a worker can answer no more.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It is gone.
    Exited,
    /// It may be there, but does not listen.
    HungUp,
    /// It says what no worker says, or nothing where it should.
    Nonsense(String),
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
    /// What the pipes were sent over. The worker takes its end for the host's.
    socket: Option<UnixStream>,
}

impl Channel {
    /// Pipes, with the ends that the worker is to get: requests, then replies.
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

    /// Whether the worker was there to get its ends.
    pub(crate) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Opens the channel to a worker that got its ends over `socket`, with some first words.
    pub(crate) fn open(&mut self, socket: UnixStream, secret: &[u8], limits: &[u8]) -> Result<(), Lost> {
        self.socket = Some(socket);
        let hello = request(b'h', self.number, secret, limits);
        // A new pipe takes this whole; where it does not, the worker has gone.
        self.requests.try_write(&hello).map(|_| ()).map_err(|_| Lost::HungUp)
    }

    /// The request for `source`, to be written. From now on only its reply counts.
    pub(crate) fn request(&mut self, source: &RubySource) -> Vec<u8> {
        self.number = self.number.wrapping_add(1);
        match source {
            RubySource::Snippet { code } => request(b's', self.number, NO_FILE, code.as_bytes()),
            RubySource::File { path, content } => {
                request(b'f', self.number, path.as_os_str().as_bytes(), content)
            }
            RubySource::Console { path, code } => {
                request(b'c', self.number, path.as_os_str().as_bytes(), code.as_bytes())
            }
        }
    }

    /// Writes of `unwritten` what is taken, until something comes back: what came of `source` if that
    /// is complete. Cancel safe.
    pub(crate) async fn exchange(
        &mut self,
        unwritten: &mut &[u8],
        source: &RubySource,
    ) -> Result<Option<Outcome>, Lost> {
        loop {
            self.write(unwritten);
            tokio::select! {
                count = self.replies.read(&mut self.buffer) => {
                    return self.take(count.unwrap_or(0), source);
                }
                writable = self.requests.writable(), if !unwritten.is_empty() => {
                    writable.map_err(|_| Lost::HungUp)?;
                }
            }
        }
    }

    /// Writes what is taken at once.
    fn write(&self, unwritten: &mut &[u8]) {
        while !unwritten.is_empty() {
            match self.requests.try_write(unwritten) {
                Ok(count) => *unwritten = unwritten.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A worker that does not read any more has said so, or will by its exit.
                Err(_) => *unwritten = &[],
            }
        }
    }

    /// What a worker that is gone has still said about `source`.
    pub(crate) fn last_words(&mut self, source: &RubySource) -> Option<Outcome> {
        loop {
            // Past the runtime, which may not have looked at the pipe yet.
            let count = rustix::io::read(&self.replies, &mut self.buffer).ok()?;
            if let Some(outcome) = self.take(count, source).ok()? {
                return Some(outcome);
            }
        }
    }

    /// Takes so many bytes out of the buffer; none means that the worker has hung up.
    fn take(&mut self, count: usize, source: &RubySource) -> Result<Option<Outcome>, Lost> {
        if count == 0 {
            return Err(Lost::HungUp);
        }
        self.decoder.push(self.buffer.get(..count).unwrap_or_default());
        loop {
            let reply = self.decoder.next().map_err(|oversized| Lost::Nonsense(oversized.to_string()))?;
            let Some(reply) = reply else { return Ok(None) };
            // Code of an earlier call may have answered in the worker's place, before the worker did.
            if reply.number == self.number {
                let outcome = reply::read(&reply.fields, source);
                let nonsense = || Lost::Nonsense("it sent a reply without meaning".to_owned());
                return outcome.map(Some).ok_or_else(nonsense);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reply_of_one_who_is_gone_counts_once_it_is_in_the_pipe() {
        let source = RubySource::Snippet { code: String::new() };
        let (mut channel, [_requests, replies]) = Channel::new().unwrap();
        rustix::io::write(&replies, b"\0\0\0\0\0\0\0\x02\0\0\0\x05\0\0\0\x01val").unwrap();
        rustix::io::write(&replies, b"ue7").unwrap();
        drop(replies);
        assert_eq!(channel.last_words(&source), Some(Ok("7".to_owned())));
        assert_eq!(channel.last_words(&source), None);
    }

    #[tokio::test]
    async fn the_reply_to_an_earlier_request_is_passed_over() {
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
    async fn one_who_hangs_up_or_talks_nonsense_is_lost() {
        let source = RubySource::Snippet { code: String::new() };
        let (mut channel, [requests, replies]) = Channel::new().unwrap();
        rustix::io::write(&replies, b"\0\0\0\0\0\0\0\x01\0\0\0\x02hm").unwrap();
        assert!(matches!(channel.exchange(&mut &b"x"[..], &source).await, Err(Lost::Nonsense(_))));
        drop((requests, replies));
        assert!(matches!(channel.exchange(&mut &b"x"[..], &source).await, Err(Lost::HungUp)));
    }
}
