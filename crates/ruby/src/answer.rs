//! The answer to a call.

use std::sync::Arc;

use parlor_vocab::OutputStream;

use crate::RubyError;

/// The answer to a call. Every call gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubyAnswer {
    /// The value as text, or the error.
    pub outcome: Result<String, RubyError>,
    /// What was printed since the previous answer, also if the outcome is an error.
    pub output: PrintedOutput,
    /// Why the previous worker was lost since the last answer, if it was. Everything that earlier calls defined is
    /// gone then.
    pub restart_reason: Option<String>,
    /// The workers that were lost up to this answer; `None` if the call did not come to a worker.
    pub losses: Option<WorkerLosses>,
}

/// The workers that were lost so far, each with everything that calls had defined in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerLosses {
    /// How many there were, including those that a caller had replaced.
    pub count: u64,
    /// Why the last one was lost.
    pub last_reason: Option<Arc<str>>,
}

impl RubyAnswer {
    /// The answer to a call that did not run.
    pub(crate) fn refusal(error: RubyError) -> Self {
        Self { outcome: Err(error), output: PrintedOutput::default(), restart_reason: None, losses: None }
    }
}

/// Printed text, in the order in which it was printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrintedOutput {
    /// The text in pieces. Two neighbouring pieces are of different streams.
    pub pieces: Vec<PrintedPiece>,
    /// How many more bytes were printed after these and dropped.
    pub omitted_bytes: u64,
}

/// Text that was printed to one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedPiece {
    /// Standard output or standard error. Text of child processes counts for the stream that Ruby itself wrote to
    /// last.
    pub stream: OutputStream,
    /// The text. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

impl PrintedOutput {
    /// The concatenated text, with a note at its end if some was dropped.
    pub fn text(&self) -> String {
        let mut text: String = self.pieces.iter().map(|piece| piece.text.as_str()).collect();
        if self.omitted_bytes > 0 {
            text.push_str(&format!("\n[… {} more bytes were printed …]\n", self.omitted_bytes));
        }
        text
    }

    /// Whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.omitted_bytes == 0
    }
}
