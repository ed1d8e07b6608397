//! The error codes of ACP, and nearly all error texts of this door.

use agent_client_protocol_schema::v1::{Error, ErrorCode, StopReason};
use parlor_vocab::{Failure, FailureCode, LoginFailure, SessionRefusal};
use serde_json::json;

use super::{
    MAX_BLOCKS, MAX_FRAME_BYTES, MAX_FRAME_VALUES, MAX_ID_BYTES, MAX_LOGINS, MAX_MCP_SERVER_BYTES,
    MAX_PROMPTS, MAX_SESSIONS,
};

/// How many bytes of a client's own text an error quotes.
const QUOTED_BYTES: usize = 200;

fn error(code: ErrorCode, message: String) -> Error {
    Error::new(code.into(), message)
}

pub(super) fn parse_error(reason: &str) -> Error {
    error(ErrorCode::ParseError, format!("Parse error: {reason}"))
}

pub(super) fn oversize() -> Error {
    error(
        ErrorCode::InvalidRequest,
        format!("Invalid request: the frame is longer than {MAX_FRAME_BYTES} bytes"),
    )
}

pub(super) fn too_many_values() -> Error {
    error(
        ErrorCode::InvalidRequest,
        format!("Invalid request: the frame has more than {MAX_FRAME_VALUES} JSON values"),
    )
}

pub(super) fn id_too_long() -> Error {
    invalid_request(&format!("`id` is longer than {MAX_ID_BYTES} bytes"))
}

pub(super) fn not_an_object() -> Error {
    invalid_request("a frame is one JSON object; there are no batches")
}

pub(super) fn invalid_request(reason: &str) -> Error {
    error(ErrorCode::InvalidRequest, format!("Invalid request: {}", quoted(reason)))
}

pub(super) fn not_initialized(method: &str) -> Error {
    invalid_request(&format!("`initialize` comes before {}", quoted(method)))
}

pub(super) fn method_not_found(method: &str) -> Error {
    error(ErrorCode::MethodNotFound, format!("Method not found: {}", quoted(method)))
}

pub(super) fn invalid_params(reason: &str) -> Error {
    error(ErrorCode::InvalidParams, format!("Invalid params: {}", quoted(reason)))
}

pub(super) fn invalid_mcp_servers() -> Error {
    invalid_params("`mcpServers` must be a list of MCP servers, each with all its members")
}

pub(super) fn mcp_server_too_long() -> Error {
    invalid_params(&format!("an entry of `mcpServers` has more than {MAX_MCP_SERVER_BYTES} bytes"))
}

pub(super) fn unknown_login(method: &str) -> Error {
    let method = quoted(method);
    invalid_params(&format!("`authenticate` has no method {method:?}; start terminal methods in a terminal"))
}

pub(super) fn unknown_option(option: &str, value: &str) -> Error {
    let (option, value) = (quoted(option), quoted(value));
    invalid_params(&format!("there is no option {option:?} with a value {value:?}"))
}

pub(super) fn too_many_sessions() -> Error {
    internal(&format!(
        "{MAX_SESSIONS} sessions are open on this connection, which is the limit; close one first"
    ))
}

pub(super) fn too_many_prompts() -> Error {
    internal(&format!(
        "{MAX_PROMPTS} prompts of this session are unanswered, which is the limit; wait for one"
    ))
}

pub(super) fn too_many_logins() -> Error {
    internal(&format!("{MAX_LOGINS} logins are running, which is the limit; wait for one"))
}

pub(super) fn too_many_blocks() -> Error {
    invalid_params(&format!("a prompt has at most {MAX_BLOCKS} content blocks"))
}

/// Clients show exactly `details`, so nothing else is in `data`.
pub(super) fn internal(details: &str) -> Error {
    error(ErrorCode::InternalError, "Internal error".to_owned()).data(json!({"details": details}))
}

pub(super) fn unknown_session(session: &str) -> Error {
    let session = quoted(session);
    error(ErrorCode::ResourceNotFound, format!("Resource not found: session {session}"))
        .data(json!({"sessionId": session}))
}

pub(super) fn request_cancelled() -> Error {
    error(ErrorCode::RequestCancelled, "Request cancelled".to_owned())
}

fn auth_required(reason: &str) -> Error {
    error(ErrorCode::AuthRequired, format!("Authentication required: {reason}"))
}

/// The error for a request that the backend refused.
pub(super) fn refused(refusal: &SessionRefusal) -> Error {
    match refusal {
        SessionRefusal::UnknownSession(session) => unknown_session(session.as_str()),
        SessionRefusal::UnknownAgent(_)
        | SessionRefusal::UnknownMessage(_)
        | SessionRefusal::UnknownQuestion(_)
        | SessionRefusal::QuestionSettled { .. }
        | SessionRefusal::InvalidAnswer { .. }
        | SessionRefusal::KeyTooLong { .. }
        | SessionRefusal::TitleTooLong { .. }
        | SessionRefusal::TitleBlank => invalid_params(&refusal.to_string()),
        SessionRefusal::SessionExists(_)
        | SessionRefusal::SessionHeld { .. }
        | SessionRefusal::NoNode { .. }
        | SessionRefusal::TooManySessions { .. }
        | SessionRefusal::Busy { .. }
        | SessionRefusal::QueueFull { .. }
        | SessionRefusal::NoActiveRun
        | SessionRefusal::WrongRun { .. }
        | SessionRefusal::TooManyRuns { .. }
        | SessionRefusal::Compacting
        | SessionRefusal::BackgroundProcesses
        | SessionRefusal::NotCompacted { .. }
        | SessionRefusal::TooManyRequests { .. }
        | SessionRefusal::TooManyQueuedBytes { .. }
        | SessionRefusal::TooManyWatched { .. }
        | SessionRefusal::MediaUnavailable { .. }
        | SessionRefusal::LogUnavailable { .. }
        | SessionRefusal::RequestTooLong { .. }
        | SessionRefusal::OutcomeUnknown(_)
        | SessionRefusal::OwnerSilent { .. }
        | SessionRefusal::Closing { .. }
        | SessionRefusal::Internal => internal(&refusal.to_string()),
    }
}

/// The answer to a prompt whose run failed. `can_log_in` tells whether the client was offered a way to log in.
pub(super) fn failed_run(failure: &Failure, can_log_in: bool) -> Result<StopReason, Error> {
    if failure.code == FailureCode::StepLimit {
        return Ok(StopReason::MaxTurnRequests);
    }
    if [FailureCode::TokenLimit, FailureCode::AnswerTooLong].contains(&failure.code) {
        return Ok(StopReason::MaxTokens);
    }
    if failure.code == FailureCode::ModelAuth && can_log_in {
        return Err(auth_required(&failure.message));
    }
    Err(internal(&failure.message))
}

/// The error for a login that did not succeed.
pub(super) fn login_failed(provider: &str, failure: &LoginFailure) -> Error {
    let reason = match failure {
        LoginFailure::Cancelled => return request_cancelled(),
        LoginFailure::NotConfigured => "no login is configured; add [auth.NAME] to parlor.toml".to_owned(),
        LoginFailure::StateMismatch => "the browser came back from another login; try again".to_owned(),
        LoginFailure::Denied(message) | LoginFailure::Other(message) => message.clone(),
        LoginFailure::NoCode => "the browser came back without a code; try again".to_owned(),
        LoginFailure::TimedOut(seconds) => format!("it was not completed within {seconds} seconds"),
        LoginFailure::CodeExpired => "the code was not entered in time; try again".to_owned(),
        LoginFailure::NoDeviceCode => "the provider has no device codes; log in with a browser".to_owned(),
        LoginFailure::CodeRefused(status, message)
        | LoginFailure::PollFailed(status, message)
        | LoginFailure::NoToken(status, message) => match status {
            Some(status) => format!("the provider answered with HTTP {status}: {message}"),
            None => message.clone(),
        },
    };
    auth_required(&format!("the login to {} failed: {reason}", quoted(provider)))
}

/// A client's text for an error: not longer than [`QUOTED_BYTES`].
pub(super) fn quoted(text: &str) -> String {
    crate::truncate::truncate_bytes(text.to_owned(), QUOTED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_login_of_a_model_asks_to_log_in_only_where_a_login_was_offered() {
        let failure =
            Failure { code: FailureCode::ModelAuth, message: "no key".to_owned(), retryable: false };
        assert_eq!(i32::from(failed_run(&failure, true).unwrap_err().code), -32000);
        let error = failed_run(&failure, false).unwrap_err();
        assert_eq!((i32::from(error.code), error.data), (-32603, Some(json!({"details": "no key"}))));
    }

    #[test]
    fn a_long_text_of_the_client_is_quoted_in_part() {
        let error = unknown_session(&"x".repeat(100_000));
        assert!(serde_json::to_string(&error).unwrap().len() < 4 * QUOTED_BYTES);
    }
}
