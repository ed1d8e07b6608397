//! What can be asked beside the house, by doors whose peers run a whole front end: the chats that were saved,
//! the models there are and which one is used, skills, keys and logins.

use std::path::PathBuf;

use crate::{
    AgentChoice, FileError, NamedFile, RegistryEvent, RegistryReply, RegistryRequest, SessionId,
    SessionOverview, Timestamp,
};

/// Something that a door wants of the office.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendRequest {
    /// Something that it wants of the house.
    Registry(RegistryRequest),
    /// Tell which chats were saved, the last updated first.
    ListChats {
        /// How many of them to leave out.
        skip: usize,
        /// How many to tell.
        limit: usize,
    },
    /// Read a saved chat as it is, whoever has it open.
    ReadChat(ChatSelector),
    /// Read files of this machine that a peer named. Symbolic links are followed.
    ReadFiles {
        /// Absolute paths.
        paths: Vec<PathBuf>,
        /// The largest file.
        max_bytes: u64,
    },
    /// Tell which models there are.
    ListModels,
    /// Tell through whom a model of a router can be reached.
    ListRoutes(String),
    /// Tell which skills there are.
    ListSkills,
    /// Remember what was chosen, for the next start too.
    SavePreferences(Preferences),
    /// Tell which logins and keys there are.
    ListCredentials,
    /// Keep a key, or forget it.
    SetKey {
        /// Whose it is.
        service: String,
        /// The key; none forgets it.
        key: Option<SecretText>,
    },
    /// Log in. Answered when it is over; until then there are [`FrontendEvent::Login`].
    Login {
        /// Where.
        provider: String,
        /// How.
        method: LoginMethod,
        /// What the provider is told of who asks, if anything.
        originator: Option<String>,
    },
    /// Give up the logins to a provider that are under way.
    CancelLogin(String),
    /// Forget a login.
    Logout(String),
    /// Forget what was chosen, all keys and all logins. Chats stay.
    ForgetAll,
}

/// What the office answers to an accepted [`FrontendRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendReply {
    /// What the house says.
    Registry(RegistryReply),
    /// The chats of the page.
    Chats {
        /// How many there are in all.
        total: usize,
        /// Those asked for.
        chats: Vec<ChatSummary>,
    },
    /// The chat, if there is one that fits.
    Chat(Option<Box<SavedChat>>),
    /// The files, or why there is none, in the order of the question.
    Files(Vec<Result<NamedFile, FileError>>),
    /// The models, in the order in which they are offered.
    Models(Vec<ModelOption>),
    /// The routes, or why they are not known.
    Routes(Result<Vec<String>, String>),
    /// The skills.
    Skills(SkillList),
    /// The logins and keys.
    Credentials(Credentials),
    /// The key was kept; so many models can be had with it.
    KeySet {
        /// How many, as far as that is known.
        models: usize,
    },
    /// How a login ended, and what there is now.
    LoggedIn(Result<(CompletedLogin, Credentials), LoginFailure>),
    /// How many logins were given up.
    Cancelled(usize),
    /// Whether there was a login, and what there is now.
    LoggedOut(bool, Credentials),
    /// Done.
    Done,
    /// It was not done, and why.
    Failed(String),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendEvent {
    /// In the house.
    Registry(RegistryEvent),
    /// In a login that is under way.
    Login {
        /// To which provider.
        provider: String,
        /// What.
        step: LoginStep,
    },
    /// The program was told to end, and nothing more happens. Always the last.
    Ending(ShutdownSignal),
}

/// How a program is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownSignal {
    /// By the keys that interrupt it.
    Interrupt,
    /// By whoever manages it.
    Terminate,
}

/// Which chat is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatSelector {
    /// The one that was updated last.
    Last,
    /// The one of this id, or the only one whose id begins so; in small or capital letters.
    Id(String),
}

/// A line about a saved chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatSummary {
    /// Its session.
    pub id: SessionId,
    /// What people call it.
    pub title: Option<String>,
    /// What answers in it, as far as a line tells.
    pub choice: AgentChoice,
    /// When it began.
    pub created: Timestamp,
    /// When something happened in it last.
    pub updated: Timestamp,
    /// How many messages it has.
    pub messages: u64,
}

/// A saved chat with what was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedChat {
    /// The line about it.
    pub about: ChatSummary,
    /// The session.
    pub overview: SessionOverview,
}

/// A model that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOption {
    /// What it is called in commands.
    pub id: String,
    /// The group that it is offered in.
    pub provider: String,
    /// What people call that group, if not by its name.
    pub shown_provider: Option<String>,
    /// What people call it.
    pub label: String,
    /// What it is, in a sentence.
    pub description: String,
    /// How many tokens it can read, if that is known.
    pub window: Option<u64>,
    /// What a session chooses to be answered by it.
    pub choice: AgentChoice,
}

/// The skills there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillList {
    /// Where they are looked for.
    pub folders: Vec<PathBuf>,
    /// What could not be read, in words for people.
    pub errors: Vec<String>,
    /// By name.
    pub skills: Vec<SkillSummary>,
}

/// A line about a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSummary {
    /// By which it is mentioned.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its file.
    pub file: PathBuf,
}

/// What was chosen for all sessions of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// The model, by the id of its [`ModelOption`]; empty if none was ever chosen.
    pub model: String,
    /// The group that it is offered in.
    pub provider: String,
    /// How hard it is to think, in the front end's word.
    pub reasoning: String,
    /// The route to models of a router.
    pub route: String,
    /// Whether the first steps were done.
    pub setup_done: bool,
}

/// The logins and keys there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Whom one is logged in to, with whose account.
    pub providers: Vec<(String, Option<LoginAccount>)>,
    /// Whose keys are kept.
    pub keys: Vec<String>,
}

/// Whose login it is, as far as a provider tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginAccount {
    /// What the provider calls it.
    pub id: Option<String>,
    /// Its mail address.
    pub email: Option<String>,
    /// The name of the person.
    pub name: Option<String>,
    /// The address of a picture.
    pub picture: Option<String>,
}

/// How somebody wants to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginMethod {
    /// As suits the machine.
    Auto,
    /// With a browser.
    Browser,
    /// With a code that is entered elsewhere.
    Device,
}

/// What a login has to tell on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// The user is to open this address.
    Url(String),
    /// The user is to enter a code.
    Code {
        /// Where.
        url: String,
        /// The code.
        code: String,
        /// How many seconds lie between two questions whether it was entered.
        interval_seconds: u64,
        /// How many seconds it can be entered for.
        expires_in_seconds: u64,
    },
}

/// A login that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedLogin {
    /// Whether by a code and not by a browser.
    pub by_device: bool,
    /// Whose it is.
    pub account: Option<LoginAccount>,
}

/// Why a login came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// Nobody said how to log in there.
    NotConfigured,
    /// Somebody gave it up.
    Cancelled,
    /// What the browser brought back belongs to another login.
    StateMismatch,
    /// The user or the provider said no, in these words.
    Denied(String),
    /// The browser came back without a code.
    NoCode,
    /// It was not completed within so many seconds.
    TimedOut(u64),
    /// The code was not entered in time.
    CodeExpired,
    /// The provider does not know codes.
    NoDeviceCode,
    /// The provider gave no code: the status, and its words.
    CodeRefused(Option<u16>, String),
    /// The provider does not say whether the code was entered: the status, and its words.
    PollFailed(Option<u16>, String),
    /// The provider gave no token: the status, and its words.
    NoToken(Option<u16>, String),
    /// Something else, in words for people.
    Other(String),
}

/// Text that must not be seen, such as a key. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let command =
            FrontendRequest::SetKey { service: "x".to_owned(), key: Some(SecretText("s3cret".to_owned())) };
        assert!(!format!("{command:?}").contains("s3cret"));
    }
}
