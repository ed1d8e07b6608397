//! The numbers of this dialect: error codes and exit codes. No other file spells one.

use parlor_vocab::{ProcessExit, ProcessRefusal};

use super::MAX_REQUEST_ID_BYTES;
use crate::jsonrpc::ErrorObject;

/// What a peer can do wrong, in a frame or in its place.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The frame is no message.
    #[error("failed to parse JSON-RPC message from exec-server stdio: {0}")]
    NoMessage(String),
    /// The id is longer than is kept for an answer.
    #[error("an id of {bytes} bytes is longer than the limit of {MAX_REQUEST_ID_BYTES}")]
    LongId {
        /// How long it is.
        bytes: usize,
    },
    /// Notifications other than `initialized` mean nothing here.
    #[error("unexpected notification method: {0}")]
    UnexpectedNotification(String),
    /// No such request.
    #[error("unknown method: {0}")]
    UnknownMethod(String),
    /// The method is known, its params do not fit.
    #[error("{0}")]
    BadParams(String),
    /// A process method before `initialize`.
    #[error("client must call initialize before using exec methods")]
    NotGreeted,
    /// A process method before `initialized`.
    #[error("client must send initialized before using exec methods")]
    NotReady,
    /// A second `initialize`.
    #[error("initialize may only be sent once per connection")]
    AlreadyGreeted,
}

const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

pub(super) fn of_flaw(flaw: &FrameError) -> ErrorObject {
    let code = match flaw {
        FrameError::NoMessage(_)
        | FrameError::LongId { .. }
        | FrameError::UnexpectedNotification(_)
        | FrameError::UnknownMethod(_)
        | FrameError::NotGreeted
        | FrameError::NotReady
        | FrameError::AlreadyGreeted => INVALID_REQUEST,
        FrameError::BadParams(_) => INVALID_PARAMS,
    };
    ErrorObject { code, message: clipped(flaw.to_string()) }
}

pub(super) fn of_refusal(refusal: &ProcessRefusal) -> ErrorObject {
    let code = match refusal {
        ProcessRefusal::UnknownProcess(_)
        | ProcessRefusal::ProcessExists(_)
        | ProcessRefusal::StdinClosed(_)
        | ProcessRefusal::TooManyProcesses { .. } => INVALID_REQUEST,
        ProcessRefusal::RelativeFolder(_) => INVALID_PARAMS,
        ProcessRefusal::StdinGone(_)
        | ProcessRefusal::StdinFull { .. }
        | ProcessRefusal::CannotStart { .. } => INTERNAL_ERROR,
    };
    ErrorObject { code, message: clipped(refusal.to_string()) }
}

/// Messages quote the peer, who may have sent megabytes.
const MAX_MESSAGE_BYTES: usize = 1024;

fn clipped(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
    message
}

/// A signal is 128 and its number, as shells have it. A process that `terminate` brought down is
/// always 137: clients know that number, and which of the two signals was needed is our affair.
pub(super) fn of_ending(ending: ProcessExit) -> i32 {
    match ending {
        ProcessExit::Code(code) => i32::from(code),
        ProcessExit::Signal(signal) => 128 + signal,
        ProcessExit::Terminated => 137,
        ProcessExit::Unknown => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_does_not_grow_with_what_it_quotes() {
        let error = of_flaw(&FrameError::UnknownMethod("ä".repeat(1 << 20)));
        assert!(error.message.len() < MAX_MESSAGE_BYTES + 8);
        assert!(error.message.starts_with("unknown method: ä") && error.message.ends_with('…'));
        assert_eq!(of_flaw(&FrameError::UnknownMethod("x".to_owned())).message, "unknown method: x");
    }
}
