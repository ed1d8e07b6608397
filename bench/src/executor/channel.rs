//! The messages of an executor, on lines or on a WebSocket, read and written with as little work as possible: the client runs on
//! the cores of the server that it measures.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::process::{ChildStdin, ChildStdout};

use anyhow::{Context, bail, ensure};

use crate::exec_server::READ_BYTES;

/// The kinds of frames that servers send.
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A connection to a server.
pub(super) struct Channel {
    transport: Transport,
    buffer: Vec<u8>,
    /// The bytes that are not handled yet.
    unread: Range<usize>,
    /// Up to where lines were searched for their end.
    searched: usize,
}

enum Transport {
    Lines(ChildStdin, ChildStdout),
    Socket(TcpStream),
}

/// The next message, or why there is none yet.
enum Found {
    Message(Range<usize>),
    Ping(Range<usize>),
    /// The buffer has only a part of the next one.
    Nothing,
}

impl Channel {
    pub(super) fn lines(input: ChildStdin, output: ChildStdout) -> Self {
        Self::new(Transport::Lines(input, output))
    }

    /// Opens a WebSocket.
    pub(super) fn socket(address: SocketAddr) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).context("the server gave no answer to the handshake")?;
            head.push(byte[0]);
        }
        ensure!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Ok(Self::new(Transport::Socket(stream)))
    }

    fn new(transport: Transport) -> Self {
        Self { transport, buffer: Vec::new(), unread: 0..0, searched: 0 }
    }

    /// Loses a socket without a word.
    pub(super) fn lose(&self) -> anyhow::Result<()> {
        match &self.transport {
            Transport::Lines(..) => bail!("lines end with their server"),
            Transport::Socket(stream) => Ok(stream.shutdown(Shutdown::Both)?),
        }
    }

    pub(super) fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        match &mut self.transport {
            Transport::Lines(input, _) => {
                let mut line = message.to_vec();
                line.push(b'\n');
                input.write_all(&line)?;
            }
            Transport::Socket(stream) => stream.write_all(&frame(TEXT, message))?,
        }
        Ok(())
    }

    /// The next message.
    pub(super) fn next(&mut self) -> anyhow::Result<&[u8]> {
        loop {
            match self.find()? {
                Found::Message(range) => return Ok(&self.buffer[range]),
                Found::Ping(range) => {
                    let pong = frame(PONG, &self.buffer[range]);
                    if let Transport::Socket(stream) = &mut self.transport {
                        stream.write_all(&pong)?;
                    }
                }
                Found::Nothing => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        if self.buffer.len() - self.unread.end < READ_BYTES {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.searched -= self.unread.start;
            self.unread = 0..self.unread.len();
            let size = self.buffer.len().max(self.unread.end + 2 * READ_BYTES);
            self.buffer.resize(size, 0);
        }
        let room = &mut self.buffer[self.unread.end..self.unread.end + READ_BYTES];
        let count = match &mut self.transport {
            Transport::Lines(_, output) => output.read(room)?,
            Transport::Socket(stream) => stream.read(room)?,
        };
        ensure!(count > 0, "the server closed the connection");
        self.unread.end += count;
        Ok(())
    }

    fn find(&mut self) -> anyhow::Result<Found> {
        match self.transport {
            Transport::Lines(..) => Ok(self.find_line()),
            Transport::Socket(_) => self.find_frame(),
        }
    }

    fn find_line(&mut self) -> Found {
        match memchr::memchr(b'\n', &self.buffer[self.searched..self.unread.end]) {
            None => {
                self.searched = self.unread.end;
                Found::Nothing
            }
            Some(length) => {
                let line = self.unread.start..self.searched + length;
                self.searched = line.end + 1;
                self.unread.start = self.searched;
                Found::Message(line)
            }
        }
    }

    fn find_frame(&mut self) -> anyhow::Result<Found> {
        let unread = &self.buffer[self.unread.clone()];
        let [first, second, rest @ ..] = unread else { return Ok(Found::Nothing) };
        let (head, length) = match (second & 0x7f, rest) {
            (126, [a, b, ..]) => (4, usize::from(u16::from_be_bytes([*a, *b]))),
            (127, [a, b, c, d, e, f, g, h, ..]) => {
                (10, usize::try_from(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]))?)
            }
            (126 | 127, _) => return Ok(Found::Nothing),
            (length, _) => (2, usize::from(length)),
        };
        if unread.len() < head + length {
            return Ok(Found::Nothing);
        }
        let start = self.unread.start + head;
        let (kind, range) = (*first, start..start + length);
        self.unread.start = range.end;
        self.searched = self.searched.max(range.end);
        match kind & 0x0f {
            _ if kind & 0x80 == 0 => bail!("the server cut a message into frames"),
            TEXT | BINARY => Ok(Found::Message(range)),
            PING => Ok(Found::Ping(range)),
            CLOSE => bail!("the server closed the socket"),
            _ => self.find_frame(),
        }
    }
}

/// A frame of a client. Its mask is zero, which leaves the bytes as they are.
fn frame(kind: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | kind];
    match message.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length @ 126..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(message);
    frame
}
