//! A command that the call waits for.

use std::time::Duration;

use parlor_process::{Process, ProcessNews, ProcessNumber, spawn};
use parlor_vocab::{Failure, FailureCode, ProcessExit, StartProcess, StdioKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::code::failure;
use crate::progress::ToolProgress;
use crate::redact::StreamRedactor;
use crate::shell::capture::Capture;
use crate::shell::letters::Utf8Stream;
use crate::shell::{REPORTS, STOP_GRACE, ending_in_words, not_started};
use crate::tool::{ToolContext, ToolResultOutput};

/// How much output of one command is shown live. What follows is in the result, up to its own limit.
pub const LIVE_BYTES: usize = 1 << 20;

/// Runs a command to its end, to its timeout, or until the call is cancelled. In each case nothing
/// of its process group is left afterwards.
pub(super) async fn run(
    start: &StartProcess,
    timeout: Duration,
    context: &ToolContext,
    folder: &str,
) -> Result<ToolResultOutput, Failure> {
    let (sender, mut reports) = mpsc::channel(REPORTS);
    let process = spawn(start, ProcessNumber(0), sender).map_err(|error| not_started(error, folder))?;
    let process = EndWhenDropped(process);
    let deadline = Instant::now() + timeout;
    let (mut letters, mut sieve) = (Utf8Stream::default(), StreamRedactor::new(&context.redact));
    let mut capture = Capture::default();
    let mut live = Live::new(context.progress.clone());
    // Why it was told to end, if it was. From then on it is only read out.
    let mut told = None;

    let ending = loop {
        tokio::select! {
            biased;
            () = context.cancel.cancelled(), if told.is_none() => {
                told = Some(Told::Cancelled);
                process.0.terminate(STOP_GRACE);
            }
            () = sleep_until(deadline), if told.is_none() => {
                told = Some(Told::TimedOut);
                process.0.terminate(STOP_GRACE);
            }
            () = context.progress.room(), if live.waits && told.is_none() => live.waits = false,
            report = reports.recv(), if !live.waits || told.is_some() => match report.map(|report| report.news) {
                Some(ProcessNews::Output { bytes, .. }) => {
                    let text = letters.push(&bytes);
                    let shown = sieve.push(&text);
                    capture.push(shown.as_bytes());
                    live.push(&shown);
                }
                Some(ProcessNews::WriteAccepted(_) | ProcessNews::WriteLost(_)) => {}
                Some(ProcessNews::Exited(ending)) => break ending,
                None => break ProcessExit::Unknown,
            }
        }
    };
    let mut last = sieve.push(&letters.finish()).into_owned();
    // What was told to end may have been cut off within a secret.
    last.push_str(&if told.is_some() { sieve.rest_of_cut() } else { sieve.rest() });
    capture.push(last.as_bytes());
    live.push(&last);
    let mut shown = capture.into_text();
    if start.stdio == StdioKind::Terminal {
        shown = shown.replace("\r\n", "\n");
    }
    result(told, ending, shown, timeout)
}

/// Why a command was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Cancelled,
    TimedOut,
}

fn result(
    told: Option<Told>,
    ending: ProcessExit,
    mut shown: String,
    timeout: Duration,
) -> Result<ToolResultOutput, Failure> {
    if shown.is_empty() {
        shown.push_str("[no output]");
    }
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    match told {
        None => Ok(ToolResultOutput::text(format!("{shown}[{}]", ending_in_words(ending)))),
        Some(Told::TimedOut) => Err(failure(
            FailureCode::Timeout,
            format!(
                "the command was ended after {} ms, with all it had started; until then:\n{shown}",
                timeout.as_millis()
            ),
        )),
        Some(Told::Cancelled) => Err(failure(
            FailureCode::Cancelled,
            format!("the command was cancelled and ended, with all it had started; until then:\n{shown}"),
        )),
    }
}

/// A call that is dropped in the middle does not leave its command behind.
struct EndWhenDropped(Process);

impl Drop for EndWhenDropped {
    fn drop(&mut self) {
        self.0.terminate(STOP_GRACE);
    }
}

/// Passes output on as it comes, up to [`LIVE_BYTES`].
struct Live {
    progress: ToolProgress,
    left: usize,
    /// Whether the watcher should take something before more is read.
    waits: bool,
}

impl Live {
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
    async fn live_output_has_a_limit_and_says_so_once() {
        let (progress, mut reader) = crate::progress::progress();
        let mut live = Live::new(progress);
        live.push(&"x".repeat(LIVE_BYTES - 1));
        live.push("yz");
        live.push("never shown");
        drop(live);
        let shown = reader.next().await.unwrap();
        assert!(shown.contains("xy\n[1048576 bytes are shown live; the result will show the end]\n"));
        assert!(!shown.contains('z') && !shown.contains("never"));
        assert_eq!(reader.next().await, None);
    }

    #[test]
    fn the_end_is_told_in_the_last_line() {
        let ok = |ending, shown: &str| result(None, ending, shown.to_owned(), SECOND).unwrap().text;
        assert_eq!(ok(ProcessExit::Code(0), "hi\n"), "hi\n[exit code 0]");
        assert_eq!(ok(ProcessExit::Code(3), "no newline"), "no newline\n[exit code 3]");
        assert_eq!(ok(ProcessExit::Signal(9), ""), "[no output]\n[killed by signal 9]");
    }

    const SECOND: Duration = Duration::from_secs(1);
}
