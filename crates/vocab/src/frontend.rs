//! Requests of a whole front end. Beside sessions, such a client manages saved chats, models, skills, keys and logins.

use std::path::PathBuf;

use crate::{
    AgentChoice, FileError, NamedFile, PolicyMode, RegistryEvent, RegistryReply, RegistryRequest, SessionId,
    SessionOverview, Timestamp, Usage,
};

/// A request to the front-end backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendRequest {
    /// A request that the session registry answers.
    Registry(RegistryRequest),
    /// Lists saved chats, the last updated first.
    ListChats {
        /// How many chats of the list to leave out at its start.
        skip: usize,
        /// How many chats to return at most.
        limit: usize,
    },
    /// Reads a saved chat, even if another process has its session open.
    ReadChat(ChatSelector),
    /// Lists all sessions, the last updated first, also those without messages.
    ListSessions {
        /// Only sessions with exactly this working folder.
        folder: Option<PathBuf>,
        /// The [`FrontendReply::Sessions::next`] of the page before; `None` for the first page.
        after: Option<String>,
        /// How many sessions to return at most.
        limit: usize,
    },
    /// Describes a session without its history. Opens the session if no process has it open.
    DescribeSession(SessionId),
    /// Checks that a folder exists and can be entered.
    CheckFolder(PathBuf),
    /// Gives the runs of a session the tools of these MCP servers, in place of those that this connection named before. The
    /// servers end when the connection leaves the session. The reply comes when they have started, or took too long.
    UseMcpServers {
        /// The session.
        session: SessionId,
        /// The working folder of programs.
        folder: PathBuf,
        /// The servers; none ends those from before.
        servers: Vec<ClientMcpServer>,
    },
    /// Reads files of this machine that a client named. Follows symbolic links.
    ReadFiles {
        /// Absolute paths.
        paths: Vec<PathBuf>,
        /// The size limit of each file.
        max_bytes: u64,
    },
    /// Lists the models that a user can choose.
    ListModels(ModelLists),
    /// Lists the upstream providers through which a model router offers this model.
    ListRoutes(String),
    /// Lists the skills.
    ListSkills,
    /// Saves the user's choices for this and later starts.
    SavePreferences(Preferences),
    /// Lists logins and keys.
    ListCredentials,
    /// Saves or deletes an API key.
    SetKey {
        /// The service that the key is for.
        service: String,
        /// The key; `None` deletes the saved one.
        key: Option<SecretText>,
    },
    /// Logs in to a provider. [`FrontendEvent::Login`] reports the steps; the reply comes when the login has ended.
    Login {
        /// The provider to log in to.
        provider: String,
        /// By browser or by device code.
        method: LoginMethod,
        /// The client name that parlor sends to the provider, if any.
        originator: Option<String>,
        /// Whether parlor opens the provider's page in a browser of this machine. If not, the client does.
        opens_browser: bool,
    },
    /// Cancels the logins to this provider that are under way.
    CancelLogin(String),
    /// Deletes the login to this provider.
    Logout(String),
    /// Deletes preferences, keys and logins. Chats stay.
    ForgetAll,
}

/// Which lists of the providers' own models a list of models includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelLists {
    /// Those that parlor has, however old. Asks no provider.
    Cached,
    /// Those that parlor has, while it requests newer ones. The reply may wait briefly for a provider without a list.
    Current,
}

/// The reply to an accepted [`FrontendRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendReply {
    /// The session registry's reply.
    Registry(RegistryReply),
    /// One page of the list of chats.
    Chats {
        /// How many chats there are in all.
        total: usize,
        /// The chats of this page.
        chats: Vec<ChatSummary>,
    },
    /// The chat; `None` if no chat, or more than one, matches the selector.
    Chat(Option<Box<SavedChat>>),
    /// One page of the list of sessions. A page is empty only if there is no next one.
    Sessions {
        /// The sessions of this page.
        sessions: Vec<ListedSession>,
        /// Where the next page begins, if there is one.
        next: Option<String>,
    },
    /// [`ListSessions::after`](FrontendRequest::ListSessions::after) is not the `next` of any page.
    UnknownPage,
    /// The session; `None` if there is none with this id.
    Description(Option<Box<SessionDescription>>),
    /// Which tools of MCP servers are missing and why, each one sentence for people.
    McpServers(Vec<String>),
    /// One result for each path, in the order of the request.
    Files(Vec<Result<NamedFile, FileError>>),
    /// The models, in the order in which to show them.
    Models(Vec<ModelOption>),
    /// The upstream providers, or why the router did not list them.
    Routes(Result<Vec<String>, String>),
    /// The skills and where they were found.
    Skills(SkillList),
    /// The logins and keys.
    Credentials(Credentials),
    /// The key was saved.
    KeySet {
        /// How many models the key gives access to, as far as parlor knows.
        models: usize,
    },
    /// The result of a login, with the logins and keys after it.
    LoggedIn(Result<(CompletedLogin, Credentials), LoginFailure>),
    /// How many logins were cancelled.
    Cancelled(usize),
    /// Whether there was a login to delete, with the logins and keys after it.
    LoggedOut(bool, Credentials),
    /// The request was carried out and has no result.
    Done,
    /// The request failed, for this reason.
    Failed(String),
}

/// What the front-end backend reports without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendEvent {
    /// An update of a watched session.
    Registry(RegistryEvent),
    /// A login under way needs the user to do something.
    Login {
        /// The provider of the login.
        provider: String,
        /// What the user has to do.
        step: LoginStep,
    },
    /// The program is shutting down. Always the last event.
    Ending(ShutdownSignal),
}

/// The signal that shuts the program down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownSignal {
    /// `SIGINT`: somebody pressed Ctrl-C.
    Interrupt,
    /// `SIGTERM`: a process manager ends the program.
    Terminate,
}

/// Selects a saved chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatSelector {
    /// The chat that was updated last.
    Last,
    /// The chat with this id, or the only chat whose id begins with this text. Case-insensitive.
    Id(String),
}

/// One row in the list of saved chats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatSummary {
    /// The chat's session.
    pub id: SessionId,
    /// The title that somebody gave it, or else its latest prompt.
    pub title: Option<String>,
    /// The agent and model, as far as the log's record of the session has them.
    pub choice: AgentChoice,
    /// When the session was created.
    pub created: Timestamp,
    /// When the session's last event happened.
    pub updated: Timestamp,
    /// How many messages the session has.
    pub messages: u64,
}

/// One row in the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// The session.
    pub id: SessionId,
    /// The working folder of the session's tools.
    pub folder: PathBuf,
    /// The title, if anybody set one.
    pub title: Option<String>,
    /// When the session's last event happened.
    pub updated: Timestamp,
}

/// A session without its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDescription {
    /// The working folder of the session's tools.
    pub folder: PathBuf,
    /// The agent, model and reasoning effort of later runs.
    pub choice: AgentChoice,
    /// The mode that was chosen for the session, if any.
    pub mode: Option<PolicyMode>,
    /// The sum over all runs.
    pub usage: Usage,
}

/// An MCP server that a client brings for a session. Its environment, headers and arguments may be secrets, so `Debug` does
/// not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientMcpServer {
    /// The first part of the names of its tools.
    pub name: String,
    /// How to reach it.
    pub transport: ClientMcpTransport,
}

/// How to reach a server that a client brings.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientMcpTransport {
    /// A program that speaks on standard input and output.
    Program {
        /// A path, or a name to look up in `PATH`.
        command: String,
        /// The arguments.
        args: Vec<String>,
        /// Variables beside those that commands of agents get.
        env: Vec<(String, String)>,
    },
    /// A web service.
    Http {
        /// The address of the endpoint.
        url: String,
        /// Headers of every request.
        headers: Vec<(String, String)>,
    },
}

impl std::fmt::Debug for ClientMcpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientMcpServer({:?})", self.name)
    }
}

/// A saved chat with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedChat {
    /// The chat's row in the list.
    pub summary: ChatSummary,
    /// The state of the chat's session.
    pub overview: SessionOverview,
}

/// A model that a user can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOption {
    /// The name that requests use.
    pub id: String,
    /// The group in which the model is listed.
    pub provider: String,
    /// A display name of the group, if it differs from `provider`.
    pub provider_label: Option<String>,
    /// The model's display name.
    pub label: String,
    /// One sentence for people.
    pub description: String,
    /// The size of the context window in tokens, if known.
    pub context_window: Option<u64>,
    /// The choice that makes a session use this model.
    pub choice: AgentChoice,
}

/// The skills that agents can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillList {
    /// The folders that were searched.
    pub folders: Vec<PathBuf>,
    /// Skills that could not be read, one sentence each.
    pub errors: Vec<String>,
    /// The skills, sorted by name.
    pub skills: Vec<SkillSummary>,
}

/// One row in the list of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSummary {
    /// The name by which a user mentions the skill.
    pub name: String,
    /// What the skill is for.
    pub description: String,
    /// The skill's file.
    pub file: PathBuf,
}

/// The user's choices for all sessions of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// The [`ModelOption::id`] of the model; empty if the user never chose one.
    pub model: String,
    /// The [`ModelOption::provider`] of the model.
    pub provider: String,
    /// The reasoning effort, in the front end's spelling.
    pub reasoning: String,
    /// The upstream provider for models of a router.
    pub route: String,
    /// Whether the user has completed the first-time setup.
    pub setup_done: bool,
}

/// The logins and keys that are saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The providers that the user is logged in to, with the account if the provider names it.
    pub providers: Vec<(String, Option<LoginAccount>)>,
    /// The services that a key is saved for.
    pub keys: Vec<String>,
}

/// The account of a login. The provider decides which fields it reveals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginAccount {
    /// The provider's id of the account.
    pub id: Option<String>,
    /// The e-mail address.
    pub email: Option<String>,
    /// The person's name.
    pub name: Option<String>,
    /// The URL of a picture.
    pub picture: Option<String>,
}

/// How a user wants to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginMethod {
    /// By browser if this machine can open one, otherwise by device code.
    Auto,
    /// In a browser on this machine.
    Browser,
    /// By a code that the user enters on any device.
    Device,
}

/// What the user has to do to continue a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// Open this URL in a browser.
    Url(String),
    /// Enter a code on a web page.
    Code {
        /// The web page.
        url: String,
        /// The code to enter.
        code: String,
        /// How often parlor asks the provider whether the code was entered.
        interval_seconds: u64,
        /// How long the code is valid.
        expires_in_seconds: u64,
    },
}

/// A login that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedLogin {
    /// Whether the user entered a device code instead of using a browser on this machine.
    pub by_device: bool,
    /// The account, if the provider names it.
    pub account: Option<LoginAccount>,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// The settings do not say how to log in to this provider.
    NotConfigured,
    /// The user cancelled it.
    Cancelled,
    /// The browser came back with the `state` of another login.
    StateMismatch,
    /// The user or the provider declined, with this message.
    Denied(String),
    /// The browser came back without an authorization code.
    NoCode,
    /// The user did not complete it within this many seconds.
    TimedOut(u64),
    /// The user did not enter the device code in time.
    CodeExpired,
    /// The provider does not support device codes.
    NoDeviceCode,
    /// The provider issued no device code: HTTP status and message.
    CodeRefused(Option<u16>, String),
    /// The provider did not say whether the device code was entered: HTTP status and message.
    PollFailed(Option<u16>, String),
    /// The provider issued no token: HTTP status and message.
    NoToken(Option<u16>, String),
    /// Something else, in words for people.
    Other(String),
}

/// A secret such as an API key. `Debug` does not show it.
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
    fn debug_output_does_not_show_secrets() {
        let request =
            FrontendRequest::SetKey { service: "x".to_owned(), key: Some(SecretText("s3cret".to_owned())) };
        assert!(!format!("{request:?}").contains("s3cret"));
        let (env, args) = (vec![("K".to_owned(), "s3cret".to_owned())], vec!["s3cret".to_owned()]);
        let transport = ClientMcpTransport::Program { command: "c".to_owned(), args, env };
        let server = ClientMcpServer { name: "x".to_owned(), transport };
        assert!(!format!("{server:?}").contains("s3cret"));
    }
}
