//! What a front end needs beside sessions.

use async_trait::async_trait;
use parlor_vocab::{
    CompletedLogin, Credentials, LoginFailure, LoginMethod, LoginStep, ModelOption, Preferences, SecretText,
    SkillList,
};
use tokio::sync::mpsc;

/// How many steps of a login wait to be told. No login has more.
const STEPS: usize = 8;

/// Keeps keys, logins and preferences, and knows which models and skills there are.
///
/// Dropping a returned future cancels its work. Errors are sentences for people.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// The models there are, the one that answers by default first.
    async fn models(&self) -> Vec<ModelOption>;

    /// Through whom a model of a router can be reached.
    async fn routes(&self, model: &str) -> Result<Vec<String>, String>;

    /// The skills there are.
    async fn skills(&self) -> SkillList;

    /// Stores the preferences; returns when they are durable.
    async fn save_preferences(&self, preferences: Preferences) -> Result<(), String>;

    /// The logins and keys there are.
    async fn credentials(&self) -> Credentials;

    /// Stores a key, or deletes it. Returns how many models can be had with it, as far as that is known.
    async fn set_key(&self, service: &str, key: Option<SecretText>) -> Result<usize, String>;

    /// Logs in, and reports each step. An earlier login stays until this one is completed.
    async fn log_in(
        &self,
        options: LoginOptions,
        progress: LoginProgressSender,
    ) -> Result<CompletedLogin, LoginFailure>;

    /// Deletes a login, and says whether there was one.
    async fn log_out(&self, provider: &str) -> Result<bool, String>;

    /// Deletes the preferences, all keys and all logins.
    async fn forget_all(&self) -> Result<(), String>;
}

/// Which login is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginOptions {
    /// Where.
    pub provider: String,
    /// How.
    pub method: LoginMethod,
    /// What the provider is told of who asks, if anything.
    pub originator: Option<String>,
}

/// Reports the steps of a login.
#[derive(Debug)]
pub struct LoginProgressSender(mpsc::Sender<LoginStep>);

impl LoginProgressSender {
    pub(super) fn new() -> (Self, mpsc::Receiver<LoginStep>) {
        let (sender, steps) = mpsc::channel(STEPS);
        (Self(sender), steps)
    }

    /// Reports a step.
    pub async fn send(&self, step: LoginStep) {
        // The receiver is gone only if the connection is.
        let _ = self.0.send(step).await;
    }
}
