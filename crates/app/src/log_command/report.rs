//! What `parlor log copy` prints: a line for each problem, and a summary.

use std::io::{self, Write};
use std::process::ExitCode;

use parlor_engine::MediaError;
use parlor_log::copy::{CopyReport, SessionCopy};
use parlor_vocab::{MediaId, SessionId};
use serde::Serialize;

use super::media::MediaReport;
use crate::json;
use crate::text::TerminalSanitizer;

/// Prints lines, and remembers the first failure to do so.
pub(super) struct Reporter<'o> {
    as_json: bool,
    out: &'o mut dyn Write,
    written: io::Result<()>,
    target_only: u64,
}

#[derive(Serialize)]
struct ProblemLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    problem: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<u64>,
    text: String,
}

#[derive(Serialize)]
struct CopySummaryLine {
    #[serde(rename = "type")]
    kind: &'static str,
    complete: bool,
    sessions: u64,
    copied_sessions: u64,
    copied_events: u64,
    compared_events: u64,
    incomplete_sessions: u64,
    longer_in_target: u64,
    files: u64,
    compared_files: u64,
    missing_files: u64,
    damaged_files: u64,
}

impl<'o> Reporter<'o> {
    pub(super) fn new(as_json: bool, out: &'o mut dyn Write) -> Self {
        Self { as_json, out, written: Ok(()), target_only: 0 }
    }

    /// Notes what became of a session, and prints a line if it is not complete.
    pub(super) fn session(&mut self, id: &SessionId, outcome: &SessionCopy) {
        let (problem, event, text) = match outcome {
            SessionCopy::Complete { target_only, .. } => {
                self.target_only += u64::from(*target_only > 0);
                return;
            }
            SessionCopy::Differs { seq } => (
                "differs",
                Some(seq.0),
                format!(
                    "event {} of the target is not that of the source; the target was left as it is",
                    seq.0
                ),
            ),
            SessionCopy::RecordDiffers => (
                "record_differs",
                None,
                "the target's record of the session (title, times, counts) is not that of the source"
                    .to_owned(),
            ),
            SessionCopy::Held { by } => {
                ("held", None, format!("it is in use in the target by {by}; close it there and copy again"))
            }
            SessionCopy::Unreadable { seq, reason } => (
                "unreadable",
                Some(seq.0),
                format!(
                    "event {} of the source cannot be read ({reason}); what comes before it may be copied",
                    seq.0
                ),
            ),
        };
        let session = Some(id.as_str());
        self.problem(&ProblemLine { kind: "problem", session, file: None, problem, event, text });
    }

    /// Prints a line for a file of the source that cannot be copied.
    pub(super) fn file(&mut self, id: &MediaId, error: &MediaError) {
        let problem = if matches!(error, MediaError::Missing(_)) { "missing" } else { "damaged" };
        let (file, text) = (Some(id.as_str()), format!("in the source: {error}"));
        self.problem(&ProblemLine { kind: "problem", session: None, file, problem, event: None, text });
    }

    fn problem(&mut self, line: &ProblemLine<'_>) {
        if self.written.is_err() {
            return;
        }
        self.written = if self.as_json {
            json::write_line(self.out, line)
        } else {
            let subject = line.session.map_or("file", |_| "session");
            let id = line.session.or(line.file).unwrap_or_default();
            // A client may have chosen the id.
            let text = TerminalSanitizer::default().sanitize(&format!("{subject} {id}: {}", line.text));
            writeln!(self.out, "{text}")
        };
    }

    /// Prints the summary. Fails if a line could not be printed.
    pub(super) fn summary(self, files: &MediaReport, report: &CopyReport) -> anyhow::Result<ExitCode> {
        self.written?;
        let is_complete = report.incomplete_sessions == 0 && files.damaged == 0;
        let CopyReport { sessions, copied_sessions, copied_events, compared_events, incomplete_sessions } =
            *report;
        if self.as_json {
            let line = CopySummaryLine {
                kind: "copied",
                complete: is_complete,
                sessions,
                copied_sessions,
                copied_events,
                compared_events,
                incomplete_sessions,
                longer_in_target: self.target_only,
                files: files.files,
                compared_files: files.compared,
                missing_files: files.missing,
                damaged_files: files.damaged,
            };
            json::write_line(self.out, &line)?;
        } else {
            writeln!(
                self.out,
                "Copied: {copied_events} events in {copied_sessions} of {sessions} sessions."
            )?;
            writeln!(
                self.out,
                "Compared: {compared_events} events and {} of {} files are the same in both logs.",
                files.compared, files.files
            )?;
            if self.target_only > 0 {
                writeln!(self.out, "{} sessions have further events in the target.", self.target_only)?;
            }
            if files.missing > 0 {
                writeln!(self.out, "{} files are missing in the source.", files.missing)?;
            }
            if !is_complete {
                writeln!(
                    self.out,
                    "Not complete: {incomplete_sessions} sessions and {} damaged files; see above.",
                    files.damaged
                )?;
            }
        }
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
