//! What one process of parlor asks of another about the sessions that the other has open.

use crate::{RunId, Seq, SessionCommand, SessionId, SessionReply, StreamKind};

/// A request to the process that has a session open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRequest {
    /// Sends a command to a session.
    Session(SessionId, Box<SessionCommand>),
    /// Deletes a session and its log.
    Delete(SessionId),
    /// Reports the updates of a session from the start of its active run on, or from now on if none is active. Refused if
    /// the process does not have the session open.
    Watch(SessionId),
    /// Ends a watch.
    Unwatch(SessionId),
}

/// The reply to an accepted [`PeerRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerReply {
    /// The session's reply to its command.
    Session(SessionReply),
    /// The request was carried out and has no result.
    Done,
}

/// An update of a session that another process watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEvent {
    /// The watched session.
    pub session: SessionId,
    /// What happened.
    pub update: PeerUpdate,
}

/// What the owner of a session reports to another process. Events themselves come from the log, which both share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerUpdate {
    /// The log holds the session's events up to this one. The first is the event with which the watch begins.
    Head(Seq),
    /// A piece of a text that is being written.
    Delta {
        /// The run that the text belongs to.
        run: RunId,
        /// The text that this piece continues.
        stream: StreamKind,
        /// The new piece.
        text: String,
    },
    /// The process no longer has the session open. No update follows.
    Closed,
}
