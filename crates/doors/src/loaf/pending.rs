//! The requests that the backend has not answered yet, and what their answers are for.

use parlor_vocab::{MediaId, SavedChat, SessionId};

use super::model::ModelSelection;

/// The client's request that an answer belongs to.
#[derive(Clone, Debug)]
pub(super) struct ReplyTo {
    /// The request's id, byte for byte as the client wrote it.
    pub(super) id: Box<str>,
    /// Whether the request is `command.execute`, whose answer wraps the output of the command.
    pub(super) is_command_output: bool,
}

/// A pending request to the backend.
#[derive(Debug)]
pub(super) enum Pending {
    /// The answer is ignored.
    Ignored,
    /// The preferences are saved; then this follows.
    SavePreferences(ReplyTo, AfterSave),
    /// The models are listed for the client. The text filters by provider.
    Models(ReplyTo, Option<String>),
    /// The models are listed to check a selection.
    ModelsForSelection(ReplyTo, Box<ModelSelection>),
    /// The models are listed again, because a key or a login has changed.
    RefreshModels,
    /// The routes of this model are listed.
    Routes(ReplyTo, String),
    Credentials(ReplyTo),
    SetKey(ReplyTo, Service),
    Login(ReplyTo, &'static str),
    Cancel(ReplyTo),
    Logout(ReplyTo, &'static str),
    Forget(ReplyTo, String),
    /// Saved chats are listed: the number of skipped chats and the limit.
    Chats(ReplyTo, usize, usize),
    /// A saved chat is read.
    Chat(ReplyTo, ChatPurpose),
    /// The images of a saved chat are read.
    ChatMedia(ReplyTo, ChatPurpose, Box<SavedChat>, Vec<MediaId>),
    Skills(ReplyTo),
    /// A step on the way from a prompt to a turn.
    Turn(TurnKey, TurnStep),
    Steer(ReplyTo, TurnKey),
    /// The answer to a question in the session with this id.
    Answer(ReplyTo, String),
    /// A session is summarized. The summary has an id like a turn.
    Summary(TurnKey),
    Rename(ReplyTo, String),
    /// A saved chat is watched between turns.
    IdleWatch(SessionId),
    /// A shutdown has stopped a turn of the session with this id: either this server is closing, or another process.
    ClosingCheck(String),
}

/// The key of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TurnKey {
    /// The id of the session.
    pub(super) chat: String,
    pub(super) turn: String,
}

/// What a turn waits for before its run starts.
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

/// The service whose key is set or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    OpenRouter,
    /// The key of this service is only ever removed: an older server may have stored one.
    Exa,
}

/// Why a saved chat is read.
#[derive(Clone, Debug)]
pub(super) enum ChatPurpose {
    /// To send it to the client. The query is for the error text.
    Send(ChatQuery),
    /// To continue it in the session with this id.
    Resume(ChatQuery, String),
}

/// How the client named a chat.
#[derive(Clone, Debug)]
pub(super) enum ChatQuery {
    Last,
    Path(String),
    Id(String),
}

/// What follows when the preferences are saved.
#[derive(Debug)]
pub(super) enum AfterSave {
    Onboarded,
    Selected(Box<ModelSelection>),
    Resumed(SessionId),
}
