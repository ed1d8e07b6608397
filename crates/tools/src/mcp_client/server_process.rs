//! The process of a server: lines of its output go to `rmcp`, the end of its error output is kept.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_process::{
    ChildEvent, Process, ProcessNumber, ProcessReport, Sandbox, SpawnError, WriteId, spawn_in,
};
use parlor_vocab::{OutputStream, ProcessExit, ProcessId, StartProcess, StdioKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;

use super::message_budget::MessageBudget;
use super::{MCP_MESSAGE_BYTES, MCP_STDERR_BYTES};

/// How many bytes may be on their way between the process and `rmcp`, in each direction.
const PIPE_BYTES: usize = 64 << 10;

/// How many reports of the process may wait. Then the process waits.
const REPORT_QUEUE: usize = 4;

/// How deep a message may be nested. `rmcp` reads at most 127 levels.
const MESSAGE_DEPTH: usize = 120;

/// How long a process may take to end after SIGTERM.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// A running server. Dropping it ends the process with all that it started.
pub(super) struct ServerProcess {
    process: Arc<Process>,
    notes: Arc<Mutex<Notes>>,
}

/// What is known of a process beside its messages.
#[derive(Default)]
struct Notes {
    stderr: VecDeque<u8>,
    /// How the process ended, or why it was ended.
    ending: Option<String>,
}

impl ServerProcess {
    /// Starts a server. Its messages go through the returned stream.
    pub(super) fn start(
        program: &str,
        args: &[String],
        env: &[(String, String)],
        folder: &Path,
        sandbox: Option<&Sandbox>,
        budget: &Arc<MessageBudget>,
    ) -> Result<(Self, DuplexStream), SpawnError> {
        let start = StartProcess {
            process: ProcessId::parse("mcp").expect("the id is short"),
            program: program.to_owned(),
            args: args.to_vec(),
            arg0: None,
            folder: folder.to_owned(),
            env: env.to_vec(),
            stdio: StdioKind::PipesWithInput,
            retain_bytes: 0,
        };
        let (sender, reports) = mpsc::channel(REPORT_QUEUE);
        let process = Arc::new(spawn_in(sandbox, &start, ProcessNumber(0), sender)?);
        let notes = Arc::new(Mutex::new(Notes::default()));
        let (near, far) = duplex(PIPE_BYTES);
        let (input, output) = split(far);
        let (budget, kept) = (Arc::clone(budget), Arc::clone(&notes));
        tokio::spawn(pass_output(reports, output, Arc::clone(&process), kept, budget));
        tokio::spawn(pass_input(input, Arc::clone(&process)));
        Ok((Self { process, notes }, near))
    }

    /// Why the server is gone, and what it said last; empty while it runs and says nothing.
    pub(super) fn last_words(&self) -> String {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let stderr: Vec<u8> = notes.stderr.iter().copied().collect();
        let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
        match (&notes.ending, stderr.is_empty()) {
            (Some(ending), true) => ending.clone(),
            (Some(ending), false) => format!("{ending}; its last error output:\n{stderr}"),
            (None, true) => String::new(),
            (None, false) => format!("its last error output:\n{stderr}"),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.process.terminate(STOP_GRACE);
    }
}

/// Passes whole lines of the process on until it ends.
async fn pass_output(
    mut reports: mpsc::Receiver<ProcessReport>,
    mut output: WriteHalf<DuplexStream>,
    process: Arc<Process>,
    notes: Arc<Mutex<Notes>>,
    budget: Arc<MessageBudget>,
) {
    let note = |ending: String| {
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.ending.get_or_insert(ending);
    };
    let mut lines = MessageLines::default();
    let mut is_read = true;
    while let Some(report) = reports.recv().await {
        if let ChildEvent::Output { stream, bytes } = &report.event
            && is_read
        {
            let is_message = |byte: &&u8| *stream != OutputStream::Stderr && **byte == b'\n';
            if let Err(flood) = budget.charge(bytes.iter().filter(is_message).count(), bytes.len()) {
                note(flood.to_string());
                process.terminate(STOP_GRACE);
                is_read = false;
                let _ = output.shutdown().await;
            }
        }
        match report.event {
            ChildEvent::Output { stream: OutputStream::Stderr, bytes } => {
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                let kept = bytes.len().saturating_sub(MCP_STDERR_BYTES);
                notes.stderr.extend(bytes.get(kept..).unwrap_or_default());
                let excess = notes.stderr.len().saturating_sub(MCP_STDERR_BYTES);
                notes.stderr.drain(..excess);
            }
            ChildEvent::Output { bytes, .. } if is_read => match lines.push(&bytes) {
                Ok(messages) => is_read = output.write_all(&messages).await.is_ok(),
                Err(Unreadable(reason)) => {
                    note(format!("it was ended, because it sent a message {reason}"));
                    process.terminate(STOP_GRACE);
                    is_read = false;
                    let _ = output.shutdown().await;
                }
            },
            ChildEvent::Output { .. }
            | ChildEvent::WriteAccepted(_)
            | ChildEvent::WriteLost(_)
            | ChildEvent::LeaderExited(_) => {}
            ChildEvent::Exited(exit) => {
                note(match exit {
                    ProcessExit::Code(code) => format!("it exited with code {code}"),
                    ProcessExit::Signal(signal) => format!("it was killed by signal {signal}"),
                    ProcessExit::Terminated | ProcessExit::Unknown => "it was ended".to_owned(),
                });
                break;
            }
        }
    }
    let _ = output.shutdown().await;
}

/// Passes messages to the process until `rmcp` closes the stream.
async fn pass_input(mut input: ReadHalf<DuplexStream>, process: Arc<Process>) {
    let mut buffer = vec![0; PIPE_BYTES];
    let mut next = 0;
    while let Ok(count @ 1..) = input.read(&mut buffer).await {
        next += 1;
        let bytes = buffer.iter().take(count).copied().collect();
        // A process that reads nothing while megabytes wait for it does not get more.
        if process.write(WriteId(next), bytes).is_err() {
            break;
        }
    }
    process.terminate(STOP_GRACE);
}

/// A message that `rmcp` would drop without a word, so that its request would never be answered.
struct Unreadable(String);

/// Splits output into lines, and drops those that are no messages, such as a banner.
#[derive(Default)]
struct MessageLines {
    buffer: Vec<u8>,
}

impl MessageLines {
    /// The complete messages after `bytes`, each with its newline.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let mut messages = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.buffer.len() + piece.len() > MCP_MESSAGE_BYTES {
                return Err(Unreadable(format!("of more than {MCP_MESSAGE_BYTES} bytes")));
            }
            self.buffer.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                // Frees a long line.
                let mut line = std::mem::take(&mut self.buffer);
                if line.trim_ascii_start().starts_with(b"{") {
                    if depth(&line) > MESSAGE_DEPTH {
                        return Err(Unreadable(format!("that is nested deeper than {MESSAGE_DEPTH} levels")));
                    }
                    messages.append(&mut line);
                }
            }
        }
        Ok(messages)
    }
}

/// How deep the arrays and objects of a JSON text are nested.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut is_in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b'{' | b'[' if !is_in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !is_in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_can_be_messages_are_passed_on() {
        let mut lines = MessageLines::default();
        let text = "Server ready!\n{\"a\":1}\n\n  {\"b\":2}\r\n[1]\n{\"c\"";
        let passed: Vec<u8> = text.bytes().flat_map(|byte| lines.push(&[byte]).ok().unwrap()).collect();
        assert_eq!(String::from_utf8(passed).unwrap(), "{\"a\":1}\n  {\"b\":2}\r\n");
        assert_eq!(lines.push(b":3}\n").ok().unwrap(), b"{\"c\":3}\n");
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let mut lines = MessageLines::default();
        assert!(lines.push(&vec![b'x'; MCP_MESSAGE_BYTES]).is_ok());
        assert!(lines.push(b"x").is_err());
    }

    #[test]
    fn a_message_that_is_nested_too_deeply_is_refused() {
        let nested =
            |levels: usize| format!("{{\"[[\":{}{}}}\n", "[".repeat(levels - 1), "]".repeat(levels - 1));
        assert!(MessageLines::default().push(nested(MESSAGE_DEPTH).as_bytes()).is_ok());
        assert!(MessageLines::default().push(nested(MESSAGE_DEPTH + 1).as_bytes()).is_err());
    }
}
