//! The numbers of this dialect and the texts that go with them. No other file spells a code.

use parlor_vocab::{Failure, FailureCode, RubyFailure, RubyFailureKind, RubyRefusal, UpstreamError};
use serde::Serialize;
use serde_json::value::RawValue;

use super::tool::Tool;
use super::{MAX_QUOTE_BYTES, MAX_REPLY_BYTES};

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const RUBY_ERROR: i64 = -32000;
const AUTHENTICATION_FAILED: i64 = -32001;
const PATH_DENIED: i64 = -32002;

/// What a client can do that is not known to be the server's own user.
const SERVER_TOKEN_HINT: &str =
    "Set SUPEX_AUTH_TOKEN to what `parlor token` prints for the user of the server";

/// What a runtime says that has read half a line.
pub(super) const MISREAD: i64 = PARSE_ERROR;

/// The error member of a reply.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Data,
}

/// What the bridge adds to an error.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Data {
    Ours(Box<Details>),
    /// SketchUp's own.
    Theirs(Box<RawValue>),
}

/// What there is to know about a failure. `success` is always false.
#[derive(Debug, Default, Serialize)]
pub(super) struct Details {
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
    /// The word by which parlor's own tools tell failures apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
}

/// What a peer can do wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    /// The line is no JSON, for this reason.
    NoJson(String),
    /// The line is JSON and no object.
    NoObject,
    /// The line has more than so many bytes with its newline.
    Oversize { limit: usize },
    /// There is no method, or it is no text.
    NoMethod,
    /// Nobody has said `hello` yet.
    NotIdentified,
    /// Something is missing in a `hello`.
    HelloIncomplete,
    /// The token is not the right one.
    BadToken,
    /// The token is not that of the server, which only its own user need not show.
    NoServerToken,
    /// No such method.
    UnknownMethod(String),
    /// No such tool.
    UnknownTool(String),
    /// The params do not fit.
    BadParams(String),
}

/// Which of the two servers speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Bridge,
    Repl,
}

pub(super) fn of_flaw(flaw: FrameError, side: Side) -> Fault {
    let mut details = Details::default();
    let (code, message) = match flaw {
        FrameError::NoJson(detail) => match side {
            Side::Bridge => (PARSE_ERROR, "Parse error".to_owned()),
            Side::Repl => (PARSE_ERROR, format!("Parse error: {detail}")),
        },
        FrameError::NoObject => (INVALID_REQUEST, "Invalid request".to_owned()),
        FrameError::Oversize { limit } => {
            (INVALID_REQUEST, format!("Message exceeds maximum size ({limit} bytes)"))
        }
        FrameError::NoMethod => (INVALID_REQUEST, "Invalid request: method is required".to_owned()),
        FrameError::NotIdentified => match side {
            Side::Bridge => {
                let hint = "Send hello method with params: name, version, agent, pid";
                details.hint = Some(hint.to_owned());
                (INVALID_REQUEST, "Client must identify with 'hello' method first".to_owned())
            }
            Side::Repl => (INVALID_REQUEST, "Client must send 'hello' first".to_owned()),
        },
        FrameError::HelloIncomplete => {
            (INVALID_REQUEST, "Missing required params: name, version, agent, pid".to_owned())
        }
        FrameError::BadToken => {
            (AUTHENTICATION_FAILED, "Authentication failed: invalid or missing token".to_owned())
        }
        FrameError::NoServerToken => {
            let text = "Authentication failed: invalid or missing token";
            match side {
                Side::Bridge => {
                    details.hint = Some(SERVER_TOKEN_HINT.to_owned());
                    (AUTHENTICATION_FAILED, text.to_owned())
                }
                // Its errors have no data, and so no other place for a hint.
                Side::Repl => (AUTHENTICATION_FAILED, format!("{text} ({SERVER_TOKEN_HINT})")),
            }
        }
        FrameError::UnknownMethod(name) => (METHOD_NOT_FOUND, format!("Method not found: {}", clipped(name))),
        FrameError::UnknownTool(name) => (INVALID_PARAMS, format!("Unknown tool: {}", clipped(name))),
        FrameError::BadParams(what) => (INVALID_PARAMS, clipped(what)),
    };
    ours(code, message, details)
}

/// Code that was given as text has failed.
pub(super) fn of_snippet(failure: &RubyFailure, printed: Option<String>) -> Fault {
    let prefix = match failure.kind {
        RubyFailureKind::Syntax => "Ruby syntax error",
        RubyFailureKind::Raised | RubyFailureKind::Broken | RubyFailureKind::Unavailable => {
            "Ruby evaluation error"
        }
    };
    of_ruby(failure, format!("{prefix}: {}", failure.message), printed)
}

/// Code in the file at `path` has failed.
pub(super) fn of_file(failure: &RubyFailure, path: &str, printed: Option<String>) -> Fault {
    let mut message = format!("Error in {}: {}\nFile: {path}", base_name(path), failure.message);
    if let Some(line) = failure.line {
        message.push_str(&format!("\nLine: {line}"));
    }
    of_ruby(failure, message, printed)
}

fn of_ruby(failure: &RubyFailure, message: String, output: Option<String>) -> Fault {
    let code = match failure.kind {
        RubyFailureKind::Raised | RubyFailureKind::Syntax | RubyFailureKind::Broken => RUBY_ERROR,
        RubyFailureKind::Unavailable => INTERNAL_ERROR,
    };
    let details = Details {
        hint: failure.hint.clone(),
        file: failure.file.clone(),
        line: failure.line,
        class: failure.class.clone(),
        backtrace: failure.backtrace.clone(),
        output,
        ..Details::default()
    };
    ours(code, message, details)
}

/// The path leads out of the allowed folders.
pub(super) fn path_refused(tool: &Tool, path: &str) -> Fault {
    let message = format!("{}Path access denied for {}: {path}", tool.prefix, tool.name);
    let hint = "allow its folder with SUPEX_ALLOWED_ROOTS, SUPEX_PROJECT_ROOT or a workspace in hello";
    let details = Details { hint: Some(hint.to_owned()), file: Some(path.to_owned()), ..Details::default() };
    ours(PATH_DENIED, message, details)
}

/// The path is none.
pub(super) fn path_invalid(tool: &Tool, reason: &str) -> Fault {
    ours(INVALID_PARAMS, format!("{}{}", tool.prefix, clipped(reason.to_owned())), Details::default())
}

/// There is no file of Ruby code.
pub(super) fn file_missing(path: &str) -> Fault {
    let details = Details { file: Some(path.to_owned()), ..Details::default() };
    ours(RUBY_ERROR, format!("Ruby file not found: {path}"), details)
}

/// The file is there and cannot be read.
pub(super) fn file_unreadable(path: &str, reason: &str) -> Fault {
    let message = format!("Error in {}: {reason}\nFile: {path}", base_name(path));
    let details = Details { file: Some(path.to_owned()), ..Details::default() };
    ours(RUBY_ERROR, message, details)
}

/// There is no SketchUp for this tool.
pub(super) fn no_sketchup(prefix: &str) -> Fault {
    let hint = "connect a SketchUp runtime: in parlor.toml, [channels.supex] upstream = \"HOST:PORT\"";
    let details = Details { hint: Some(hint.to_owned()), ..Details::default() };
    ours(INTERNAL_ERROR, format!("{prefix}SketchUp is not available"), details)
}

/// SketchUp has refused, or is not to be reached.
pub(super) fn of_model(failure: &UpstreamError, prefix: &str) -> Fault {
    match failure {
        UpstreamError::Refused { code, message, data } => {
            let theirs = data.as_ref().and_then(|data| RawValue::from_string(data.clone()).ok());
            let data = theirs.map_or_else(|| Data::Ours(Box::default()), Data::Theirs);
            Fault { code: of_theirs(*code, message), message: message.clone(), data }
        }
        UpstreamError::Unreachable { reason } => {
            let hint = "is SketchUp running, with its extension, where [channels.supex] upstream says?";
            let details = Details { hint: Some(hint.to_owned()), ..Details::default() };
            ours(INTERNAL_ERROR, format!("{prefix}SketchUp cannot be reached: {reason}"), details)
        }
        UpstreamError::Unanswered { reason } => {
            let hint = "it was not asked again, since it may have been done";
            let details = Details { hint: Some(hint.to_owned()), ..Details::default() };
            ours(RUBY_ERROR, format!("{prefix}SketchUp gave no answer: {reason}"), details)
        }
    }
}

/// The runtime has one number for everything that fails; its texts tell more.
fn of_theirs(code: i64, message: &str) -> i64 {
    let of_ruby = ["Ruby evaluation error:", "Ruby syntax error:", "Error in "];
    if of_ruby.iter().any(|prefix| message.starts_with(prefix)) {
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
pub(super) fn of_tool(failure: &Failure) -> Fault {
    let code = match failure.code {
        FailureCode::InvalidInput => INVALID_PARAMS,
        FailureCode::PathRefused => PATH_DENIED,
        _ => INTERNAL_ERROR,
    };
    let details = Details { kind: Some(failure.code.to_string()), ..Details::default() };
    ours(code, failure.message.clone(), details)
}

/// The engine turned it down, or said something else than was asked for.
pub(super) fn internal(message: impl Into<String>) -> Fault {
    ours(INTERNAL_ERROR, message.into(), Details::default())
}

pub(super) fn of_refusal(refusal: &RubyRefusal) -> Fault {
    internal(refusal.to_string())
}

/// A reply would be longer than clients take.
pub(super) fn reply_too_large(bytes: usize) -> Fault {
    let hint = "the call was carried out; write the result to a file, or ask for a part of it";
    let details = Details { hint: Some(hint.to_owned()), ..Details::default() };
    let message = format!("the reply has {bytes} bytes; {MAX_REPLY_BYTES} are the most that is sent");
    ours(RUBY_ERROR, message, details)
}

fn ours(code: i64, message: String, details: Details) -> Fault {
    Fault { code, message, data: Data::Ours(Box::new(details)) }
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// Messages quote the peer, who may have sent a megabyte.
fn clipped(mut text: String) -> String {
    if text.len() > MAX_QUOTE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_QUOTE_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_does_not_grow_with_what_it_quotes() {
        let fault = of_flaw(FrameError::UnknownMethod("ä".repeat(1 << 20)), Side::Bridge);
        assert!(fault.message.len() < MAX_QUOTE_BYTES + 32 && fault.message.ends_with('…'));
    }

    #[test]
    fn what_sketchup_says_gets_the_number_that_fits_its_words() {
        for (message, code) in [
            ("Ruby evaluation error: x", -32000),
            ("Ruby syntax error: x", -32000),
            ("Error in a.rb: x", -32000),
            ("Failed to open model: Path access denied for open_model: /x", -32002),
            ("Unknown tool: x", -32602),
            ("Failed to get layers: x", -32603),
        ] {
            assert_eq!(of_theirs(-32603, message), code, "{message}");
        }
    }
}
