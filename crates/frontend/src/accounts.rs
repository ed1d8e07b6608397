//! [`Accounts`]: what a front end needs besides sessions.

use async_trait::async_trait;
use parlor_vocab::{
    CompletedLogin, Credentials, LoginFailure, LoginMethod, LoginStep, ModelLists, ModelOption, Preferences,
    SecretText, SkillList,
};
use tokio::sync::mpsc;

/// How many login steps may wait to be sent to the client. No login has more steps.
const STEPS: usize = 8;

/// Stores keys, logins and preferences, and lists models and skills.
///
/// Dropping a returned future cancels its work. Error strings are sentences for users.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// All models, the default first, with these lists of the providers' own models.
    async fn models(&self, lists: ModelLists) -> Vec<ModelOption>;

    /// The providers through which a router such as OpenRouter reaches `model`.
    async fn routes(&self, model: &str) -> Result<Vec<String>, String>;

    /// All skills of the user and of the working folder.
    async fn skills(&self) -> SkillList;

    /// Stores the preferences; returns when they are durable.
    async fn save_preferences(&self, preferences: Preferences) -> Result<(), String>;

    /// All logins and keys, without secrets.
    async fn credentials(&self) -> Credentials;

    /// Stores a key, or deletes it if `key` is `None`. Returns how many known models the key gives access to.
    async fn set_key(&self, service: &str, key: Option<SecretText>) -> Result<usize, String>;

    /// Logs in, and reports each step to `progress`. An earlier login stays valid until this one is completed.
    async fn log_in(
        &self,
        options: LoginOptions,
        progress: LoginProgressSender,
    ) -> Result<CompletedLogin, LoginFailure>;

    /// Deletes a login. Returns whether there was one.
    async fn log_out(&self, provider: &str) -> Result<bool, String>;

    /// Makes sure that no event and no log shows these secrets, which a client brought.
    fn hide(&self, secrets: &[SecretText]);

    /// Deletes the preferences, all keys and all logins.
    async fn forget_all(&self) -> Result<(), String>;
}

/// The parameters of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginOptions {
    /// The id of the provider to log in to.
    pub provider: String,
    /// Whether to use a browser or a device code.
    pub method: LoginMethod,
    /// The client's name, which is passed to the provider, if any.
    pub originator: Option<String>,
    /// Whether to open the provider's page in a browser of this machine.
    pub opens_browser: bool,
}

/// Reports the steps of a login.
#[derive(Debug)]
pub struct LoginProgressSender(mpsc::Sender<LoginStep>);

impl LoginProgressSender {
    pub(super) fn new() -> (Self, mpsc::Receiver<LoginStep>) {
        let (sender, steps) = mpsc::channel(STEPS);
        (Self(sender), steps)
    }

    /// Sends a step to the client. Does nothing if the connection is closed.
    pub async fn send(&self, step: LoginStep) {
        // The receiver is dropped only when the connection closes.
        let _ = self.0.send(step).await;
    }
}
