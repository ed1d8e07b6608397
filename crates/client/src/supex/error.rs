//! What can go wrong between a driver and its server, and what that means for the call.

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

/// What was waited for when the time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutPhase {
    /// For the connection.
    ToConnect,
    /// For the server to take the request.
    ToSend,
    /// For the answer, or for the rest of it.
    ForAnswer,
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriverError {
    /// There is no connection to be had: start the server, or correct the address.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: String,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The connection ended before the answer came.
    #[error("{address} closed the connection before it answered{}", advice(*fate))]
    Closed {
        /// Whose connection it was.
        address: String,
        /// Whether the call may have run.
        fate: CallFate,
        /// What the operating system said, if the connection did not just end.
        source: Option<Arc<io::Error>>,
    },
    /// The server was silent for too long: give it more time, or ask for less.
    #[error("{address} {}{}", silence(*waiting, *limit), advice(*fate))]
    Timeout {
        /// Who was silent.
        address: String,
        /// What was waited for.
        waiting: TimeoutPhase,
        /// For how long.
        limit: Duration,
        /// Whether the call may have run.
        fate: CallFate,
    },
    /// The server said something that the protocol does not allow: is it a supex server?
    #[error("{address} broke the protocol: {what}")]
    Protocol {
        /// Who said it.
        address: String,
        /// What is wrong with it.
        what: String,
    },
    /// The server wants a token, or another one.
    #[error("{address} does not accept the token, or wants one: {message}")]
    Unauthorized {
        /// Who refused.
        address: String,
        /// The server's words.
        message: String,
    },
    /// The server answered with an error: the code failed, or the call is not right.
    #[error("{message} ({code})")]
    Remote {
        /// The JSON-RPC code.
        code: i64,
        /// The server's words.
        message: String,
        /// What else it said: often `file`, `line`, `class`, `backtrace` and `hint`. Null if nothing.
        data: Value,
    },
    /// A tool that answers with `"success":false` instead of an error did so.
    #[error("{tool} failed: {message}")]
    Failed {
        /// The tool.
        tool: String,
        /// The server's words.
        message: String,
    },
    /// The answer is longer than the caller wants to hold: allow more, or ask for less.
    #[error("the answer is longer than {limit} bytes; allow longer ones, or ask for less")]
    TooLarge {
        /// What was allowed.
        limit: usize,
    },
    /// The request is longer than servers accept. Nothing was sent.
    #[error(
        "a request of {bytes} bytes is longer than the limit of {MAX_REQUEST_BYTES}; put code into a file"
    )]
    RequestTooLarge {
        /// How long the line would be.
        bytes: usize,
    },
    /// The arguments of the call have no form in JSON. Nothing was sent.
    #[error("the arguments cannot be written as JSON: {0}")]
    Arguments(String),
    /// Too many calls wait for their turn already. Nothing was sent: try again later.
    #[error("{MAX_WAITING_CALLS} calls wait for this connection already; try again when some are done")]
    Busy,
}

impl DriverError {
    /// Whether the call may have had an effect. An error that the server itself reported says so in its
    /// own words; the code has then run as far as they tell.
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

    /// A breach of the protocol. The text may quote the server, so it is cut to a readable length.
    pub(super) fn protocol(address: &str, what: &str) -> Self {
        const READABLE: usize = 300;
        Self::Protocol { address: address.to_owned(), what: what.chars().take(READABLE).collect() }
    }
}

/// What happened to one attempt, for those who decide on the next.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing of the call was sent: no connection, or it broke too early. Another attempt is safe.
    BeforeSending(DriverError),
    /// All of the call was sent, and then the connection was lost or silent.
    AfterSending(DriverError, Box<SupexServerInfo>),
    /// The server could not read what was sent, and has not run it.
    Unread(DriverError),
    /// Another attempt would end in the same way.
    Final(DriverError),
}

fn advice(fate: CallFate) -> &'static str {
    match fate {
        CallFate::NotRun => "; the call has not run",
        CallFate::Unknown => "; the call may have run, so look before you repeat it",
    }
}

fn silence(waiting: TimeoutPhase, limit: Duration) -> impl fmt::Display {
    let what = match waiting {
        TimeoutPhase::ToConnect => "could not be connected to",
        TimeoutPhase::ToSend => "did not take the request",
        TimeoutPhase::ForAnswer => "did not answer",
    };
    format!("{what} within {} s", limit.as_secs_f64())
}
