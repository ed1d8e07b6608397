//! Who keeps what an office needs beside sessions.

use async_trait::async_trait;
use parlor_vocab::{Hidden, Kept, LoggedIn, LoginFlaw, LoginStep, LoginWay, Logins, Offer, Skills};
use tokio::sync::mpsc;

/// How many steps of a login wait to be told. No login has more.
const STEPS: usize = 8;

/// Who keeps keys, logins and what was chosen, and knows which models and skills there are.
///
/// Dropping what a method returned gives up what it was at. Errors are sentences for people.
#[async_trait]
pub trait Clerk: Send + Sync {
    /// The models there are, the one that answers by default first.
    async fn offers(&self) -> Vec<Offer>;

    /// Through whom a model of a router can be reached.
    async fn routes(&self, model: &str) -> Result<Vec<String>, String>;

    /// The skills there are.
    async fn skills(&self) -> Skills;

    /// Remembers what was chosen; returns when it is durable.
    async fn keep(&self, kept: Kept) -> Result<(), String>;

    /// The logins and keys there are.
    async fn logins(&self) -> Logins;

    /// Keeps a key, or forgets it. Gives how many models can be had with it, as far as that is known.
    async fn set_key(&self, service: &str, key: Option<Hidden>) -> Result<usize, String>;

    /// Logs in, and tells of each step. What was logged in before stays until it is completed.
    async fn log_in(&self, wish: LoginWish, teller: Teller) -> Result<LoggedIn, LoginFlaw>;

    /// Forgets a login, and says whether there was one.
    async fn log_out(&self, provider: &str) -> Result<bool, String>;

    /// Forgets what was chosen, all keys and all logins.
    async fn forget_all(&self) -> Result<(), String>;
}

/// What a login is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginWish {
    /// Where.
    pub provider: String,
    /// How.
    pub way: LoginWay,
    /// What the provider is told of who asks, if anything.
    pub originator: Option<String>,
}

/// Tells of the steps of a login.
#[derive(Debug)]
pub struct Teller(mpsc::Sender<LoginStep>);

impl Teller {
    pub(super) fn new() -> (Self, mpsc::Receiver<LoginStep>) {
        let (sender, steps) = mpsc::channel(STEPS);
        (Self(sender), steps)
    }

    /// Tells a step.
    pub async fn tell(&self, step: LoginStep) {
        // Nobody listens only if the caller has gone.
        let _ = self.0.send(step).await;
    }
}
