//! Foreground commands: the call waits until the command has ended.

use std::time::Duration;

use parlor_process::{ChildEvent, Process, ProcessNumber, spawn_in};
use parlor_vocab::{Failure, FailureCode, ProcessExit, StartProcess, StdioKind, ToolOutput};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::failure::failure;
use crate::progress::ToolProgress;
use crate::redact::StreamRedactor;
use crate::shell::capture::Capture;
use crate::shell::utf8::Utf8Decoder;
use crate::shell::{NO_OUTPUT, REPORT_QUEUE, STOP_GRACE, exit_text, spawn_failure};
use crate::tool::ToolContext;

/// How many bytes of one command's output are shown while it runs. The result shows more, up to its own limit.
pub const LIVE_BYTES: usize = 1 << 20;

/// Runs a command until it ends, its timeout passes or the call is cancelled. In each case the whole process group
/// has ended when this returns.
pub(super) async fn run(
    start: &StartProcess,
    timeout: Duration,
    context: &ToolContext,
    folder: &str,
) -> Result<ToolOutput, Failure> {
    let (sender, mut reports) = mpsc::channel(REPORT_QUEUE);
    let sandbox = context.sandbox.as_deref();
    let process =
        spawn_in(sandbox, start, ProcessNumber(0), sender).map_err(|error| spawn_failure(error, folder))?;
    let process = TerminateOnDrop(process);
    let began = Instant::now();
    let mut deadline = began + timeout;
    let (mut decoder, mut redactor) = (Utf8Decoder::default(), StreamRedactor::new(&context.redact));
    let mut capture = Capture::default();
    let mut live = LiveOutput::new(context.progress.clone());
    // Set once the command was terminated. From then on the loop only drains its output.
    let mut stopped = None;

    let exit = loop {
        tokio::select! {
            biased;
            () = context.cancel.cancelled(), if stopped.is_none() => {
                stopped = Some(Stopped::Cancelled);
                process.0.terminate(STOP_GRACE);
            }
            () = sleep_until(deadline), if stopped.is_none() => {
                let later = began + timeout + context.paused.so_far();
                if deadline < later {
                    deadline = later;
                    continue;
                }
                stopped = Some(Stopped::TimedOut);
                process.0.terminate(STOP_GRACE);
            }
            () = context.progress.room(), if live.waits && stopped.is_none() => live.waits = false,
            report = reports.recv(), if !live.waits || stopped.is_some() => match report.map(|report| report.event) {
                Some(ChildEvent::Output { bytes, .. }) => {
                    let text = decoder.push(&bytes);
                    let shown = redactor.push(&text);
                    capture.push(shown.as_bytes());
                    live.push(&shown);
                }
                Some(
                    ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_),
                ) => {}
                Some(ChildEvent::Exited(exit)) => break exit,
                None => break ProcessExit::Unknown,
            }
        }
    };
    let mut last = redactor.push(&decoder.finish()).into_owned();
    // A terminated command may have been in the middle of a secret.
    last.push_str(&if stopped.is_some() { redactor.finish_truncated() } else { redactor.finish() });
    capture.push(last.as_bytes());
    live.push(&last);
    let mut shown = capture.into_text();
    if start.stdio == StdioKind::Terminal {
        shown = shown.replace("\r\n", "\n");
    }
    result(stopped, exit, shown, timeout)
}

/// Why the call terminated its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    Cancelled,
    TimedOut,
}

fn result(
    stopped: Option<Stopped>,
    exit: ProcessExit,
    mut shown: String,
    timeout: Duration,
) -> Result<ToolOutput, Failure> {
    if shown.is_empty() {
        shown.push_str(NO_OUTPUT);
    }
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    match stopped {
        None => Ok(ToolOutput::text(format!("{shown}[{}]", exit_text(exit)))),
        Some(Stopped::TimedOut) => Err(failure(
            FailureCode::Timeout,
            format!(
                "the command was ended after {} ms, with all it had started; until then:\n{shown}",
                timeout.as_millis()
            ),
        )),
        Some(Stopped::Cancelled) => Err(failure(
            FailureCode::Cancelled,
            format!("the command was cancelled and ended, with all it had started; until then:\n{shown}"),
        )),
    }
}

/// Terminates the command if the call is dropped before the command has ended.
struct TerminateOnDrop(Process);

impl Drop for TerminateOnDrop {
    fn drop(&mut self) {
        self.0.terminate(STOP_GRACE);
    }
}

/// Sends output to the progress channel, up to [`LIVE_BYTES`].
struct LiveOutput {
    progress: ToolProgress,
    left: usize,
    /// Whether to wait for room in the channel before reading more output.
    waits: bool,
}

impl LiveOutput {
    fn new(progress: ToolProgress) -> Self {
        Self { progress, left: LIVE_BYTES, waits: false }
    }

    fn push(&mut self, text: &str) {
        if self.left == 0 || text.is_empty() {
            return;
        }
        let (now, later) = text.split_at(text.floor_char_boundary(self.left));
        self.left -= now.len();
        self.progress.push(now);
        if self.left == 0 || !later.is_empty() {
            self.left = 0;
            self.progress
                .push(&format!("\n[{LIVE_BYTES} bytes are shown live; the result will show the end]\n"));
        }
        self.waits = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn live_output_has_a_limit_and_reports_it_once() {
        let (progress, mut reader) = crate::progress::progress();
        let mut live = LiveOutput::new(progress);
        live.push(&"x".repeat(LIVE_BYTES - 1));
        live.push("yz");
        live.push("never shown");
        drop(live);
        let shown = reader.next_text().await.unwrap();
        assert!(shown.contains("xy\n[1048576 bytes are shown live; the result will show the end]\n"));
        assert!(!shown.contains('z') && !shown.contains("never"));
        assert_eq!(reader.next_text().await, None);
    }

    #[test]
    fn the_last_line_says_how_the_command_ended() {
        let ok = |exit, shown: &str| result(None, exit, shown.to_owned(), SECOND).unwrap().text;
        assert_eq!(ok(ProcessExit::Code(0), "hi\n"), "hi\n[exit code 0]");
        assert_eq!(ok(ProcessExit::Code(3), "no newline"), "no newline\n[exit code 3]");
        assert_eq!(ok(ProcessExit::Signal(9), ""), "[no output]\n[killed by signal 9]");
    }

    const SECOND: Duration = Duration::from_secs(1);
}
