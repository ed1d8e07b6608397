//! A pending login, which reports its progress as a stream of values.

mod browser;
pub(crate) mod device;
mod device_code_exchange;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http::Http;
use crate::provider::DeviceExchange;
use crate::time::Time;
use crate::tokens::GrantedTokens;
use crate::{AdmitsPeer, LoginError, LoginOutcome, LoginProvider, Redactor};

/// How many logins may be pending at a time. Each may occupy a port.
pub const MAX_FLOWS: usize = 16;

/// The capacity of the progress queue. No login reports more than this.
pub const PROGRESS_QUEUE: usize = 8;

/// An OAuth flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFlow {
    /// A browser on this machine, which delivers the code to a callback.
    Browser,
    /// A code that the user enters in a browser on any device.
    Device,
}

/// Which flow to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginPreference {
    /// This flow and no other. The login fails if it is not configured.
    Only(LoginFlow),
    /// The browser flow if it is configured, else the device flow.
    #[default]
    Browser,
    /// The device flow if it is configured and the provider supports it, else the browser flow. For machines without a
    /// display.
    Device,
}

/// The options of a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// Which flow to use.
    pub preference: LoginPreference,
    /// Query parameters for the authorize URL, after the configured ones.
    pub authorize_params: Vec<(String, String)>,
}

/// The progress of a login. `Started` comes first; `Completed`, `Failed` or `Cancelled` comes last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginProgress {
    /// The login has started.
    Started,
    /// The user must open this URL.
    Url {
        /// The flow of the login. With [`LoginFlow::Device`], the code comes next.
        flow: LoginFlow,
        /// The authorize URL or the page for entering the code.
        url: String,
    },
    /// The user must enter this code.
    DeviceCode(DeviceCode),
    /// The login succeeded, and its tokens are stored.
    Completed(LoginOutcome),
    /// The login failed.
    Failed(LoginError),
    /// The login was cancelled.
    Cancelled,
}

/// A device code that the user must enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCode {
    /// The page for entering the code.
    pub verification_url: String,
    /// The same page with the code filled in, if the provider offers that.
    pub complete_url: Option<String>,
    /// The code, as the user types it.
    pub user_code: String,
    /// The polling interval in seconds.
    pub interval_seconds: u64,
    /// How many seconds the code is valid.
    pub expires_in_seconds: u64,
}

/// A login that has not ended yet. Dropping it cancels the login.
#[derive(Debug)]
pub struct PendingLogin {
    progress: mpsc::Receiver<LoginProgress>,
    cancel: CancellationToken,
    _cancel_when_dropped: DropGuard,
}

impl PendingLogin {
    /// Waits for the next report. `None` after the last one. Cancel safe.
    pub async fn next(&mut self) -> Option<LoginProgress> {
        self.progress.recv().await
    }

    /// Cancels the login, unless it has ended.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// A token that cancels the login, for other tasks.
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }
}

/// The dependencies of a login.
pub(crate) struct FlowDeps {
    pub(crate) provider: Arc<LoginProvider>,
    pub(crate) http: Arc<Http>,
    pub(crate) redactor: Redactor,
    pub(crate) time: Time,
    pub(crate) admits_peer: AdmitsPeer,
}

/// What the task of a pending login works with.
struct FlowContext {
    deps: FlowDeps,
    progress_sender: mpsc::Sender<LoginProgress>,
}

impl FlowContext {
    /// Reports progress. The queue always has room, and a dropped receiver is ignored.
    fn send(&self, progress: LoginProgress) {
        let _ = self.progress_sender.try_send(progress);
    }

    /// Obtains tokens with the flow that `request` asks for.
    async fn obtain_tokens(&self, request: &LoginRequest) -> Result<(LoginFlow, GrantedTokens), LoginError> {
        let provider = &self.deps.provider;
        match request.preference {
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

    async fn device(&self) -> Result<(LoginFlow, GrantedTokens), LoginError> {
        let missing = || LoginError::FlowNotConfigured {
            provider: self.deps.provider.name.clone(),
            flow: LoginFlow::Device,
        };
        let device = self.deps.provider.device.as_ref().ok_or_else(missing)?;
        let granted = match &device.exchange {
            DeviceExchange::Tokens => device::tokens(self, device).await,
            DeviceExchange::Code { verification_url, redirect_url } => {
                device_code_exchange::tokens(self, device, verification_url, redirect_url).await
            }
        };
        Ok((LoginFlow::Device, granted?))
    }

    async fn browser(&self, extra: &[(String, String)]) -> Result<(LoginFlow, GrantedTokens), LoginError> {
        Ok((LoginFlow::Browser, browser::tokens(self, extra).await?))
    }
}

/// Starts a login in a task of its own. The task passes the granted tokens to `store`.
pub(crate) fn start<S, F>(
    deps: FlowDeps,
    request: LoginRequest,
    permit: OwnedSemaphorePermit,
    store: S,
) -> PendingLogin
where
    S: FnOnce(LoginFlow, GrantedTokens) -> F + Send + 'static,
    F: Future<Output = Result<LoginOutcome, LoginError>> + Send + 'static,
{
    let (progress_sender, progress) = mpsc::channel(PROGRESS_QUEUE);
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let context = FlowContext { deps, progress_sender };
    tokio::spawn(async move {
        context.send(LoginProgress::Started);
        let wait = context.deps.provider.login_wait;
        let granted = tokio::select! {
            // Tokens that are granted already are stored, even if the login is cancelled at the same time.
            biased;
            granted = tokio::time::timeout(wait, context.obtain_tokens(&request)) => {
                granted.unwrap_or(Err(LoginError::TimedOut(wait)))
            }
            () = cancelled.cancelled() => Err(LoginError::Cancelled),
        };
        let done = match granted {
            Ok((flow, granted)) => store(flow, granted).await,
            Err(error) => Err(error),
        };
        context.send(match done {
            Ok(outcome) => LoginProgress::Completed(outcome),
            Err(LoginError::Cancelled) => LoginProgress::Cancelled,
            Err(error) => LoginProgress::Failed(error),
        });
        drop(permit);
    });
    PendingLogin { progress, _cancel_when_dropped: cancel.clone().drop_guard(), cancel }
}
