//! The texts of all errors. The dialect has no codes: parents look for words in these.

use parlor_vocab::{FileError, SessionRefusal};

use super::{MAX_ATTACHMENTS, decode::FrameError, protocol::RpcEvent};

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
pub(super) fn of_flaw(flaw: FrameError) -> RpcEvent {
    RpcEvent::Error { id: flaw.id, message: flaw.message }
}

/// Why a command was turned down.
pub(super) fn of_refusal(refusal: &SessionRefusal) -> String {
    match refusal {
        SessionRefusal::Busy { .. } | SessionRefusal::Compacting => BUSY.to_owned(),
        SessionRefusal::UnknownSession(_)
        | SessionRefusal::SessionExists(_)
        | SessionRefusal::SessionHeld { .. }
        | SessionRefusal::TooManySessions { .. }
        | SessionRefusal::QueueFull { .. }
        | SessionRefusal::NoActiveRun
        | SessionRefusal::WrongRun { .. }
        | SessionRefusal::TooManyRuns { .. }
        | SessionRefusal::BackgroundProcesses
        | SessionRefusal::NotCompacted { .. }
        | SessionRefusal::UnknownMessage(_)
        | SessionRefusal::UnknownAgent(_)
        | SessionRefusal::TooManyRequests { .. }
        | SessionRefusal::TooManyWatched { .. }
        | SessionRefusal::MediaUnavailable { .. }
        | SessionRefusal::LogUnavailable { .. }
        | SessionRefusal::Closing { .. }
        | SessionRefusal::Internal => refusal.to_string(),
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
pub(super) fn of_file(flaw: FileError) -> Option<&'static str> {
    match flaw {
        FileError::Missing | FileError::Inaccessible | FileError::Unreadable => {
            Some("Cannot open attachment (check path, permissions, and symlinks)")
        }
        FileError::NotRegular => Some("Attachment must be a regular file"),
        FileError::Empty => Some("Attachment is empty"),
        FileError::TooLarge { .. } => None,
    }
}
