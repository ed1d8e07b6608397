//! The errors of the supex client, and what they mean for the call.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{MAX_REQUEST_BYTES, MAX_WAITING_CALLS, SupexServerInfo};

/// Whether a call that failed may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFate {
    /// The server cannot have received all of the request, or has refused it.
    NotRun,
    /// The server may have run it, may still be running it, or may never have seen it.
    Unknown,
}

/// The phase of a call in which a timeout happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutPhase {
    /// While the connection was being opened.
    Connect,
    /// While the request was being written.
    Send,
    /// While waiting for the answer, or for the rest of it.
    Answer,
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriverError {
    /// The connection cannot be opened: start the server, or correct the address.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The host and port of the server.
        address: String,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The connection ended before the answer came.
    #[error("{address} closed the connection before it answered{}", advice(*fate))]
    Closed {
        /// The host and port of the server.
        address: String,
        /// Whether the call may have run.
        fate: CallFate,
        /// The I/O error, if there was one.
        source: Option<Arc<io::Error>>,
    },
    /// The server made no progress for too long: raise the timeout, or ask for less.
    #[error("{address} {}{}", timeout_text(*phase, *limit), advice(*fate))]
    Timeout {
        /// The host and port of the server.
        address: String,
        /// What the client was doing.
        phase: TimeoutPhase,
        /// The time limit that was exceeded.
        limit: Duration,
        /// Whether the call may have run.
        fate: CallFate,
    },
    /// The server sent something that the protocol does not allow. It may not be a supex server.
    #[error("{address} broke the protocol: {what}")]
    Protocol {
        /// The host and port of the server.
        address: String,
        /// What is wrong with the server's line.
        what: String,
    },
    /// The server requires a token, or does not accept this one.
    #[error("{address} does not accept the token, or wants one: {message}")]
    Unauthorized {
        /// The host and port of the server.
        address: String,
        /// The server's error message.
        message: String,
    },
    /// The server answered with an error: the code raised an exception, or the call is invalid.
    #[error("{message} ({code})")]
    Remote {
        /// The JSON-RPC code.
        code: i64,
        /// The server's error message.
        message: String,
        /// The error's `data`: often `file`, `line`, `class`, `backtrace` and `hint`. Null if the server sent none.
        data: Value,
    },
    /// A tool reported its failure as a result with `"success":false`.
    #[error("{tool} failed: {message}")]
    Failed {
        /// The name of the tool.
        tool: String,
        /// The tool's error message.
        message: String,
    },
    /// The answer is longer than the settings allow: raise the limit, or ask for less.
    #[error("the answer is longer than {limit} bytes; allow longer ones, or ask for less")]
    TooLarge {
        /// The limit from the settings, in bytes.
        limit: usize,
    },
    /// The request is longer than servers accept. It was not sent.
    #[error(
        "a request of {bytes} bytes is longer than the limit of {MAX_REQUEST_BYTES}; put code into a file"
    )]
    RequestTooLarge {
        /// The length of the line.
        bytes: usize,
    },
    /// The arguments of the call cannot be serialized as JSON. Nothing was sent.
    #[error("the arguments cannot be written as JSON: {0}")]
    Arguments(String),
    /// Too many calls of this client wait for their turn. Nothing was sent: try again later.
    #[error("{MAX_WAITING_CALLS} calls wait for this connection already; try again when some are done")]
    Busy,
}

impl DriverError {
    /// Whether the call may have had an effect. For an error that the server reported the result is
    /// [`CallFate::Unknown`]; the error's text tells how far the code has run.
    pub fn fate(&self) -> CallFate {
        match self {
            Self::Closed { fate, .. } | Self::Timeout { fate, .. } => *fate,
            Self::Connect { .. }
            | Self::Unauthorized { .. }
            | Self::RequestTooLarge { .. }
            | Self::Arguments(_)
            | Self::Busy => CallFate::NotRun,
            Self::Protocol { .. } | Self::Remote { .. } | Self::Failed { .. } | Self::TooLarge { .. } => {
                CallFate::Unknown
            }
        }
    }

    /// A member of `data` that is a text or a number, such as `file`, `line` or `hint`.
    pub fn detail(&self, name: &str) -> Option<String> {
        let Self::Remote { data, .. } = self else { return None };
        match data.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// A protocol error. The text may quote the server, so it is cut to a readable length.
    pub(super) fn protocol(address: &str, what: &str) -> Self {
        const MAX_CHARS: usize = 300;
        Self::Protocol { address: address.to_owned(), what: what.chars().take(MAX_CHARS).collect() }
    }
}

/// Why one attempt at a call failed. It decides whether there is another attempt.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server cannot have received the whole call. Another attempt is safe.
    BeforeSending(DriverError),
    /// The whole call was sent, and then the connection was lost or timed out.
    AfterSending(DriverError, Box<SupexServerInfo>),
    /// The server could not parse the call, and has not run it.
    Unread(DriverError),
    /// Another attempt would fail in the same way.
    Final(DriverError),
}

fn advice(fate: CallFate) -> &'static str {
    match fate {
        CallFate::NotRun => "; the call has not run",
        CallFate::Unknown => "; the call may have run, so look before you repeat it",
    }
}

fn timeout_text(phase: TimeoutPhase, limit: Duration) -> impl fmt::Display {
    let what = match phase {
        TimeoutPhase::Connect => "could not be connected to",
        TimeoutPhase::Send => "did not take the request",
        TimeoutPhase::Answer => "did not answer",
    };
    format!("{what} within {} s", limit.as_secs_f64())
}
