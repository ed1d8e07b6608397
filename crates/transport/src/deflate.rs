//! Compressed WebSocket messages: permessage-deflate (RFC 7692), beneath a WebSocket library that does not know it.
//!
//! Every message is compressed by itself in both directions (`no_context_takeover`), so a connection keeps no dictionary:
//! compression costs memory only while a message is being compressed or inflated, and nothing while a connection is idle.
//!
//! The library refuses frames with the bit that marks a compressed message, and checks texts before they are inflated. So
//! [`MarkedMessages`] clears that bit in incoming frames, makes their messages binary, and remembers which they are;
//! [`Inflating`] turns such a message into what the peer has sent.

use std::collections::VecDeque;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

/// Messages of at least this size are sent compressed. Smaller ones would save less than a packet.
pub const COMPRESS_FROM_BYTES: usize = 1024;

/// The largest and the smallest window that parlor can be asked to compress with, as powers of two. The protocol knows 8
/// as well, which zlib cannot do.
pub const MAX_WINDOW_BITS: u8 = 15;
/// See [`MAX_WINDOW_BITS`].
pub const MIN_WINDOW_BITS: u8 = 9;

/// How much of a message is inflated at a time, before its memory is counted and other connections are served.
pub const INFLATE_STEP_BYTES: usize = 64 * 1024;

/// What a sender leaves out at the end of each message: an empty block.
const OMITTED_TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// How hard to compress. Level 3 makes texts a quarter smaller than the fastest level and takes twice its time, which is
/// about 15 ms for each MiB; higher levels save almost nothing more.
const LEVEL: u32 = 3;

/// The bit of a frame's first byte that marks the beginning of a compressed message.
const COMPRESSED_BIT: u8 = 0x40;
const OPCODE_BITS: u8 = 0x0f;
const TEXT_OPCODE: u8 = 0x01;
const BINARY_OPCODE: u8 = 0x02;

/// The capacity that the list of unhandled messages keeps.
const KEPT_MARKS: usize = 16;

/// How the messages of a connection are compressed, as its handshake has agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    window_bits: u8,
}

impl Deflate {
    /// Compression with a window of 2 to the power of `window_bits`. `None` if zlib cannot do that.
    pub fn with_window_bits(window_bits: u8) -> Option<Self> {
        (MIN_WINDOW_BITS..=MAX_WINDOW_BITS).contains(&window_bits).then_some(Self { window_bits })
    }

    /// Compresses a text. `None` if it is too small to pay, or does not become smaller.
    pub(crate) fn compress(self, text: &[u8]) -> Option<Message> {
        if text.len() < COMPRESS_FROM_BYTES {
            return None;
        }
        let mut compress = Compress::new_with_window_bits(Compression::new(LEVEL), false, self.window_bits);
        // A message that does not fit is not smaller, so it is not compressed.
        let mut output = Vec::with_capacity(text.len());
        compress.compress_vec(text, &mut output, FlushCompress::Sync).ok()?;
        let is_complete = compress.total_in() == text.len() as u64 && output.len() < output.capacity();
        if !is_complete || !output.ends_with(&OMITTED_TAIL) {
            return None;
        }
        output.truncate(output.len() - OMITTED_TAIL.len());
        output.shrink_to_fit();
        let opcode = OpCode::Data(Data::Text);
        let header = FrameHeader { rsv1: true, opcode, ..FrameHeader::default() };
        Some(Message::Frame(Frame::from_payload(header, Bytes::from(output))))
    }
}

/// How a peer has sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Plain,
    CompressedText,
    CompressedBinary,
}

/// Which of the messages that were read and not handled yet are compressed, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct MarkedMessages {
    marks: VecDeque<Mark>,
    inflating: Option<Inflating>,
}

impl MarkedMessages {
    /// Notes the first byte of a frame, and returns it as the library may see it. Leaves the bit in frames that must not
    /// have it, so that the library refuses them.
    pub(crate) fn on_frame(&mut self, first: u8) -> u8 {
        let mark = match (first & OPCODE_BITS, first & COMPRESSED_BIT != 0) {
            (TEXT_OPCODE | BINARY_OPCODE, false) => Mark::Plain,
            (TEXT_OPCODE, true) => Mark::CompressedText,
            (BINARY_OPCODE, true) => Mark::CompressedBinary,
            (_, _) => return first,
        };
        self.marks.push_back(mark);
        match mark {
            Mark::Plain => first,
            Mark::CompressedText | Mark::CompressedBinary => {
                first & !COMPRESSED_BIT & !OPCODE_BITS | BINARY_OPCODE
            }
        }
    }

    /// Takes the next message of the library. Returns it if it is not compressed; otherwise it is inflated from now on.
    pub(crate) fn take(&mut self, message: Message, max_bytes: usize) -> Option<Message> {
        let mark = match message {
            Message::Text(_) | Message::Binary(_) => self.marks.pop_front(),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {
                return Some(message);
            }
        };
        if self.marks.is_empty() && self.marks.capacity() > KEPT_MARKS {
            // A burst of small messages has made the list long.
            self.marks = VecDeque::new();
        }
        let (input, is_text) = match (mark, message) {
            (Some(Mark::CompressedText), Message::Binary(payload)) => (payload, true),
            (Some(Mark::CompressedBinary), Message::Binary(payload)) => (payload, false),
            (_, message) => return Some(message),
        };
        self.inflating = Some(Inflating::new(input, is_text, max_bytes));
        None
    }

    /// Whether a message is being inflated.
    pub(crate) fn is_inflating(&self) -> bool {
        self.inflating.is_some()
    }

    /// Inflates the next piece of the message that is being inflated. `None` if there is none.
    pub(crate) fn inflate(&mut self) -> Option<Step> {
        let step = self.inflating.as_mut()?.step();
        match step {
            Step::Grown(_) => {}
            Step::Complete(_) | Step::Refused { .. } => self.inflating = None,
        }
        Some(step)
    }

    /// Whether all messages that have begun were handed over.
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.inflating.is_none()
    }
}

/// A compressed message that is inflated in steps, so that a small message that becomes a huge one neither takes memory
/// that it has not got nor holds up others.
struct Inflating {
    input: Bytes,
    /// How much of the input and of [`OMITTED_TAIL`] behind it is inflated.
    consumed: usize,
    decompress: Decompress,
    output: Vec<u8>,
    is_text: bool,
    max_bytes: usize,
}

impl std::fmt::Debug for Inflating {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflating").field("inflated", &self.output.len()).finish_non_exhaustive()
    }
}

/// What a step has done.
pub(crate) enum Step {
    /// So many bytes more; the message goes on.
    Grown(usize),
    /// The message is complete.
    Complete(Message),
    /// The message is larger than allowed, or broken. The `freed` bytes that it had grown by are gone.
    Refused { error: Error, freed: usize },
}

impl Inflating {
    fn new(input: Bytes, is_text: bool, max_bytes: usize) -> Self {
        // The window of a client may be smaller, but not larger.
        let decompress = Decompress::new_with_window_bits(false, MAX_WINDOW_BITS);
        Self { input, consumed: 0, decompress, output: Vec::new(), is_text, max_bytes }
    }

    /// Inflates at most [`INFLATE_STEP_BYTES`] more.
    fn step(&mut self) -> Step {
        let freed = self.output.len();
        let message = match self.grow() {
            Ok(Some(bytes)) => return Step::Grown(bytes),
            Ok(None) => into_message(std::mem::take(&mut self.output), self.is_text),
            Err(error) => Err(error),
        };
        match message {
            Ok(message) => Step::Complete(message),
            Err(error) => Step::Refused { error, freed },
        }
    }

    /// Returns by how many bytes the message has grown; `None` if it is complete.
    fn grow(&mut self) -> Result<Option<usize>, Error> {
        let (before, total) = (self.output.len(), self.input.len() + OMITTED_TAIL.len());
        self.output.reserve_exact(INFLATE_STEP_BYTES);
        let rest = match self.input.get(self.consumed..) {
            Some(rest @ [_, ..]) => rest,
            Some([]) | None => OMITTED_TAIL.get(self.consumed - self.input.len()..).unwrap_or_default(),
        };
        let read_before = self.decompress.total_in();
        let status = self
            .decompress
            .decompress_vec(rest, &mut self.output, FlushDecompress::Sync)
            .map_err(|_| broken())?;
        let read = usize::try_from(self.decompress.total_in() - read_before).map_err(|_| broken())?;
        self.consumed += read;
        let grown = self.output.len() - before;
        if self.output.len() > self.max_bytes {
            let (size, max_size) = (self.output.len(), self.max_bytes);
            return Err(Error::Capacity(CapacityError::MessageTooLong { size, max_size }));
        }
        if self.consumed >= total && self.output.len() < self.output.capacity() {
            return Ok(None);
        }
        match status {
            // A sender may end a message with a last block. What follows begins anew.
            Status::StreamEnd => self.decompress.reset(false),
            Status::Ok | Status::BufError if read == 0 && grown == 0 => {
                return if self.consumed >= total { Ok(None) } else { Err(broken()) };
            }
            Status::Ok | Status::BufError => {}
        }
        Ok(Some(grown))
    }
}

fn into_message(inflated: Vec<u8>, is_text: bool) -> Result<Message, Error> {
    let bytes = Bytes::from(inflated);
    match is_text {
        true => Ok(Message::Text(Utf8Bytes::try_from(bytes)?)),
        false => Ok(Message::Binary(bytes)),
    }
}

/// The error for a message that cannot be inflated, which the driver tells from errors of the stream by its kind.
fn broken() -> Error {
    Error::Io(std::io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
