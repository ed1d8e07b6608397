//! The numbers of this dialect: error codes and exit codes. No other file spells one.

use parlor_vocab::{Ending, Refusal};

use crate::jsonrpc::ErrorObject;

/// What a peer can do wrong, in a frame or in its place.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    /// The frame is no message.
    #[error("failed to parse JSON-RPC message from exec-server stdio: {0}")]
    NoMessage(String),
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

pub(super) fn of_flaw(flaw: &Flaw) -> ErrorObject {
    let code = match flaw {
        Flaw::NoMessage(_)
        | Flaw::UnexpectedNotification(_)
        | Flaw::UnknownMethod(_)
        | Flaw::NotGreeted
        | Flaw::NotReady
        | Flaw::AlreadyGreeted => INVALID_REQUEST,
        Flaw::BadParams(_) => INVALID_PARAMS,
    };
    ErrorObject { code, message: flaw.to_string() }
}

pub(super) fn of_refusal(refusal: &Refusal) -> ErrorObject {
    let code = match refusal {
        Refusal::UnknownProcess(_)
        | Refusal::ProcessExists(_)
        | Refusal::StdinClosed(_)
        | Refusal::TooManyProcesses { .. } => INVALID_REQUEST,
        Refusal::RelativeFolder(_) => INVALID_PARAMS,
        Refusal::StdinGone(_) | Refusal::StdinFull { .. } | Refusal::CannotStart { .. } => INTERNAL_ERROR,
    };
    ErrorObject { code, message: refusal.to_string() }
}

/// A signal is 128 and its number, as shells have it. A process that `terminate` brought down is
/// always 137: clients know that number, and which of the two signals was needed is our affair.
pub(super) fn of_ending(ending: Ending) -> i32 {
    match ending {
        Ending::Code(code) => i32::from(code),
        Ending::Signal(signal) => 128 + signal,
        Ending::Terminated => 137,
        Ending::Unknown => -1,
    }
}
