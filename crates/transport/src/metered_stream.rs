//! The TCP stream under a WebSocket: it reads no more than its share of [`FrameMemory`], tracks where messages begin, and
//! notes which messages are compressed. It fails when the peer does not read what is written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::deflate::{Deflate, MarkedMessages};
use crate::frame_memory::{FRAME_WAIT, FrameAccount, FrameMemory};

/// The bits of a frame's second byte that hold the payload length, or say how many length bytes follow.
const LENGTH_BITS: u8 = 0x7f;
const MASK_BIT: u8 = 0x80;
const FINAL_BIT: u8 = 0x80;
/// Set in the opcode of control frames, which may come between the fragments of a message.
const CONTROL_BIT: u8 = 0x08;
/// The size of a client's control frame without its payload: two bytes and the mask.
const CONTROL_HEAD_BYTES: usize = 6;
/// The size of the longest frame header.
const HEAD_BYTES: usize = 14;

/// A TCP stream whose incoming bytes are counted against a [`FrameMemory`].
#[derive(Debug)]
pub struct MeteredStream {
    stream: TcpStream,
    account: FrameAccount,
    position: FramePosition,
    /// In a box, because most connections are idle and many have no compression.
    compression: Option<Box<Compression>>,
    /// How long the peer may read nothing while something is written to it. `None`: forever.
    write_timeout: Option<Duration>,
    /// Fires when the peer has read nothing for too long. `None` unless a write waits for the peer.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Since when a large frame is being written.
    large_write_since: Option<Instant>,
}

/// The compression of a connection.
#[derive(Debug)]
struct Compression {
    deflate: Deflate,
    messages: MarkedMessages,
}

impl MeteredStream {
    /// Counts what is read from `stream` against `memory`. `early` holds the bytes that were read from it before; bits that
    /// mark compressed messages are cleared there, as in what is read later. `deflate` is how messages are compressed.
    pub fn new(stream: TcpStream, memory: &FrameMemory, early: &mut [u8], deflate: Option<Deflate>) -> Self {
        let compression =
            deflate.map(|deflate| Box::new(Compression { deflate, messages: MarkedMessages::default() }));
        let (account, position) = (memory.account(), FramePosition::default());
        let mut metered = Self {
            stream,
            account,
            position,
            compression,
            write_timeout: None,
            write_deadline: None,
            large_write_since: None,
        };
        metered.advance(early);
        metered
    }

    /// Makes writes fail when the peer reads nothing for `timeout`. However long a write takes, it goes on while the peer
    /// reads, unless it is large and others wait for its memory.
    pub(crate) fn set_write_timeout(&mut self, timeout: Duration) {
        self.write_timeout = Some(timeout);
    }

    /// Notes that a large frame is written from now on. It has [`FRAME_WAIT`] while others wait for memory.
    pub(crate) fn begin_large_write(&mut self) {
        self.large_write_since.get_or_insert_with(Instant::now);
    }

    /// Notes that everything is written.
    pub(crate) fn end_write(&mut self) {
        self.large_write_since = None;
    }

    /// How messages to the peer are compressed.
    pub(crate) fn deflate(&self) -> Option<Deflate> {
        self.compression.as_ref().map(|compression| compression.deflate)
    }

    /// The messages of the peer that may be compressed; `None` without compression.
    pub(crate) fn marked_messages(&mut self) -> Option<&mut MarkedMessages> {
        self.compression.as_mut().map(|compression| &mut compression.messages)
    }

    /// Whether a message of the peer is being inflated.
    pub(crate) fn is_inflating(&self) -> bool {
        self.compression.as_ref().is_some_and(|compression| compression.messages.is_inflating())
    }

    fn advance(&mut self, bytes: &mut [u8]) {
        let messages = self.compression.as_mut().map(|compression| &mut compression.messages);
        self.position.advance(bytes, messages);
    }

    /// The memory that this stream's frames hold.
    pub fn account(&mut self) -> &mut FrameAccount {
        &mut self.account
    }

    /// Stops counting a control frame that was handled, so that it does not count toward the message around it.
    pub(crate) fn uncount_control(&mut self, payload: usize) {
        self.account.subtract_arriving(CONTROL_HEAD_BYTES + payload);
    }

    /// The stream without the counting, for a caller that discards what it reads.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether everything that was read consists of complete messages, and with compression, of messages that were handed
    /// over.
    pub(crate) fn is_between_messages(&self) -> bool {
        let has_unhandled =
            self.compression.as_ref().is_some_and(|compression| !compression.messages.is_empty());
        self.position.is_between_messages() && !has_unhandled
    }

    pub(crate) fn into_account(self) -> FrameAccount {
        self.account
    }
}

impl AsyncRead for MeteredStream {
    /// Fails with [`io::ErrorKind::TimedOut`] if a large frame takes too long to arrive while other connections wait for
    /// memory.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.account.poll_overdue(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(self.account.poll_room(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        self.account.add_arriving(read.len());
        self.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredStream {
    /// Fails with [`io::ErrorKind::ConnectionAborted`] if the peer reads nothing for too long, or reads a large frame too
    /// slowly while other connections wait for memory.
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.large_write_since.is_some_and(|since| since.elapsed() > FRAME_WAIT)
            && self.account.do_others_wait()
        {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.write_deadline = None;
            return written;
        }
        let Some(timeout) = self.write_timeout else { return Poll::Pending };
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(deadline.as_mut().poll(cx));
        // The runtime tells of room only when a third of the kernel's buffer is free, which a slow reader may take longer for.
        match rustix::net::send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) if count > 0 => {
                self.write_deadline = None;
                Poll::Ready(Ok(count))
            }
            Ok(_) | Err(_) => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The position of a stream within the client's WebSocket frames.
#[derive(Debug, Default)]
struct FramePosition {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// How many payload bytes of the current frame are still to come.
    payload_left: u64,
    /// Whether a fragmented message has begun and its final fragment has not.
    is_in_message: bool,
}

impl FramePosition {
    fn is_between_messages(&self) -> bool {
        self.head_bytes == 0 && self.payload_left == 0 && !self.is_in_message
    }

    /// Moves on by `bytes`. Shows `messages` the first byte of each frame and lets it replace that byte.
    fn advance(&mut self, bytes: &mut [u8], mut messages: Option<&mut MarkedMessages>) {
        let mut next = 0;
        while let Some(byte) = bytes.get_mut(next) {
            if self.payload_left > 0 {
                let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
                let skipped = left.min(bytes.len() - next);
                self.payload_left -= skipped as u64;
                next += skipped;
                continue;
            }
            if let Some(messages) = messages.as_deref_mut().filter(|_| self.head_bytes == 0) {
                *byte = messages.on_frame(*byte);
            }
            self.head[self.head_bytes] = *byte;
            self.head_bytes += 1;
            next += 1;
            if let Some(length) = self.payload_length() {
                let [kind, ..] = self.head;
                if kind & CONTROL_BIT == 0 {
                    self.is_in_message = kind & FINAL_BIT == 0;
                }
                (self.payload_left, self.head_bytes) = (length, 0);
            }
        }
    }

    /// The length of the payload, if the header is complete.
    fn payload_length(&self) -> Option<u64> {
        let [_, second, long @ ..] = self.head;
        let [a, b, c, d, e, f, g, h, ..] = long;
        let (length, extra) = match second & LENGTH_BITS {
            126 => (u64::from(u16::from_be_bytes([a, b])), 2),
            127 => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 8),
            short => (u64::from(short), 0),
        };
        let mask = if second & MASK_BIT == 0 { 0 } else { 4 };
        (self.head_bytes >= 2 && self.head_bytes == 2 + extra + mask).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame as clients send it.
    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let mut frame = vec![kind];
        match length {
            0..126 => frame.push(MASK_BIT | length as u8),
            126..65536 => {
                frame.push(MASK_BIT | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(MASK_BIT | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend([1, 2, 3, 4]);
        frame.resize(frame.len() + length, 0x81);
        frame
    }

    #[test]
    fn a_stream_is_between_messages_only_after_complete_ones() {
        let frames = [
            (frame(0x81, 5), true),
            (frame(0x82, 0), true),
            (frame(0x81, 200), true),
            (frame(0x01, 70_000), false),
            (frame(0x89, 3), false),
            (frame(0x00, 10), false),
            (frame(0x80, 0), true),
            (frame(0x8a, 2), true),
        ];
        for piece in [1, 7, 2048] {
            let mut position = FramePosition::default();
            for (bytes, is_whole) in &frames {
                let (last, others) = bytes.split_last().unwrap();
                for piece in others.chunks(piece) {
                    position.advance(&mut piece.to_vec(), None);
                    assert!(!position.is_between_messages());
                }
                position.advance(&mut [*last], None);
                assert_eq!(position.is_between_messages(), *is_whole);
            }
        }
    }

    #[test]
    fn several_frames_may_arrive_in_one_read() {
        let mut position = FramePosition::default();
        let mut bytes = [frame(0x81, 5), frame(0x81, 300), frame(0x81, 1)].concat();
        let last = bytes.pop().unwrap();
        position.advance(&mut bytes, None);
        assert!(!position.is_between_messages());
        position.advance(&mut [last], None);
        assert!(position.is_between_messages());
    }
}
