//! An exec server under measurement, and a client that costs as little as possible: it recognizes replies by a search for a
//! few bytes, and counts payload without decoding it.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use memchr::memmem;
use serde_json::{Value, json};

use crate::process_status::status_number;
use crate::profile::end;

/// The protocol of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `command/exec`, which parlor serves.
    V0,
    /// `process/start`, which the current version of the peer serves.
    Current,
}

/// The most bytes that one read of a server's output takes.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// How to start a server.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: &'static [&'static str],
    pub(crate) dialect: Dialect,
}

/// A running server, past its handshake.
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    dialect: Dialect,
    next_id: u64,
    /// Bytes of the server. Those in `start..filled` are not handled yet, those from `searched` on not searched for a
    /// newline.
    buffer: Vec<u8>,
    start: usize,
    searched: usize,
    filled: usize,
}

impl Server {
    pub(crate) fn start(program: &Program) -> anyhow::Result<Self> {
        let mut child = Command::new(&program.path)
            .args(program.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.path.display()))?;
        let input = child.stdin.take().context("stdin is piped")?;
        let output = child.stdout.take().context("stdout is piped")?;
        let mut server = Self {
            child,
            input,
            output,
            dialect: program.dialect,
            next_id: 1,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            filled: 0,
        };
        let params = match program.dialect {
            Dialect::V0 => json!({"clientName": "bench"}),
            Dialect::Current => json!({"clientName": "bench", "resumeSessionId": null}),
        };
        let id = server.request("initialize", &params)?;
        server.read_until(&format!(r#""id":{id}"#), |_| ())?;
        server.send(&json!({"method": "initialized", "params": {}}))?;
        Ok(server)
    }

    /// Runs `argv` until it exits, and returns how many bytes of output it had.
    pub(crate) fn run(&mut self, argv: &[&str]) -> anyhow::Result<usize> {
        let process_id = format!("p{}", self.next_id);
        let (method, cwd, last) = match self.dialect {
            Dialect::V0 => ("command/exec", "/", "command/exec/exited"),
            Dialect::Current => ("process/start", "file:///", "process/closed"),
        };
        let params = json!({"processId": process_id, "argv": argv, "cwd": cwd, "env": {}, "tty": false});
        self.request(method, &params)?;
        let mut bytes = 0;
        self.read_until(last, |line| bytes += payload(line))?;
        Ok(bytes)
    }

    /// The peak of the server's resident memory, in KiB.
    pub(crate) fn peak_kib(&self) -> anyhow::Result<f64> {
        status_number(self.child.id(), "VmHWM:")
    }

    /// Asks the server to end, and waits for it.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        end(&mut self.child)
    }

    fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        Ok(self.input.write_all(&line)?)
    }

    /// Reads lines until one contains `mark`, and calls `on_line` with each. Lines are not copied out of the buffer: copies
    /// would cost the client as much as the server's own work.
    fn read_until(&mut self, mark: &str, mut on_line: impl FnMut(&[u8])) -> anyhow::Result<()> {
        loop {
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[self.searched..self.filled]) {
                let line = &self.buffer[self.start..self.searched + length];
                self.start = self.searched + length + 1;
                self.searched = self.start;
                let head = &line[..line.len().min(256)];
                if memmem::find(head, br#""error":"#).is_some() {
                    bail!("the server refused: {}", String::from_utf8_lossy(head));
                }
                on_line(line);
                if memmem::find(head, mark.as_bytes()).is_some() {
                    return Ok(());
                }
            }
            self.searched = self.filled;
            if self.buffer.len() - self.filled < READ_BYTES {
                self.buffer.copy_within(self.start..self.filled, 0);
                self.filled -= self.start;
                self.searched -= self.start;
                self.start = 0;
                self.buffer.resize(self.buffer.len().max(self.filled + 2 * READ_BYTES), 0);
            }
            match self.output.read(&mut self.buffer[self.filled..self.filled + READ_BYTES])? {
                0 => bail!("the server ended before it sent {mark}"),
                count => self.filled += count,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many bytes the base64 in this line decodes to.
pub(crate) fn payload(line: &[u8]) -> usize {
    let mark = br#""chunk":""#;
    let Some(start) = memmem::find(&line[..line.len().min(512)], mark).map(|at| at + mark.len()) else {
        return 0;
    };
    let Some(length) = memchr::memchr(b'"', &line[start..]) else { return 0 };
    let padding = line[start..start + length].iter().rev().take_while(|byte| **byte == b'=').count();
    length / 4 * 3 - padding
}
