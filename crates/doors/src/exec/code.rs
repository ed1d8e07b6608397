//! The error codes and exit codes of the exec protocol. No other file spells one.

use parlor_vocab::{ProcessExit, ProcessRefusal};

use super::MAX_REQUEST_ID_BYTES;
use crate::jsonrpc::ErrorObject;
use crate::truncate::truncate_bytes;

/// Why the door refuses a frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The frame is not a JSON-RPC message, or too long.
    #[error("failed to parse JSON-RPC message from exec-server stdio: {0}")]
    NotAMessage(String),
    /// The request's id is longer than [`MAX_REQUEST_ID_BYTES`].
    #[error("the request id has {bytes} bytes, and the limit is {MAX_REQUEST_ID_BYTES}; use shorter ids")]
    IdTooLong {
        /// The length of the id.
        bytes: usize,
    },
    /// A notification other than `initialized`.
    #[error("unexpected notification method: {0}")]
    UnexpectedNotification(String),
    /// A request for a method that the protocol does not have.
    #[error("unknown method: {0}")]
    UnknownMethod(String),
    /// The method is known, and its params are invalid.
    #[error("{0}")]
    InvalidParams(String),
    /// A process method before `initialize`.
    #[error("client must call initialize before using exec methods")]
    InitializeMissing,
    /// A process method before `initialized`.
    #[error("client must send initialized before using exec methods")]
    InitializedMissing,
    /// A second `initialize`.
    #[error("initialize may only be sent once per connection")]
    InitializeRepeated,
}

const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

/// The wire form of a frame error.
pub(super) fn frame_error(error: &FrameError) -> ErrorObject {
    let code = match error {
        FrameError::NotAMessage(_)
        | FrameError::IdTooLong { .. }
        | FrameError::UnexpectedNotification(_)
        | FrameError::UnknownMethod(_)
        | FrameError::InitializeMissing
        | FrameError::InitializedMissing
        | FrameError::InitializeRepeated => INVALID_REQUEST,
        FrameError::InvalidParams(_) => INVALID_PARAMS,
    };
    ErrorObject { code, message: truncate_bytes(error.to_string(), MAX_MESSAGE_BYTES) }
}

/// The wire form of the backend's refusal.
pub(super) fn refusal(refusal: &ProcessRefusal) -> ErrorObject {
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
    ErrorObject { code, message: truncate_bytes(refusal.to_string(), MAX_MESSAGE_BYTES) }
}

/// The longest error message. Messages quote the client, which may have sent megabytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The exit code on the wire. A signal is 128 plus its number, as in shells. A process that `terminate` ended is always
/// 137 (SIGKILL), which clients expect, even if SIGTERM was enough.
pub(super) fn exit_code(exit: ProcessExit) -> i32 {
    match exit {
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
    fn a_long_quote_is_truncated() {
        let error = frame_error(&FrameError::UnknownMethod("ä".repeat(1 << 20)));
        assert!(error.message.len() < MAX_MESSAGE_BYTES + 8);
        assert!(error.message.starts_with("unknown method: ä") && error.message.ends_with('…'));
        assert_eq!(frame_error(&FrameError::UnknownMethod("x".to_owned())).message, "unknown method: x");
    }
}
