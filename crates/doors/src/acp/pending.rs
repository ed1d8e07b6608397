//! The requests that the backend has not answered yet, and what their answers are for.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::RequestId;
use parlor_vocab::{SessionId, WatchFrom};

use super::mcp_servers::RequestedServers;
use super::open_session::OpeningKind;
use super::options::OptionChange;

/// A pending request to the backend.
#[derive(Debug)]
pub(super) enum Pending {
    /// The answer is ignored.
    Ignored,
    /// The folder of a new session is checked.
    CheckFolder(RequestId, NewFolder),
    /// A session is created.
    Create(RequestId, NewFolder),
    /// A session is described before it is opened.
    Describe(ExistingSession),
    /// The MCP servers of an open session start.
    UseServers(SessionId, ServersUse),
    /// The watch of an open session begins.
    Watch(SessionId),
    /// Sessions are listed.
    List(RequestId),
    /// The files of the prompt with this key are stored.
    StoreMedia(SessionId, String),
    /// The prompt with this key is sent.
    Send(SessionId, String),
    /// The text with this key is added to the active run.
    Steer(Steering),
    /// An option is changed.
    Choose(RequestId, SessionId, OptionChange, ChoiceAnswer),
    /// The session is left.
    Release(RequestId),
    /// The session is deleted.
    Delete(Deletion),
    /// A login to this provider is running.
    Login(RequestId, String),
    /// A login is removed; those that follow.
    Logout(RequestId, Vec<String>),
    /// The models are listed again, because a login has changed.
    Models,
}

impl Pending {
    /// The request and the provider of a login.
    pub(super) fn login(&self) -> Option<(&RequestId, &str)> {
        if let Self::Login(id, provider) = self { Some((id, provider)) } else { None }
    }
}

/// What follows when the MCP servers of a session have started.
#[derive(Debug)]
pub(super) enum ServersUse {
    /// The session is watched from here.
    Watch(WatchFrom),
    /// The `session/resume` of a session that is open already is answered.
    Resumed(RequestId),
}

/// The folder and the MCP servers of a session that is being created.
#[derive(Debug)]
pub(super) struct NewFolder {
    pub(super) folder: PathBuf,
    pub(super) servers: RequestedServers,
}

/// A session that the client wants to open.
#[derive(Debug)]
pub(super) struct ExistingSession {
    pub(super) id: RequestId,
    pub(super) session: SessionId,
    /// The folder that the client expects the session to have.
    pub(super) folder: PathBuf,
    pub(super) kind: OpeningKind,
    pub(super) servers: RequestedServers,
}

/// A text that the client adds to a run.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) id: RequestId,
    pub(super) session: SessionId,
    pub(super) key: String,
    /// Becomes a run of its own if no run is active; `None` if the client forbids that.
    pub(super) otherwise: Option<Box<parlor_vocab::UserInput>>,
}

/// Which response a change of an option has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChoiceAnswer {
    /// All options, for `session/set_config_option`.
    Options,
    /// Nothing, for the older `session/set_mode` and `session/set_model`.
    Empty,
}

/// A session that is being deleted.
#[derive(Debug)]
pub(super) struct Deletion {
    pub(super) id: RequestId,
    pub(super) session: SessionId,
    /// How often the engine has refused because a run was active.
    pub(super) refusals: u32,
}
