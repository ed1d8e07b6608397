//! A login that is under way: what it has to tell comes as values, one after another.

mod browser;
pub(crate) mod device;
mod variant;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http::Http;
use crate::provider::DeviceExchange;
use crate::time::Time;
use crate::tokens::Granted;
use crate::{AdmitsPeer, LoginError, LoginOutcome, LoginProvider, Redactor};

/// How many logins may be under way at a time. Each may hold a port.
pub const MAX_FLOWS: usize = 16;

/// How much progress is held for whoever does not look. No login has more to tell.
pub const PROGRESS_QUEUE: usize = 8;

/// How to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFlow {
    /// A browser on this machine, which comes back to a callback.
    Browser,
    /// A code that is entered on any device.
    Device,
}

/// How the user wants to log in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginPreference {
    /// This way and no other.
    Only(LoginFlow),
    /// With a browser if the provider is configured for it, else with a code.
    #[default]
    Browser,
    /// With a code if the provider offers it, else with a browser: for a machine without a screen.
    Device,
}

/// What a login is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// How.
    pub way: LoginPreference,
    /// Added to the address that a browser is sent to, after those that are configured.
    pub authorize_params: Vec<(String, String)>,
}

/// What a login has to tell. [`LoginProgress::Started`] is the first, and one of the last three the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginProgress {
    /// It has begun.
    Started,
    /// The user is to open this address.
    Url {
        /// In which way the login goes on. With [`LoginFlow::DeviceEndpoints`] the code comes next.
        way: LoginFlow,
        /// The address.
        url: String,
    },
    /// The user is to enter this code.
    DeviceCode(DeviceCode),
    /// It is done, and kept.
    Completed(LoginOutcome),
    /// It came to nothing.
    Failed(LoginError),
    /// Somebody cancelled it.
    Cancelled,
}

/// A code to be entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCode {
    /// Where.
    pub verification_url: String,
    /// The same with the code in it, if the provider has that.
    pub complete_url: Option<String>,
    /// The code.
    pub user_code: String,
    /// How many seconds lie between two questions whether it was entered.
    pub interval_seconds: u64,
    /// How many seconds it can be entered for.
    pub expires_in_seconds: u64,
}

/// A login that is under way. Dropping it cancels the login.
#[derive(Debug)]
pub struct PendingLogin {
    progress: mpsc::Receiver<LoginProgress>,
    cancel: CancellationToken,
    _cancel_when_dropped: DropGuard,
}

impl PendingLogin {
    /// Waits for what there is to tell next. `None` after the last. Cancel safe.
    pub async fn next(&mut self) -> Option<LoginProgress> {
        self.progress.recv().await
    }

    /// Cancels the login, unless it is done already.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// What cancels the login from elsewhere.
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }
}

/// What a login needs while it is under way.
pub(crate) struct FlowContext {
    pub(crate) provider: Arc<LoginProvider>,
    pub(crate) http: Arc<Http>,
    pub(crate) redactor: Redactor,
    pub(crate) time: Time,
    pub(crate) admits_peer: AdmitsPeer,
    progress: mpsc::Sender<LoginProgress>,
}

impl FlowContext {
    /// Tells. There is always room, and nobody need listen.
    fn tell(&self, progress: LoginProgress) {
        let _ = self.progress.try_send(progress);
    }

    /// Gets tokens in the way that is wanted.
    async fn tokens(&self, request: &LoginRequest) -> Result<(LoginFlow, Granted), LoginError> {
        let provider = &self.provider;
        match request.way {
            LoginPreference::Only(LoginFlow::Browser) => self.browser(&request.authorize_params).await,
            LoginPreference::Browser if provider.has_browser() => {
                self.browser(&request.authorize_params).await
            }
            LoginPreference::Only(LoginFlow::Device) | LoginPreference::Browser => self.device().await,
            LoginPreference::Device if !provider.has_device() => {
                self.browser(&request.authorize_params).await
            }
            LoginPreference::Device => match self.device().await {
                Err(LoginError::DeviceUnsupported) if provider.has_browser() => {
                    self.browser(&request.authorize_params).await
                }
                done => done,
            },
        }
    }

    async fn device(&self) -> Result<(LoginFlow, Granted), LoginError> {
        let missing =
            || LoginError::FlowNotConfigured { provider: self.provider.name.clone(), way: LoginFlow::Device };
        let device = self.provider.device.as_ref().ok_or_else(missing)?;
        let granted = match &device.exchange {
            DeviceExchange::Tokens => device::tokens(self, device).await,
            DeviceExchange::Code { verification_url, redirect_url } => {
                variant::tokens(self, device, verification_url, redirect_url).await
            }
        };
        Ok((LoginFlow::Device, granted?))
    }

    async fn browser(&self, extra: &[(String, String)]) -> Result<(LoginFlow, Granted), LoginError> {
        Ok((LoginFlow::Browser, browser::tokens(self, extra).await?))
    }
}

/// Begins a login in a task of its own, which `keep`s what was granted.
pub(crate) fn begin<K, F>(
    deps: (Arc<LoginProvider>, Arc<Http>, Redactor, Time, AdmitsPeer),
    request: LoginRequest,
    place: OwnedSemaphorePermit,
    keep: K,
) -> PendingLogin
where
    K: FnOnce(LoginFlow, Granted) -> F + Send + 'static,
    F: Future<Output = Result<LoginOutcome, LoginError>> + Send + 'static,
{
    let (sender, progress) = mpsc::channel(PROGRESS_QUEUE);
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let (provider, http, redactor, time, admits_peer) = deps;
    let stage = FlowContext { provider, http, redactor, time, admits_peer, progress: sender };
    tokio::spawn(async move {
        stage.tell(LoginProgress::Started);
        let wait = stage.provider.login_wait;
        let granted = tokio::select! {
            // What is granted already is kept, whoever cancels.
            biased;
            granted = tokio::time::timeout(wait, stage.tokens(&request)) => {
                granted.unwrap_or(Err(LoginError::TimedOut(wait)))
            }
            () = cancelled.cancelled() => Err(LoginError::Cancelled),
        };
        let done = match granted {
            Ok((way, granted)) => keep(way, granted).await,
            Err(error) => Err(error),
        };
        stage.tell(match done {
            Ok(login) => LoginProgress::Completed(login),
            Err(LoginError::Cancelled) => LoginProgress::Cancelled,
            Err(error) => LoginProgress::Failed(error),
        });
        drop(place);
    });
    PendingLogin { progress, _cancel_when_dropped: cancel.clone().drop_guard(), cancel }
}
