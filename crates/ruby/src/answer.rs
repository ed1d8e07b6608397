//! What comes of a call.

use parlor_vocab::OutputStream;

use crate::RubyError;

/// What came of a call. There is exactly one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubyAnswer {
    /// The value as text, or why there is none.
    pub outcome: Result<String, RubyError>,
    /// What was printed since the answer before, also where the outcome is an error.
    pub output: PrintedOutput,
    /// How the worker that earlier calls ran in was lost, if that has not been told yet: what they
    /// defined is gone.
    pub lost_before: Option<String>,
}

impl RubyAnswer {
    /// An answer to a call that never ran.
    pub(crate) fn refusal(error: RubyError) -> Self {
        Self { outcome: Err(error), output: PrintedOutput::default(), lost_before: None }
    }
}

/// What was printed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrintedOutput {
    /// The text. Neighbours are of different streams.
    pub pieces: Vec<PrintedPiece>,
    /// How many bytes came after these and were not kept.
    pub cut: u64,
}

/// Text that was printed to one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedPiece {
    /// Which stream, standard output or error. What child processes write is of the one that Ruby
    /// itself has written to last.
    pub stream: OutputStream,
    /// What. Bytes that are no letters are replaced.
    pub text: String,
}

impl PrintedOutput {
    /// All text as one, with a note if something was cut.
    pub fn text(&self) -> String {
        let mut text: String = self.pieces.iter().map(|piece| piece.text.as_str()).collect();
        if self.cut > 0 {
            text.push_str(&format!("\n[… {} more bytes were printed …]\n", self.cut));
        }
        text
    }

    /// Whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.cut == 0
    }
}
