//! All error codes and error texts of the supr protocol, also `RUN_CANCELLED` of a stopped run. No other file spells
//! one.

use parlor_vocab::{SessionId, SessionRefusal};

use super::MAX_ATTACHMENTS;

/// Why the door refuses a frame: the content of an `error` frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameError {
    /// The code for programs.
    pub(super) code: &'static str,
    /// The text for people.
    pub(super) message: String,
    /// The key of the refused message, if it has one.
    pub(super) key: Option<String>,
}

impl FrameError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), key: None }
    }

    /// The same error for the message with this key.
    pub(super) fn for_key(self, key: Option<&String>) -> Self {
        Self { key: key.cloned(), ..self }
    }
}

/// How much of a client's text an error message quotes, in characters.
pub(super) const MAX_QUOTED_CHARS: usize = 200;

/// The values of `reasoning`.
const REASONING: &str = "off|low|medium|high|xhigh|adaptive";

const INVALID_MEDIA_DATA: &str = "invalid_media_data";
const MEDIA_WRITE_FAILED: &str = "media_write_failed";
const INVALID_REASONING: &str = "invalid_reasoning";

pub(super) fn unparsable() -> FrameError {
    FrameError::new("invalid_message", "failed to parse message")
}

pub(super) fn unknown_type(kind: &str) -> FrameError {
    FrameError::new("unknown_type", format!("unknown message type: {}", quote_of(kind)))
}

pub(super) fn empty_content() -> FrameError {
    FrameError::new("empty_content", "message content is empty")
}

pub(super) fn unknown_when_busy() -> FrameError {
    FrameError::new("invalid_when_busy", "when_busy must be \"queue\" or \"steer\"")
}

pub(super) fn watched(session: &SessionId) -> FrameError {
    let session = quote_of(session.as_str());
    let message =
        format!("this connection only watches session {session:?}; connect with it as session_id to send");
    FrameError::new("read_only", message)
}

pub(super) fn reasoning_not_a_string() -> FrameError {
    FrameError::new(INVALID_REASONING, format!("reasoning must be a string ({REASONING})"))
}

pub(super) fn unknown_reasoning(value: &str) -> FrameError {
    let value = quote_of(value);
    FrameError::new(INVALID_REASONING, format!("invalid reasoning {value:?}. Allowed: {REASONING}"))
}

/// The beginning of a client's text, which may be as long as a frame.
fn quote_of(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

pub(super) fn attachments_not_an_array() -> FrameError {
    FrameError::new(INVALID_MEDIA_DATA, "attachments must be an array")
}

pub(super) fn no_attachments() -> FrameError {
    FrameError::new(INVALID_MEDIA_DATA, "attachments array is empty")
}

pub(super) fn too_many_attachments() -> FrameError {
    FrameError::new(INVALID_MEDIA_DATA, format!("attachments array has more than {MAX_ATTACHMENTS} items"))
}

pub(super) fn attachment_not_an_object(index: usize) -> FrameError {
    FrameError::new(INVALID_MEDIA_DATA, format!("attachment {index} is not an object"))
}

pub(super) fn attachment_has_no_content(index: usize) -> FrameError {
    FrameError::new(INVALID_MEDIA_DATA, format!("attachment {index}: either data or url is required"))
}

pub(super) fn no_content() -> FrameError {
    FrameError::new(INVALID_MEDIA_DATA, "either data or url field is required")
}

pub(super) fn no_question() -> FrameError {
    FrameError::new("invalid_message", "question_id is missing")
}

pub(super) fn unknown_answer() -> FrameError {
    FrameError::new("invalid_message", "answer must be once, always or deny")
}

pub(super) fn not_downloaded() -> FrameError {
    FrameError::new(MEDIA_WRITE_FAILED, "failed to download media from url")
}

pub(super) fn too_large() -> FrameError {
    FrameError::new(MEDIA_WRITE_FAILED, "media payload exceeds maximum allowed size")
}

pub(super) fn not_base64() -> FrameError {
    FrameError::new(MEDIA_WRITE_FAILED, "failed to decode base64 data")
}

pub(super) fn not_stored(reason: &str) -> FrameError {
    FrameError::new(MEDIA_WRITE_FAILED, format!("failed to write media file: {reason}"))
}

/// The error of a refused `run.stop`.
pub(super) fn stop_refused(refusal: &SessionRefusal) -> FrameError {
    match refusal {
        SessionRefusal::NoActiveRun | SessionRefusal::UnknownSession(_) => {
            FrameError::new("no_active_run", "no active run to stop")
        }
        SessionRefusal::WrongRun { asked, active } => FrameError::new(
            "run_mismatch",
            format!("requested run_id {:?} does not match active run {:?}", asked.as_str(), active.as_str()),
        ),
        SessionRefusal::SessionHeld { .. }
        | SessionRefusal::NoNode { .. }
        | SessionRefusal::SessionExists(_)
        | SessionRefusal::TooManySessions { .. }
        | SessionRefusal::Busy { .. }
        | SessionRefusal::QueueFull { .. }
        | SessionRefusal::TooManyRuns { .. }
        | SessionRefusal::Compacting
        | SessionRefusal::BackgroundProcesses
        | SessionRefusal::NotCompacted { .. }
        | SessionRefusal::UnknownMessage(_)
        | SessionRefusal::UnknownQuestion(_)
        | SessionRefusal::QuestionSettled { .. }
        | SessionRefusal::InvalidAnswer { .. }
        | SessionRefusal::UnknownAgent(_)
        | SessionRefusal::TooManyRequests { .. }
        | SessionRefusal::TooManyQueuedBytes { .. }
        | SessionRefusal::KeyTooLong { .. }
        | SessionRefusal::TitleTooLong { .. }
        | SessionRefusal::TitleBlank
        | SessionRefusal::TooManyWatched { .. }
        | SessionRefusal::MediaUnavailable { .. }
        | SessionRefusal::LogUnavailable { .. }
        | SessionRefusal::RequestTooLong { .. }
        | SessionRefusal::OutcomeUnknown(_)
        | SessionRefusal::OwnerSilent { .. }
        | SessionRefusal::Closing { .. }
        | SessionRefusal::Internal => {
            FrameError::new("stop_failed", format!("failed to stop active run: {refusal}"))
        }
    }
}

/// The error of a refused `question.answer`.
pub(super) fn answer_refused(refusal: &SessionRefusal) -> FrameError {
    let is_unknown =
        matches!(refusal, SessionRefusal::UnknownQuestion(_) | SessionRefusal::UnknownSession(_));
    let code = if matches!(refusal, SessionRefusal::QuestionSettled { .. }) {
        "question_answered"
    } else if is_unknown {
        "unknown_question"
    } else if matches!(refusal, SessionRefusal::InvalidAnswer { .. }) {
        "invalid_message"
    } else {
        input_refused(refusal).0
    };
    FrameError::new(code, refusal.to_string())
}

/// The code of a refused input, and whether the client may succeed with the same input later.
pub(super) fn input_refused(refusal: &SessionRefusal) -> (&'static str, bool) {
    match refusal {
        SessionRefusal::UnknownAgent(_) => ("AGENT_NOT_FOUND", false),
        SessionRefusal::Busy { .. }
        | SessionRefusal::QueueFull { .. }
        | SessionRefusal::TooManyRuns { .. }
        | SessionRefusal::Compacting
        | SessionRefusal::TooManyRequests { .. }
        | SessionRefusal::TooManyQueuedBytes { .. } => ("RUN_IN_PROGRESS", true),
        SessionRefusal::SessionHeld { .. }
        | SessionRefusal::NoNode { .. }
        | SessionRefusal::TooManySessions { .. } => ("SESSION_IN_USE", true),
        // The same input is refused again; after an unknown outcome, it could start a second run.
        SessionRefusal::RequestTooLong { .. }
        | SessionRefusal::KeyTooLong { .. }
        | SessionRefusal::TitleTooLong { .. }
        | SessionRefusal::TitleBlank
        | SessionRefusal::OutcomeUnknown(_)
        | SessionRefusal::OwnerSilent { .. } => ("INTERNAL_ERROR", false),
        SessionRefusal::UnknownSession(_)
        | SessionRefusal::SessionExists(_)
        | SessionRefusal::NoActiveRun
        | SessionRefusal::WrongRun { .. }
        | SessionRefusal::BackgroundProcesses
        | SessionRefusal::NotCompacted { .. }
        | SessionRefusal::UnknownMessage(_)
        | SessionRefusal::UnknownQuestion(_)
        | SessionRefusal::QuestionSettled { .. }
        | SessionRefusal::InvalidAnswer { .. }
        | SessionRefusal::TooManyWatched { .. }
        | SessionRefusal::MediaUnavailable { .. }
        | SessionRefusal::LogUnavailable { .. }
        | SessionRefusal::Closing { .. }
        | SessionRefusal::Internal => ("INTERNAL_ERROR", true),
    }
}

/// The code of a stopped run.
pub(super) const RUN_CANCELLED: &str = "RUN_CANCELLED";

/// The code of every tool failure. The tool's own code stands beside it as `reason_code`.
pub(super) const TOOL_ERROR: &str = "TOOL_ERROR";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quote_is_truncated() {
        let long = "\u{e4}".repeat(MAX_QUOTED_CHARS + 1);
        let count_umlauts = |error: &FrameError| error.message.chars().filter(|c| *c == '\u{e4}').count();
        assert_eq!(count_umlauts(&unknown_type(&long)), MAX_QUOTED_CHARS);
        assert_eq!(count_umlauts(&unknown_reasoning(&long)), MAX_QUOTED_CHARS);
    }
}
