//! The texts of all errors. The dialect has no codes: parents look for words in these.

use parlor_vocab::{FileFlaw, Refusal};

use super::{MAX_ATTACHMENTS, decode::Flaw, protocol::RpcEvent};

/// A line is longer than the limit.
pub(super) const OVERSIZE: &str = "frame exceeds 1 MiB limit";
/// A turn is running. Parents look for `abort first`.
pub(super) const BUSY: &str = "another prompt is in flight; abort first";
/// What stands for a subagent that was cut off. Parents take a preview that begins so as a failure.
pub(super) const CUT_OFF: &str = "error: the turn ended before it was done";
/// What stands for the result of a call whose input broke off.
pub(super) const NOT_CALLED: &str = "not carried out: the answer broke off";
/// In the history, after a turn that its user stopped.
pub(super) const INTERRUPTED_BY_USER: &str = "[Request interrupted by user]";
/// In the history, after a turn that was cut off by a crash.
pub(super) const INTERRUPTED_BY_CRASH: &str = "[Request interrupted: Synaps stopped unexpectedly]";
/// In the history, after a turn that ended with the program.
pub(super) const INTERRUPTED: &str = "[Request interrupted]";

/// The error for a line that is no command.
pub(super) fn of_flaw(flaw: Flaw) -> RpcEvent {
    RpcEvent::Error { id: flaw.id, message: flaw.message }
}

/// Why a command was turned down.
pub(super) fn of_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Busy { .. } | Refusal::Compacting => BUSY.to_owned(),
        Refusal::UnknownSession(_)
        | Refusal::SessionExists(_)
        | Refusal::SessionHeld { .. }
        | Refusal::TooManySessions { .. }
        | Refusal::QueueFull { .. }
        | Refusal::NoActiveRun
        | Refusal::WrongRun { .. }
        | Refusal::TooManyRuns { .. }
        | Refusal::BackgroundProcesses
        | Refusal::NotCompacted { .. }
        | Refusal::UnknownMessage(_)
        | Refusal::UnknownAgent(_)
        | Refusal::TooManyQuestions { .. }
        | Refusal::TooManyWatched { .. }
        | Refusal::MediaUnavailable { .. }
        | Refusal::LogUnavailable { .. }
        | Refusal::Internal
        | Refusal::UnknownProcess(_)
        | Refusal::ProcessExists(_)
        | Refusal::StdinClosed(_)
        | Refusal::StdinGone(_)
        | Refusal::StdinFull { .. }
        | Refusal::RelativeFolder(_)
        | Refusal::TooManyProcesses { .. }
        | Refusal::CannotStart { .. } => refusal.to_string(),
    }
}

/// An attachment's path does not begin at the root.
pub(super) fn relative(path: &str) -> String {
    format!("attachment path must be absolute: {path}")
}

/// An attachment's path leads upwards.
pub(super) fn upwards(path: &str) -> String {
    format!("attachment path must not contain ..: {path}")
}

/// There are more attachments than a prompt may have.
pub(super) fn too_many_attachments() -> String {
    format!("At most {MAX_ATTACHMENTS} attachments are allowed")
}

/// Why a file refuses the whole prompt; none if only the file itself is left out.
pub(super) fn of_file(flaw: FileFlaw) -> Option<&'static str> {
    match flaw {
        FileFlaw::Closed => Some("Cannot open attachment (check path, permissions, and symlinks)"),
        FileFlaw::NotRegular => Some("Attachment must be a regular file"),
        FileFlaw::Empty => Some("Attachment is empty"),
        FileFlaw::TooLarge => None,
    }
}
