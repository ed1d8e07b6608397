//! The error texts of the synaps protocol, also that of a line above the limit, except those about lines that are not a
//! command (`decode.rs`). It has no error codes: parents search the texts for words.

use parlor_vocab::{FileError, SessionRefusal};

use super::{MAX_ATTACHMENTS, MAX_FRAME_BYTES, decode::FrameError, wire::RpcEvent};

/// A line is above the limit.
pub(super) const OVERSIZE: &str = "frame exceeds 1 MiB limit";
const _: () = assert!(MAX_FRAME_BYTES == 1 << 20); // The text names the limit.
/// A turn is running. Parents search this text for `abort first`.
pub(super) const BUSY: &str = "another prompt is in flight; abort first";
/// A prompt that steers has attachments.
pub(super) const STEER_WITH_ATTACHMENTS: &str = "attachments cannot be added to a turn that runs";
/// The result of a subagent that did not finish. Parents take a preview that begins with `error` for a failure.
pub(super) const SUBAGENT_CUT_OFF: &str = "error: the turn ended before it was done";
/// The result of a tool call whose input was not completed.
pub(super) const CALL_CUT_OFF: &str = "not carried out: the answer broke off";
/// Stands in the history after a turn that the user stopped.
pub(super) const INTERRUPTED_BY_USER: &str = "[Request interrupted by user]";
/// Stands in the history after a turn that a crash ended.
pub(super) const INTERRUPTED_BY_CRASH: &str = "[Request interrupted: Synaps stopped unexpectedly]";
/// Stands in the history after a turn that the shutdown of the program ended.
pub(super) const INTERRUPTED: &str = "[Request interrupted]";

/// The `error` frame for a line that is not a command.
pub(super) fn frame_error(error: FrameError) -> RpcEvent {
    RpcEvent::Error { id: error.id, message: error.message }
}

/// The text for a command that the backend refused.
pub(super) fn refusal_text(refusal: &SessionRefusal) -> String {
    match refusal {
        SessionRefusal::Busy { .. } | SessionRefusal::Compacting => BUSY.to_owned(),
        SessionRefusal::UnknownSession(_)
        | SessionRefusal::SessionExists(_)
        | SessionRefusal::SessionHeld { .. }
        | SessionRefusal::NoNode { .. }
        | SessionRefusal::TooManySessions { .. }
        | SessionRefusal::QueueFull { .. }
        | SessionRefusal::NoActiveRun
        | SessionRefusal::WrongRun { .. }
        | SessionRefusal::TooManyRuns { .. }
        | SessionRefusal::BackgroundProcesses
        | SessionRefusal::NotCompacted { .. }
        | SessionRefusal::UnknownMessage(_)
        | SessionRefusal::UnknownQuestion(_)
        | SessionRefusal::QuestionSettled { .. }
        | SessionRefusal::InvalidAnswer { .. }
        | SessionRefusal::UnknownAgent(_)
        | SessionRefusal::TooManyRequests { .. }
        | SessionRefusal::TooManyQueuedBytes { .. }
        | SessionRefusal::KeyTooLong { .. }
        | SessionRefusal::TitleTooLong { .. }
        | SessionRefusal::TitleBlank
        | SessionRefusal::TooManyWatched { .. }
        | SessionRefusal::MediaUnavailable { .. }
        | SessionRefusal::LogUnavailable { .. }
        | SessionRefusal::RequestTooLong { .. }
        | SessionRefusal::OutcomeUnknown(_)
        | SessionRefusal::OwnerSilent { .. }
        | SessionRefusal::Closing { .. }
        | SessionRefusal::Internal => refusal.to_string(),
    }
}

/// An attachment's path is not absolute.
pub(super) fn relative_path(path: &str) -> String {
    format!("attachment path must be absolute: {path}")
}

/// An attachment's path contains `..`.
pub(super) fn parent_component(path: &str) -> String {
    format!("attachment path must not contain ..: {path}")
}

/// A prompt has more than [`MAX_ATTACHMENTS`].
pub(super) fn too_many_attachments() -> String {
    format!("At most {MAX_ATTACHMENTS} attachments are allowed")
}

/// The error text if a file makes the door refuse the whole prompt; `None` if the door only omits the file.
pub(super) fn file_error(error: FileError) -> Option<&'static str> {
    match error {
        FileError::Missing | FileError::Inaccessible | FileError::Unreadable => {
            Some("Cannot open attachment (check path, permissions, and symlinks)")
        }
        FileError::NotRegular => Some("Attachment must be a regular file"),
        FileError::Empty => Some("Attachment is empty"),
        FileError::TooLarge { .. } => None,
    }
}
