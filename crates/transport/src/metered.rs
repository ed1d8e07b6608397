//! The stream under a WebSocket: reads no more than there is memory for, and knows where messages begin.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::frame_memory::{FrameAccount, FrameMemory};

/// The payload of a frame has its length here, or how many bytes the length has.
const LENGTH_BITS: u8 = 0x7f;
const MASK_BIT: u8 = 0x80;
const FINAL_BIT: u8 = 0x80;
/// Of control frames, which may stand between the parts of a message.
const CONTROL_BIT: u8 = 0x08;
/// What a control frame of a client has beside its payload.
const CONTROL_HEAD_BYTES: usize = 6;
/// The longest head of a frame.
const HEAD_BYTES: usize = 14;

/// A connection whose bytes are counted.
#[derive(Debug)]
pub struct Metered {
    stream: TcpStream,
    account: FrameAccount,
    place: Place,
}

impl Metered {
    /// Counts what is read within `memory`. `early` is what was read from it before.
    pub fn new(stream: TcpStream, memory: &FrameMemory, early: &[u8]) -> Self {
        let mut place = Place::default();
        place.pass(early);
        Self { stream, account: memory.account(), place }
    }

    /// The memory that frames of this stream take.
    pub fn account(&mut self) -> &mut FrameAccount {
        &mut self.account
    }

    /// A control frame with a payload of so many bytes came between the parts of a message, and is gone.
    pub(crate) fn leave_out_control(&mut self, payload: usize) {
        self.account.leave_out(CONTROL_HEAD_BYTES + payload);
    }

    /// The stream alone, for whoever throws away what it reads.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether all that was read are whole messages.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.place.is_between_messages()
    }

    pub(crate) fn into_account(self) -> FrameAccount {
        self.account
    }
}

impl AsyncRead for Metered {
    /// Fails with [`io::ErrorKind::TimedOut`] if a large frame does not arrive while others wait for memory.
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
        let read = buffer.filled().get(before..).unwrap_or_default();
        self.account.add_arriving(read.len());
        self.place.pass(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where in the frames of a client a stream is.
#[derive(Debug, Default)]
struct Place {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// How much of the payload is still to come, once the head is there.
    rest: u64,
    /// Whether a message was begun that is not complete.
    is_in_message: bool,
}

impl Place {
    fn is_between_messages(&self) -> bool {
        self.head_bytes == 0 && self.rest == 0 && !self.is_in_message
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, others)) = bytes.split_first() {
            if self.rest > 0 {
                let passed = bytes.len().min(usize::try_from(self.rest).unwrap_or(usize::MAX));
                self.rest -= passed as u64;
                bytes = bytes.get(passed..).unwrap_or_default();
                continue;
            }
            self.head[self.head_bytes] = *first;
            self.head_bytes += 1;
            bytes = others;
            if let Some(length) = self.length() {
                let [kind, ..] = self.head;
                if kind & CONTROL_BIT == 0 {
                    self.is_in_message = kind & FINAL_BIT == 0;
                }
                (self.rest, self.head_bytes) = (length, 0);
            }
        }
    }

    /// The length of the payload, if the head is complete.
    fn length(&self) -> Option<u64> {
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

    /// A frame of a client.
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
    fn only_after_whole_messages_it_is_between_them() {
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
            let mut place = Place::default();
            for (bytes, is_whole) in &frames {
                let (last, others) = bytes.split_last().unwrap();
                for piece in others.chunks(piece) {
                    place.pass(piece);
                    assert!(!place.is_between_messages());
                }
                place.pass(&[*last]);
                assert_eq!(place.is_between_messages(), *is_whole);
            }
        }
    }

    #[test]
    fn several_frames_may_come_at_once() {
        let mut place = Place::default();
        let mut bytes = [frame(0x81, 5), frame(0x81, 300), frame(0x81, 1)].concat();
        let last = bytes.pop().unwrap();
        place.pass(&bytes);
        assert!(!place.is_between_messages());
        place.pass(&[last]);
        assert!(place.is_between_messages());
    }
}
