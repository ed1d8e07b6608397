//! What is being asked of the office, and for whom.

use parlor_vocab::{MediaId, SavedChat, SessionId};

use super::model::Selecting;

/// Whom an answer goes to.
#[derive(Clone, Debug)]
pub(super) struct To {
    /// The request's id, as it was written.
    pub(super) id: Box<str>,
    /// Whether the answer is the output of a command.
    pub(super) is_output: bool,
}

/// A question that is not answered yet.
#[derive(Debug)]
pub(super) enum Pending {
    /// Nobody waits for it.
    Nothing,
    /// Something was to be remembered; then this is told.
    Kept(To, AfterSave),
    /// The models, for their list.
    Models(To, Option<String>),
    /// The models, to choose one.
    Select(To, Box<Selecting>),
    /// The models, after a key or a login changed them.
    Refresh,
    Routes(To, String),
    Logins(To),
    SetKey(To, Service),
    Login(To, &'static str),
    Cancel(To),
    Logout(To, &'static str),
    Forget(To, String),
    Chats(To, usize, usize),
    /// A saved chat, to be told or taken into a session.
    Chat(To, ChatFor),
    /// Its images.
    ChatMedia(To, ChatFor, Box<SavedChat>, Vec<MediaId>),
    Skills(To),
    /// Something on the way from a prompt to a turn.
    Turn(Place, TurnStep),
    Steer(To, Place),
    /// A summary of the session's chat, which has an id like a turn.
    Summary(Place),
    Rename(To, String),
}

/// A turn of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) chat: String,
    pub(super) turn: String,
}

/// What a turn that has not begun waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnStep {
    Skills,
    Files,
    Media,
    Create,
    Watch,
    Choose,
    Send,
}

/// Whose key is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    OpenRouter,
    Exa { is_skipped: bool },
}

/// What a saved chat is read for.
#[derive(Clone, Debug)]
pub(super) enum ChatFor {
    /// To be told; the flaw if there is none is about this.
    Tell(ChatQuery),
    /// To be gone on with in a session.
    Resume(ChatQuery, String),
}

/// How a chat was named.
#[derive(Clone, Debug)]
pub(super) enum ChatQuery {
    Last,
    Path(String),
    Id(String),
}

/// What is told once something is remembered.
#[derive(Debug)]
pub(super) enum AfterSave {
    Onboarded,
    Selected(Box<Selecting>),
    Resumed(SessionId),
}
