//! Requests of a client that calls parlor's tools itself and delegates work to sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Entry, Failure, ListedSession, RegistryEvent, RegistryReply, RegistryRequest, RunId, Seq, SessionId,
    Ticket, ToolOutput,
};

/// A request to the backend of such a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolClientRequest {
    /// A request that the session registry answers.
    Registry(RegistryRequest),
    /// Calls a tool without a session.
    CallTool {
        /// A name that [`ToolInfo`](crate::ToolInfo) has.
        tool: String,
        /// The tool's input, as JSON text.
        input: String,
    },
    /// Waits for the end of a run.
    AwaitRun {
        /// The session of the run.
        session: SessionId,
        /// The run; `None` for the active run, or else the last one.
        run: Option<RunId>,
        /// After this time the reply tells how far the run is.
        limit: Duration,
    },
    /// Reads the events of a session from a position on.
    ReadLog {
        /// The session.
        session: SessionId,
        /// The last event that the client has.
        after: Seq,
        /// How many bytes of text to return at most. The first event is returned whatever its size.
        max_bytes: usize,
    },
    /// Lists all sessions, the last updated first.
    ListSessions {
        /// The [`ToolClientReply::Sessions::next`] of the page before; `None` for the first page.
        after: Option<String>,
        /// How many sessions to return at most.
        limit: usize,
    },
    /// Checks that a folder exists and can be entered.
    CheckFolder(PathBuf),
    /// Cancels the call or the wait with this ticket, which is still answered. Does nothing if it has been answered.
    Cancel(Ticket),
}

/// The reply to an accepted [`ToolClientRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolClientReply {
    /// The session registry's reply.
    Registry(RegistryReply),
    /// What the tool returned, or why it failed.
    Called(Result<ToolOutput, Failure>),
    /// How far the run is; `None` if the session has no such run.
    Run(Option<Box<RunReport>>),
    /// Some events of a session.
    Log {
        /// In the order of the log.
        entries: Vec<Arc<Entry>>,
        /// Whether the log has more events.
        has_more: bool,
    },
    /// One page of the list of sessions.
    Sessions {
        /// The sessions of this page.
        sessions: Vec<ListedSession>,
        /// Where the next page begins, if there is one.
        next: Option<String>,
    },
    /// [`ListSessions::after`](ToolClientRequest::ListSessions::after) is not the `next` of any page.
    UnknownPage,
    /// The folder cannot be used, for this reason.
    UnusableFolder(String),
    /// The request was carried out and has no result.
    Done,
}

/// What the backend reports without a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolClientEvent {
    /// An update of a watched session.
    Registry(RegistryEvent),
    /// A call or a wait is still being carried out.
    Progress {
        /// The ticket of the request.
        ticket: Ticket,
        /// How far it is, in a unit of the tool's own, with the value at the end; `None` if the tool does not say.
        done: Option<(f64, Option<f64>)>,
        /// What is being done, for people.
        message: Option<String>,
    },
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The run.
    pub run: RunId,
    /// Whether it has ended, and how.
    pub state: RunState,
    /// What the agent has written in this run so far; the middle of a long text is left out.
    pub text: String,
}

/// Whether a run has ended, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run waits for another one.
    Queued,
    /// The run is active.
    Running,
    /// The agent finished its work.
    Completed,
    /// The run could not go on.
    Failed(Failure),
    /// The run was stopped, for this reason.
    Stopped(String),
}
