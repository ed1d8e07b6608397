//! All error codes and error texts of the loaf protocol. Clients recognise most errors by their texts, so the texts are
//! part of the contract; `reason` is a short code for the same. No other file spells any of them.

use parlor_vocab::{FileError, LoginFailure, SessionRefusal};
use serde::Serialize;

use super::{
    MAX_IMAGE_BYTES, MAX_IMAGES, MAX_LINE_BYTES, MAX_LOGINS, MAX_QUEUED, MAX_QUOTED_CHARS, MAX_SESSIONS,
    MAX_STEERS, MAX_TURNS, PROTOCOL_VERSION,
};

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// The reason of a request with wrong parameters.
const INVALID_PARAMS_REASON: &str = "invalid_params";
const INTERNAL_ERROR: i32 = -32603;
const SERVER_ERROR: i32 = -32000;

/// Why the server refuses a request: the `error` member of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FrameError {
    code: i32,
    message: String,
    data: Data,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Data {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supported: Option<&'static str>,
}

impl FrameError {
    fn new(code: i32, reason: &'static str, message: impl Into<String>) -> Self {
        let data = Data { reason, field: None, method: None, supported: None };
        Self { code, message: message.into(), data }
    }

    fn in_field(self, field: &'static str) -> Self {
        Self { data: Data { field: Some(field), ..self.data }, ..self }
    }

    /// The text for people.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The code for programs.
    #[cfg(test)]
    pub(super) fn reason(&self) -> &'static str {
        self.data.reason
    }
}

/// An application error. All of them have the same JSON-RPC code.
fn failed(reason: &'static str, message: impl Into<String>) -> FrameError {
    FrameError::new(INTERNAL_ERROR, reason, message)
}

/// The beginning of a client's text, which may be as long as a line.
fn quote_of(text: &str) -> &str {
    text.char_indices().nth(MAX_QUOTED_CHARS).map_or(text, |(end, _)| text.split_at(end).0)
}

pub(super) fn not_json(detail: &str) -> FrameError {
    FrameError::new(PARSE_ERROR, "parse_error", format!("parse error: {detail}"))
}

pub(super) fn batch() -> FrameError {
    FrameError::new(INVALID_REQUEST, "batch_not_supported", "batch requests are not supported")
}

pub(super) fn invalid_request() -> FrameError {
    FrameError::new(INVALID_REQUEST, "invalid_request", "invalid request")
}

pub(super) fn unknown_method(method: &str) -> FrameError {
    let method = quote_of(method);
    let error = FrameError::new(METHOD_NOT_FOUND, "method_not_found", format!("method not found: {method}"));
    FrameError { data: Data { method: Some(method.to_owned()), ..error.data }, ..error }
}

pub(super) fn params_not_an_object(method: &str) -> FrameError {
    FrameError::new(INVALID_PARAMS, "invalid_params", format!("invalid params for {method}: expected object"))
}

pub(super) fn wrong_field(method: &str, field: &'static str, what: &str) -> FrameError {
    let message = format!("invalid params for {method}: `{field}` must be {what}");
    FrameError::new(INVALID_PARAMS, "invalid_params", message).in_field(field)
}

pub(super) fn other_version(version: &str) -> FrameError {
    let message = format!("unsupported protocol_version: {}", quote_of(version));
    let error = FrameError::new(INVALID_PARAMS, "unsupported_protocol_version", message);
    FrameError { data: Data { supported: Some(PROTOCOL_VERSION), ..error.data }, ..error }
}

/// `model.list` names an unknown provider.
pub(super) fn unknown_listed_provider() -> FrameError {
    let message = "provider must be one of: openai, openrouter, antigravity";
    FrameError::new(INVALID_PARAMS, "invalid_params", message).in_field("provider")
}

/// `model.select` names an unknown provider.
pub(super) fn unknown_selected_provider() -> FrameError {
    let message = "provider must be openai, openrouter, or antigravity";
    FrameError::new(INVALID_PARAMS, "invalid_params", message).in_field("provider")
}

/// A request about logins names a provider without login.
pub(super) fn provider_without_login() -> FrameError {
    FrameError::new(INVALID_PARAMS, "invalid_params", "provider must be openai or antigravity")
        .in_field("provider")
}

pub(super) fn too_large() -> FrameError {
    let message = format!("a line is longer than {MAX_LINE_BYTES} bytes; send less at once");
    FrameError::new(SERVER_ERROR, "message_too_large", message)
}

pub(super) fn too_many_sessions() -> FrameError {
    let message =
        format!("there are {MAX_SESSIONS} sessions, which is the limit; close one with session.close");
    FrameError::new(SERVER_ERROR, "overloaded", message)
}

pub(super) fn too_many_turns() -> FrameError {
    let message = format!("{MAX_TURNS} turns are running, which is the limit; wait for one to end");
    FrameError::new(SERVER_ERROR, "overloaded", message)
}

pub(super) fn queue_full() -> FrameError {
    let message = format!(
        "{MAX_QUEUED} prompts or 64 MiB of them are waiting, which is the limit; wait, or clear the queue"
    );
    FrameError::new(SERVER_ERROR, "overloaded", message)
}

pub(super) fn too_many_steers() -> FrameError {
    let message = format!("{MAX_STEERS} texts wait to join the turn, which is the limit; wait");
    FrameError::new(SERVER_ERROR, "overloaded", message)
}

pub(super) fn unknown_answer() -> FrameError {
    FrameError::new(INVALID_PARAMS, "invalid_params", "answer must be once, always or deny")
        .in_field("answer")
}

pub(super) fn no_question() -> FrameError {
    FrameError::new(INVALID_PARAMS, "invalid_params", "the session asks no such question")
        .in_field("question_id")
}

pub(super) fn too_many_logins() -> FrameError {
    let message = format!("{MAX_LOGINS} logins are under way, which is the limit; end one with auth.cancel");
    FrameError::new(SERVER_ERROR, "overloaded", message)
}

pub(super) fn unknown_session(id: &str) -> FrameError {
    failed("unknown_session", format!("unknown session: {}", quote_of(id)))
}

pub(super) fn nothing_to_send() -> FrameError {
    failed("empty_prompt", "session.send requires non-empty text or at least one image")
}

pub(super) fn busy() -> FrameError {
    failed("session_busy", "session is busy; use enqueue=true to queue the prompt")
}

pub(super) fn unknown_model(provider: &str, model: &str) -> FrameError {
    failed("unknown_model", format!("unknown model for provider {provider}: {}", quote_of(model)))
}

/// The line in a resumed chat whose model does not exist any more.
pub(super) fn model_replaced(missing: &str, other: &str) -> String {
    format!(
        "the model {} of this chat is no longer configured; {} answers. /model changes this.",
        quote_of(missing),
        quote_of(other)
    )
}

pub(super) fn compression_without_session() -> FrameError {
    failed("session_required", "session_id is required when compress_immediately is true")
}

pub(super) fn no_router_key() -> FrameError {
    failed("missing_key", "openrouter api key is not configured")
}

pub(super) fn routes_unknown(reason: &str) -> FrameError {
    failed("provider_error", reason)
}

pub(super) fn no_limits() -> FrameError {
    failed("not_logged_in", "limits requires at least one oauth provider")
}

pub(super) fn no_history_named() -> FrameError {
    failed("chat_not_named", "history.get requires one of: id, last, rollout_path")
}

pub(super) fn no_history() -> FrameError {
    failed("no_chats", "no saved chat history yet")
}

pub(super) fn no_rollout(path: &str) -> FrameError {
    failed("chat_not_found", format!("failed to load chat: {}", quote_of(path)))
}

pub(super) fn no_chat(id: &str) -> FrameError {
    failed("chat_not_found", format!("no saved chat matched id: {}", quote_of(id)))
}

pub(super) fn busy_for_resume() -> FrameError {
    failed("session_busy", "session is busy; interrupt it before another chat is resumed in it")
}

/// The key of a search service is of no use here.
pub(super) fn no_search_tool() -> FrameError {
    failed(
        "no_search_tool",
        "the exa api key was not stored: this server has no search_web tool. send 'skip' to go on",
    )
}

pub(super) fn no_model_to_compress() -> FrameError {
    failed("no_model", "select a model first before running /compress")
}

pub(super) fn not_compressed(reason: &str) -> FrameError {
    failed("compaction_failed", format!("context compaction failed: {reason}"))
}

pub(super) fn already_compressing() -> FrameError {
    not_compressed("the session is being compressed already")
}

/// The backend could not save or do something; `reason` is its error text.
pub(super) fn not_done(reason: &str) -> FrameError {
    failed("not_saved", reason)
}

/// The session registry refused a request.
pub(super) fn refused(refusal: &SessionRefusal) -> FrameError {
    match reason_of(refusal) {
        INVALID_PARAMS_REASON => FrameError::new(INVALID_PARAMS, INVALID_PARAMS_REASON, refusal.to_string()),
        reason => failed(reason, refusal.to_string()),
    }
}

fn reason_of(refusal: &SessionRefusal) -> &'static str {
    match refusal {
        SessionRefusal::Busy { .. } | SessionRefusal::Compacting => "session_busy",
        SessionRefusal::UnknownSession(_) => "chat_not_found",
        SessionRefusal::SessionHeld { .. } | SessionRefusal::NoNode { .. } => "chat_in_use",
        SessionRefusal::TooManySessions { .. }
        | SessionRefusal::TooManyRuns { .. }
        | SessionRefusal::TooManyRequests { .. }
        | SessionRefusal::TooManyQueuedBytes { .. }
        | SessionRefusal::TooManyWatched { .. }
        | SessionRefusal::QueueFull { .. } => "overloaded",
        SessionRefusal::RequestTooLong { .. } => "message_too_large",
        SessionRefusal::KeyTooLong { .. }
        | SessionRefusal::TitleTooLong { .. }
        | SessionRefusal::UnknownQuestion(_)
        | SessionRefusal::QuestionSettled { .. }
        | SessionRefusal::InvalidAnswer { .. }
        | SessionRefusal::TitleBlank => INVALID_PARAMS_REASON,
        SessionRefusal::UnknownAgent(_) => "unknown_model",
        SessionRefusal::LogUnavailable { .. }
        | SessionRefusal::Closing { .. }
        | SessionRefusal::MediaUnavailable { .. } => "storage_unavailable",
        SessionRefusal::SessionExists(_)
        | SessionRefusal::NoActiveRun
        | SessionRefusal::WrongRun { .. }
        | SessionRefusal::BackgroundProcesses
        | SessionRefusal::NotCompacted { .. }
        | SessionRefusal::UnknownMessage(_)
        | SessionRefusal::OutcomeUnknown(_)
        | SessionRefusal::OwnerSilent { .. }
        | SessionRefusal::Internal => "internal_error",
    }
}

/// Why a login failed. Some texts differ between the two providers.
pub(super) fn login_failed(provider: &str, error: &LoginFailure) -> FrameError {
    let is_antigravity = provider == "antigravity";
    let status =
        |status: &Option<u16>| status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    match error {
        LoginFailure::NotConfigured => {
            let message = format!(
                "no login is configured for {provider}; [auth.{provider}] in parlor.toml describes one"
            );
            failed("login_not_configured", message)
        }
        LoginFailure::Cancelled => failed("login_cancelled", "OAuth login cancelled."),
        LoginFailure::StateMismatch if is_antigravity => {
            failed("login_state_mismatch", "OAuth login rejected due to state mismatch.")
        }
        LoginFailure::StateMismatch => failed("login_state_mismatch", "OAuth login failed: state mismatch."),
        LoginFailure::Denied(reason) if is_antigravity => {
            failed("login_denied", format!("OAuth authorization failed: {reason}"))
        }
        LoginFailure::Denied(reason) => failed("login_denied", format!("OAuth login failed: {reason}")),
        LoginFailure::NoCode if is_antigravity => {
            failed("login_denied", "OAuth authorization failed: Missing authorization code.")
        }
        LoginFailure::NoCode => failed("login_denied", "OAuth login failed: Missing authorization code."),
        LoginFailure::TimedOut(_) if is_antigravity => failed("login_timed_out", "OAuth login cancelled."),
        LoginFailure::TimedOut(seconds) => failed(
            "login_timed_out",
            format!("OAuth login timed out after {} minutes.", seconds.div_ceil(60)),
        ),
        LoginFailure::CodeExpired => {
            failed("login_timed_out", "OAuth device login timed out after 15 minutes.")
        }
        LoginFailure::NoDeviceCode => {
            failed("login_no_device_code", "Device code login is not enabled for this OAuth issuer.")
        }
        LoginFailure::CodeRefused(code, reason) => {
            failed("login_failed", format!("Device code request failed ({}): {reason}", status(code)))
        }
        LoginFailure::PollFailed(code, reason) => {
            failed("login_failed", format!("Device code poll failed ({}): {reason}", status(code)))
        }
        LoginFailure::NoToken(code, reason) => {
            failed("login_failed", format!("OAuth token exchange failed ({}): {reason}", status(code)))
        }
        LoginFailure::Other(reason) => failed("login_failed", reason.clone()),
    }
}

/// Why the file of an image is refused. `session.error` has this text.
pub(super) fn image_file_error(error: FileError, path: &str) -> String {
    let path = quote_of(path);
    match error {
        FileError::Missing => format!("file not found: {path}"),
        FileError::NotRegular => format!("not a file: {path}"),
        FileError::Inaccessible => format!("unable to stat file: {path}"),
        FileError::Unreadable | FileError::Empty => format!("unable to read image file: {path}"),
        FileError::TooLarge { bytes } => image_too_large(bytes),
    }
}

pub(super) fn image_too_large(bytes: u64) -> String {
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!("image too large ({:.2} mb). max is {:.2} mb", megabytes(bytes), megabytes(MAX_IMAGE_BYTES))
}

pub(super) fn image_type(extension: Option<&str>) -> String {
    let extension = extension
        .map_or_else(|| "(no extension)".to_owned(), |extension| format!(".{}", quote_of(extension)));
    format!("unsupported image type: {extension}. supported: .png, .jpg, .jpeg, .webp, .gif")
}

pub(super) fn image_mime(mime: &str) -> String {
    format!("unsupported image mime type: {}", quote_of(mime))
}

/// A data URL is invalid.
pub(super) const IMAGE_URL: &str = "invalid image data_url. expected data:<mime>;base64,<payload>";
/// A data URL has no payload.
pub(super) const IMAGE_EMPTY: &str = "image payload is empty";

/// The selected model does not exist any more.
pub(super) const NO_MODEL: &str = "select a model from an enabled provider first";
/// Another session of this server has a running turn in the same chat.
pub(super) const CHAT_BUSY: &str = "another session is at work in this chat; wait for it, or interrupt it";
/// Why a summary was cancelled.
pub(super) const SESSION_CLEARED: &str = "the session was cleared";

pub(super) fn too_many_images() -> String {
    format!("at most {MAX_IMAGES} images go along with a prompt")
}

/// The system message of a failed turn.
pub(super) fn inference_error(reason: &str) -> String {
    format!("inference error: {reason}")
}

/// The system message of an interrupted turn.
pub(super) fn interrupted(is_partial: bool) -> &'static str {
    if is_partial {
        "response interrupted by user. partial output kept."
    } else {
        "response interrupted by user."
    }
}

/// The system message about steering texts that came too late.
pub(super) fn late_steers(count: usize) -> String {
    format!("{count} steer message(s) were queued too late and not applied.")
}

/// The system message about the skills of a prompt.
pub(super) fn skills_applied(names: &[String]) -> String {
    format!("skills applied: {}", names.join(", "))
}

/// The system message after a summary.
pub(super) fn compressed(before: u64, after: u64) -> String {
    format!("context compression complete: {} -> {} est. tokens.", grouped(before), grouped(after))
}

/// The system message for a prompt that another client took out of the session's queue.
pub(super) const UNQUEUED: &str = "the prompt was removed from the queue before it was answered.";

/// The system message after `/forgeteverything`.
pub(super) const FORGOTTEN: &str = "everything was forgotten: keys, logins and choices. saved chats stay.";

/// The text of an answer without text.
pub(super) const NO_TEXT: &str = "(No response text returned)";

/// The error of a call to an unknown tool.
pub(super) fn unknown_tool(tool: &str) -> String {
    format!("unknown tool: {}", quote_of(tool))
}

/// The error of a command that ended with another exit code than 0.
pub(super) fn command_failed(exit_code: i32) -> String {
    format!("process failed (exit code {exit_code})")
}

/// The error of a command that a signal ended.
pub(super) const COMMAND_KILLED: &str = "process failed (no exit code)";

/// The error of a stopped tool.
pub(super) const TOOL_ABORTED: &str = "process aborted (no exit code)";

/// How to log in.
pub(super) const AUTH_HINT: &str = "use auth.connect.openai, auth.connect.antigravity or auth.set.openrouter_key; parlor.toml configures agents and models";

/// The server does not know the limits of a provider.
pub(super) const LIMITS_UNKNOWN: &str = "the provider's limits are not known to this server";

/// A number with commas as thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quote_is_truncated() {
        let long = "\u{e4}".repeat(MAX_QUOTED_CHARS + 1);
        let count_umlauts = |text: &str| text.chars().filter(|c| *c == '\u{e4}').count();
        assert_eq!(count_umlauts(unknown_method(&long).message()), MAX_QUOTED_CHARS);
        assert_eq!(count_umlauts(&image_file_error(FileError::Missing, &long)), MAX_QUOTED_CHARS);
        assert_eq!(quote_of("short"), "short");
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!(compressed(1_234_567, 890), "context compression complete: 1,234,567 -> 890 est. tokens.");
        assert_eq!(grouped(1000), "1,000");
    }

    #[test]
    fn sizes_are_in_megabytes() {
        assert_eq!(image_too_large(9 << 20), "image too large (9.00 mb). max is 8.00 mb");
    }

    #[test]
    fn an_error_omits_missing_data() {
        let json = serde_json::to_string(&wrong_field("m", "f", "a string")).unwrap();
        assert_eq!(
            json,
            r#"{"code":-32602,"message":"invalid params for m: `f` must be a string","data":{"reason":"invalid_params","field":"f"}}"#
        );
    }
}
