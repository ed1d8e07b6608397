//! The error codes of the supex protocol and their texts. No other file spells a code.

use parlor_vocab::{Failure, FailureCode, RubyFailure, RubyFailureKind, RubyRefusal, UpstreamError};
use serde::Serialize;
use serde_json::value::RawValue;

use super::tool::Tool;
use super::{MAX_QUOTE_BYTES, MAX_REPLY_BYTES};
use crate::truncate::truncate_bytes;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const RUBY_ERROR: i64 = -32000;
const AUTHENTICATION_FAILED: i64 = -32001;
const PATH_DENIED: i64 = -32002;

/// What a client can do that the server does not know to belong to its own user.
const SERVER_TOKEN_HINT: &str =
    "Set SUPEX_AUTH_TOKEN to what `parlor token` prints for the user of the server";

/// The code of a runtime that could not parse the request.
pub(super) const PARSE_FAILED: i64 = PARSE_ERROR;

/// The error member of a reply.
#[derive(Debug)]
pub(super) struct ReplyError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: ErrorData,
}

/// The `data` of an error of the bridge.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ErrorData {
    Own(Box<ErrorDetails>),
    /// The data of SketchUp's own error, passed on unchanged.
    Upstream(Box<RawValue>),
}

/// The details of a failure. `success` is always false.
#[derive(Debug, Default, Serialize)]
pub(super) struct ErrorDetails {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backtrace: Vec<String>,
    /// The failure code of one of parlor's own tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
    /// The notice at the end of the message that the state of earlier evaluations is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    restarted: Option<String>,
    /// The state of the SketchUp that calls are forwarded to.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'static str>,
}

impl ReplyError {
    /// Adds the notice that Ruby was restarted, in the message too, because some clients drop the data.
    pub(super) fn with_restart(mut self, notice: Option<String>) -> Self {
        if let (Some(notice), ErrorData::Own(details)) = (notice, &mut self.data) {
            self.message.push_str(&format!("\n{notice}"));
            details.restarted = Some(notice);
        }
        self
    }
}

/// Why a server refuses a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The line is not JSON, for this reason.
    NotJson(String),
    /// The line is JSON, but not an object.
    NotAnObject,
    /// The line has more than `limit` bytes with its newline.
    Oversize { limit: usize },
    /// The method is missing, or not a string.
    MethodMissing,
    /// The client has not sent a valid `hello` yet.
    HelloMissing,
    /// A required member of `hello` is missing.
    HelloIncomplete,
    /// The client sent a wrong token or none.
    WrongToken,
    /// The client sent not the token of the server. Clients of the server's own user do not need it.
    WrongServerToken,
    /// The server has no such method.
    UnknownMethod(String),
    /// The bridge has no such tool.
    UnknownTool(String),
    /// The params are invalid, for this reason.
    InvalidParams(String),
}

/// Which of the two servers answers. Their error texts and envelopes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    Bridge,
    Repl,
}

pub(super) fn frame_error(error: FrameError, server_kind: ServerKind) -> ReplyError {
    let mut details = ErrorDetails::default();
    let (code, message) = match error {
        FrameError::NotJson(detail) => match server_kind {
            ServerKind::Bridge => (PARSE_ERROR, "Parse error".to_owned()),
            ServerKind::Repl => (PARSE_ERROR, format!("Parse error: {detail}")),
        },
        FrameError::NotAnObject => (INVALID_REQUEST, "Invalid request".to_owned()),
        FrameError::Oversize { limit } => {
            (INVALID_REQUEST, format!("Message exceeds maximum size ({limit} bytes)"))
        }
        FrameError::MethodMissing => (INVALID_REQUEST, "Invalid request: method is required".to_owned()),
        FrameError::HelloMissing => match server_kind {
            ServerKind::Bridge => {
                let hint = "Send hello method with params: name, version, agent, pid";
                details.hint = Some(hint.to_owned());
                (INVALID_REQUEST, "Client must identify with 'hello' method first".to_owned())
            }
            ServerKind::Repl => (INVALID_REQUEST, "Client must send 'hello' first".to_owned()),
        },
        FrameError::HelloIncomplete => {
            (INVALID_REQUEST, "Missing required params: name, version, agent, pid".to_owned())
        }
        FrameError::WrongToken => {
            (AUTHENTICATION_FAILED, "Authentication failed: invalid or missing token".to_owned())
        }
        FrameError::WrongServerToken => {
            let text = "Authentication failed: invalid or missing token";
            match server_kind {
                ServerKind::Bridge => {
                    details.hint = Some(SERVER_TOKEN_HINT.to_owned());
                    (AUTHENTICATION_FAILED, text.to_owned())
                }
                // The console's errors have no `data`, so the hint goes into the message.
                ServerKind::Repl => (AUTHENTICATION_FAILED, format!("{text} ({SERVER_TOKEN_HINT})")),
            }
        }
        FrameError::UnknownMethod(name) => {
            (METHOD_NOT_FOUND, format!("Method not found: {}", truncate_bytes(name, MAX_QUOTE_BYTES)))
        }
        FrameError::UnknownTool(name) => {
            (INVALID_PARAMS, format!("Unknown tool: {}", truncate_bytes(name, MAX_QUOTE_BYTES)))
        }
        FrameError::InvalidParams(what) => (INVALID_PARAMS, truncate_bytes(what, MAX_QUOTE_BYTES)),
    };
    own_error(code, message, details)
}

/// The error of `eval_ruby`.
pub(super) fn snippet_failed(failure: &RubyFailure, printed: Option<String>) -> ReplyError {
    let prefix = match failure.kind {
        RubyFailureKind::Syntax => "Ruby syntax error",
        RubyFailureKind::Raised | RubyFailureKind::Aborted | RubyFailureKind::Unavailable => {
            "Ruby evaluation error"
        }
    };
    ruby_failed(failure, format!("{prefix}: {}", failure.message), printed)
}

/// The error of `eval_ruby_file`.
pub(super) fn file_failed(failure: &RubyFailure, path: &str, printed: Option<String>) -> ReplyError {
    let mut message = format!("Error in {}: {}\nFile: {path}", base_name(path), failure.message);
    if let Some(line) = failure.line {
        message.push_str(&format!("\nLine: {line}"));
    }
    ruby_failed(failure, message, printed)
}

fn ruby_failed(failure: &RubyFailure, message: String, output: Option<String>) -> ReplyError {
    let code = match failure.kind {
        RubyFailureKind::Raised | RubyFailureKind::Syntax | RubyFailureKind::Aborted => RUBY_ERROR,
        RubyFailureKind::Unavailable => INTERNAL_ERROR,
    };
    let details = ErrorDetails {
        hint: failure.hint.clone(),
        file: failure.file.clone(),
        line: failure.line,
        class: failure.class.clone(),
        backtrace: failure.backtrace.clone(),
        output,
        ..ErrorDetails::default()
    };
    own_error(code, message, details)
}

/// The path is outside of the allowed folders.
pub(super) fn path_refused(tool: &Tool, path: &str) -> ReplyError {
    let message = format!("{}Path access denied for {}: {path}", tool.prefix, tool.name);
    let hint = "allow its folder with SUPEX_ALLOWED_ROOTS, SUPEX_PROJECT_ROOT or a workspace in hello";
    let details =
        ErrorDetails { hint: Some(hint.to_owned()), file: Some(path.to_owned()), ..ErrorDetails::default() };
    own_error(PATH_DENIED, message, details)
}

/// The path is invalid.
pub(super) fn path_invalid(tool: &Tool, reason: &str) -> ReplyError {
    own_error(
        INVALID_PARAMS,
        format!("{}{}", tool.prefix, truncate_bytes(reason.to_owned(), MAX_QUOTE_BYTES)),
        ErrorDetails::default(),
    )
}

/// The Ruby file does not exist.
pub(super) fn file_missing(path: &str) -> ReplyError {
    let details = ErrorDetails { file: Some(path.to_owned()), ..ErrorDetails::default() };
    own_error(RUBY_ERROR, format!("Ruby file not found: {path}"), details)
}

/// The Ruby file exists and cannot be read.
pub(super) fn file_unreadable(path: &str, reason: &str) -> ReplyError {
    let message = format!("Error in {}: {reason}\nFile: {path}", base_name(path));
    let details = ErrorDetails { file: Some(path.to_owned()), ..ErrorDetails::default() };
    own_error(RUBY_ERROR, message, details)
}

/// The tool needs SketchUp, and none is configured.
pub(super) fn no_sketchup(prefix: &str) -> ReplyError {
    let hint = "connect a SketchUp runtime: in parlor.toml, [channels.supex] upstream = \"HOST:PORT\"";
    let details = ErrorDetails { hint: Some(hint.to_owned()), ..ErrorDetails::default() };
    own_error(INTERNAL_ERROR, format!("{prefix}SketchUp is not available"), details)
}

/// SketchUp has refused the call, or cannot be reached.
pub(super) fn upstream_failed(failure: &UpstreamError, prefix: &str) -> ReplyError {
    match failure {
        UpstreamError::Refused { code, message, data } => {
            let upstream_data = data.as_ref().and_then(|data| RawValue::from_string(data.clone()).ok());
            let data = upstream_data.map_or_else(|| ErrorData::Own(Box::default()), ErrorData::Upstream);
            ReplyError { code: upstream_code(*code, message), message: message.clone(), data }
        }
        UpstreamError::Unreachable { reason } => {
            let hint = "is SketchUp running, with its extension, where [channels.supex] upstream says?";
            let details = ErrorDetails {
                hint: Some(hint.to_owned()),
                upstream: Some("unreachable"),
                ..ErrorDetails::default()
            };
            own_error(INTERNAL_ERROR, format!("{prefix}SketchUp cannot be reached: {reason}"), details)
        }
        UpstreamError::Busy => internal(format!("{prefix}SketchUp is busy with another call")),
        UpstreamError::Unanswered { reason } => {
            let hint = "it was not asked again, since it may have been done";
            let details = ErrorDetails { hint: Some(hint.to_owned()), ..ErrorDetails::default() };
            own_error(RUBY_ERROR, format!("{prefix}SketchUp gave no answer: {reason}"), details)
        }
    }
}

/// The code for an error of SketchUp's runtime. The runtime uses one code for all failures, so its texts decide.
fn upstream_code(code: i64, message: &str) -> i64 {
    let ruby_failed = ["Ruby evaluation error:", "Ruby syntax error:", "Error in "];
    if ruby_failed.iter().any(|prefix| message.starts_with(prefix)) {
        RUBY_ERROR
    } else if message.contains("Path access denied for") {
        PATH_DENIED
    } else if message.starts_with("Unknown tool:") {
        INVALID_PARAMS
    } else {
        code
    }
}

/// One of parlor's own tools has failed.
pub(super) fn tool_failed(failure: &Failure) -> ReplyError {
    let code = if failure.code == FailureCode::InvalidInput {
        INVALID_PARAMS
    } else if failure.code == FailureCode::PathRefused {
        PATH_DENIED
    } else {
        INTERNAL_ERROR
    };
    let details = ErrorDetails { kind: Some(failure.code.to_string()), ..ErrorDetails::default() };
    own_error(code, failure.message.clone(), details)
}

/// The backend failed, or sent a reply of the wrong kind.
pub(super) fn internal(message: impl Into<String>) -> ReplyError {
    own_error(INTERNAL_ERROR, message.into(), ErrorDetails::default())
}

pub(super) fn refused(refusal: &RubyRefusal) -> ReplyError {
    internal(refusal.to_string())
}

/// The reply is longer than clients accept.
pub(super) fn reply_too_large(bytes: usize) -> ReplyError {
    let hint = "the call was carried out; write the result to a file, or ask for a part of it";
    let details = ErrorDetails { hint: Some(hint.to_owned()), ..ErrorDetails::default() };
    let message = format!("the reply has {bytes} bytes; {MAX_REPLY_BYTES} are the most that is sent");
    own_error(RUBY_ERROR, message, details)
}

fn own_error(code: i64, message: String, details: ErrorDetails) -> ReplyError {
    ReplyError { code, message, data: ErrorData::Own(Box::new(details)) }
}

/// The last component of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quote_is_truncated() {
        let error = frame_error(FrameError::UnknownMethod("ä".repeat(1 << 20)), ServerKind::Bridge);
        assert!(error.message.len() < MAX_QUOTE_BYTES + 32 && error.message.ends_with('…'));
    }

    #[test]
    fn errors_of_sketchup_get_a_code_by_their_texts() {
        for (message, code) in [
            ("Ruby evaluation error: x", -32000),
            ("Ruby syntax error: x", -32000),
            ("Error in a.rb: x", -32000),
            ("Failed to open model: Path access denied for open_model: /x", -32002),
            ("Unknown tool: x", -32602),
            ("Failed to get layers: x", -32603),
        ] {
            assert_eq!(upstream_code(-32603, message), code, "{message}");
        }
    }
}
