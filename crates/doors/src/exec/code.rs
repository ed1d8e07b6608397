//! The error codes and exit codes of the exec protocol. No other file spells one.

use parlor_vocab::{ExecutorRefusal, HttpError, ProcessExit, ProcessRefusal};

use super::MAX_REQUEST_ID_BYTES;
use crate::jsonrpc::ErrorObject;
use crate::truncate::truncate_bytes;

/// Why the door refuses a frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The line is not a JSON-RPC message, or too long.
    #[error("failed to parse JSON-RPC message from exec-server stdio: {0}")]
    NotAMessage(String),
    /// The WebSocket message is not a JSON-RPC message.
    #[error("failed to parse websocket JSON-RPC message from exec-server websocket: {0}")]
    NotAWebSocketMessage(String),
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
    #[error("client must call initialize before using {0} methods")]
    InitializeMissing(&'static str),
    /// A process method before `initialized`.
    #[error("client must send initialized before using {0} methods")]
    InitializedMissing(&'static str),
    /// A second `initialize`.
    #[error("initialize may only be sent once per connection")]
    InitializeRepeated,
    /// A method that today's protocol may have, and this server does not.
    #[error("exec-server stub does not implement `{0}` yet")]
    NotImplemented(String),
    /// A process or a file access that is to be restricted.
    #[error("sandbox intent cannot be enforced on this executor")]
    SandboxRefused,
    /// An input of a file method that is no path of this machine, or no base64.
    #[error("{0}")]
    FileInput(String),
}

impl FrameError {
    /// The error that a client of today's protocol expects in place of this one.
    pub(super) fn of_today(self) -> Self {
        if let Self::UnknownMethod(name) = self { Self::NotImplemented(name) } else { self }
    }
}

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const FILE_NOT_FOUND: i64 = -32004;
const SESSION_ATTACHED: i64 = -32010;

/// The wire form of a frame error.
pub(super) fn frame_error(error: &FrameError) -> ErrorObject {
    let code = match error {
        FrameError::NotAMessage(_)
        | FrameError::NotAWebSocketMessage(_)
        | FrameError::IdTooLong { .. }
        | FrameError::UnexpectedNotification(_)
        | FrameError::UnknownMethod(_)
        | FrameError::InitializeMissing(_)
        | FrameError::InitializedMissing(_)
        | FrameError::InitializeRepeated
        | FrameError::FileInput(_) => INVALID_REQUEST,
        FrameError::NotImplemented(_) => METHOD_NOT_FOUND,
        FrameError::InvalidParams(_) | FrameError::SandboxRefused => INVALID_PARAMS,
    };
    ErrorObject { code, message: truncate_bytes(error.to_string(), MAX_MESSAGE_BYTES) }
}

/// The wire form of the backend's refusal.
pub(super) fn refusal(refusal: &ExecutorRefusal) -> ErrorObject {
    let code = match refusal {
        ExecutorRefusal::FileNotFound(_) => FILE_NOT_FOUND,
        ExecutorRefusal::SessionAttached(_) => SESSION_ATTACHED,
        ExecutorRefusal::FileRefused(_) | ExecutorRefusal::UnknownSession(_) => INVALID_REQUEST,
        ExecutorRefusal::Http(HttpError::Invalid(_))
        | ExecutorRefusal::UnenforceableIntent
        | ExecutorRefusal::NoSandbox(_) => INVALID_PARAMS,
        ExecutorRefusal::FileFailed(_) | ExecutorRefusal::Http(HttpError::Failed(_)) => INTERNAL_ERROR,
        ExecutorRefusal::Process(refusal) => process_refusal(refusal),
    };
    ErrorObject { code, message: truncate_bytes(refusal.to_string(), MAX_MESSAGE_BYTES) }
}

fn process_refusal(refusal: &ProcessRefusal) -> i64 {
    match refusal {
        ProcessRefusal::UnknownProcess(_)
        | ProcessRefusal::ProcessExists(_)
        | ProcessRefusal::StdinClosed(_)
        | ProcessRefusal::TooManyProcesses { .. } => INVALID_REQUEST,
        ProcessRefusal::RelativeFolder(_) => INVALID_PARAMS,
        ProcessRefusal::StdinGone(_)
        | ProcessRefusal::StdinFull { .. }
        | ProcessRefusal::CannotStart { .. } => INTERNAL_ERROR,
    }
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
