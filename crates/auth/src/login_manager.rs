//! [`LoginManager`]: all logins of one state folder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parlor_vocab::{Clock, Timestamp};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::flow::{self, FlowDeps, PendingLogin};
use crate::http::Http;
use crate::record::Login;
use crate::store::{LOCK_STEP, SecretLock};
use crate::time::{Time, TokioTimer};
use crate::tokens::GrantedTokens;
use crate::{
    Account, AdmitsPeer, LOCK_WAIT, LoginError, LoginFlow, LoginProvider, LoginRequest, MAX_FLOWS, Redactor,
    SecretName, SecretStore, SecretStoreError,
};

/// The dependencies of a [`LoginManager`].
pub struct LoginDeps {
    /// The configured providers.
    pub providers: Vec<LoginProvider>,
    /// Stores the tokens.
    pub store: SecretStore,
    /// The clock that decides whether a token has expired.
    pub clock: Arc<dyn Clock>,
    /// Learns every secret that a login brings.
    pub redactor: Redactor,
    /// Decides who may deliver the code to the callback of a login.
    pub admits_peer: AdmitsPeer,
}

/// Starts, renews and ends logins. Cheap to clone; several processes may use one state folder.
///
/// Needs a tokio runtime with timers and I/O.
#[derive(Clone)]
pub struct LoginManager(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    providers: BTreeMap<String, Arc<LoginProvider>>,
    /// One lock per provider, so that one task of this process renews at a time. A file lock excludes other
    /// processes.
    pub(crate) renewal_locks: BTreeMap<String, Mutex<()>>,
    store: SecretStore,
    pub(crate) redactor: Redactor,
    /// One redactor per provider, with a group of its own, so that new tokens displace only older tokens of that login.
    login_redactors: BTreeMap<String, Redactor>,
    pub(crate) http: Arc<Http>,
    pub(crate) time: Time,
    admits_peer: AdmitsPeer,
    pending_logins: Arc<Semaphore>,
}

/// A completed login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginOutcome {
    /// The name of the provider.
    pub provider: String,
    /// The flow that was used.
    pub flow: LoginFlow,
    /// The account, if the provider sent an ID token.
    pub account: Option<Account>,
}

/// The result of a logout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutOutcome {
    /// Whether a login was stored.
    pub existed: bool,
    /// Whether the provider revoked the token; `Err` with the reason if it should have and did not.
    pub revoked: Result<bool, String>,
}

/// The status of the login to one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginStatus {
    /// The name of the provider.
    pub provider: String,
    /// Whether the provider is configured. If not, the only possible action is to log out.
    pub configured: bool,
    /// Whether the login can be used.
    pub state: LoginState,
    /// The account, if the provider sent an ID token.
    pub account: Option<Account>,
    /// When the access token expires, if it does.
    pub expires_at: Option<Timestamp>,
    /// Whether a refresh token is stored, with which parlor renews the login.
    pub renewable: bool,
    /// Where the tokens are stored, or would be: a path, or the keyring. For people.
    pub location: String,
}

/// Whether a login can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// No login is stored.
    LoggedOut,
    /// The login can be used, after a renewal if necessary.
    LoggedIn,
    /// The token has expired and cannot be renewed.
    Expired,
    /// The login has ended, with the reason.
    Ended(String),
    /// The stored login cannot be read, with the reason.
    Unreadable(String),
}

impl LoginManager {
    /// A manager with these dependencies. Reads nothing yet.
    pub fn new(deps: LoginDeps) -> Self {
        Self::with(deps, |time| time, Http::new())
    }

    /// Like [`new`](Self::new), with the timer and the HTTP client of a test.
    pub(crate) fn with(deps: LoginDeps, time: impl FnOnce(Time) -> Time, http: Http) -> Self {
        for secret in deps.providers.iter().filter_map(|provider| provider.client_secret.as_ref()) {
            deps.redactor.learn(secret);
        }
        Self(Arc::new(Inner {
            renewal_locks: deps
                .providers
                .iter()
                .map(|provider| (provider.name.clone(), Mutex::new(())))
                .collect(),
            login_redactors: deps
                .providers
                .iter()
                .map(|provider| (provider.name.clone(), deps.redactor.new_login_group()))
                .collect(),
            providers: deps.providers.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect(),
            store: deps.store,
            redactor: deps.redactor,
            http: Arc::new(http),
            time: time(Time { clock: deps.clock, timer: Arc::new(TokioTimer) }),
            admits_peer: deps.admits_peer,
            pending_logins: Arc::new(Semaphore::new(MAX_FLOWS)),
        }))
    }

    /// The configured providers, sorted by name.
    pub fn providers(&self) -> impl Iterator<Item = &LoginProvider> {
        self.0.providers.values().map(Arc::as_ref)
    }

    /// Starts a login. The previous login stays until the new one is completed.
    pub fn start(&self, provider: &str, request: LoginRequest) -> Result<PendingLogin, LoginError> {
        let inner = &self.0;
        let unknown = || LoginError::UnknownProvider { name: provider.to_owned(), known: inner.known() };
        let provider = Arc::clone(inner.providers.get(provider).ok_or_else(unknown)?);
        if let Some(fix) = &provider.missing_secret {
            return Err(LoginError::Local(fix.clone()));
        }
        let permit = Arc::clone(&inner.pending_logins).try_acquire_owned();
        let permit = permit.map_err(|_| LoginError::TooMany { limit: MAX_FLOWS })?;
        let deps = FlowDeps {
            provider: Arc::clone(&provider),
            http: Arc::clone(&inner.http),
            redactor: inner.redactor(&provider.name).clone(),
            time: inner.time.clone(),
            admits_peer: Arc::clone(&inner.admits_peer),
        };
        let inner = Arc::clone(inner);
        Ok(flow::start(deps, request, permit, move |flow, granted| async move {
            inner.store_granted(&provider, flow, granted).await
        }))
    }

    /// The status of the login to a configured provider; `None` if the provider is not configured.
    pub async fn status(&self, provider: &str) -> Option<LoginStatus> {
        let provider = self.0.provider(provider)?;
        Some(self.0.status(provider.name.clone()).await)
    }

    /// The status of each configured provider, and of other providers with a stored login.
    pub async fn statuses(&self) -> Result<Vec<LoginStatus>, SecretStoreError> {
        let stored = self.0.with_store(SecretStore::names).await?;
        let stored = stored.iter().filter_map(|name| name.provider()).map(str::to_owned);
        let names: BTreeSet<String> = self.0.known().into_iter().chain(stored).collect();
        let mut statuses = Vec::with_capacity(names.len());
        for name in names {
            statuses.push(self.0.status(name).await);
        }
        Ok(statuses)
    }
}

impl Inner {
    pub(crate) fn known(&self) -> Vec<String> {
        self.providers.keys().cloned().collect()
    }

    pub(crate) fn provider(&self, name: &str) -> Option<Arc<LoginProvider>> {
        self.providers.get(name).cloned()
    }

    /// The redactor that learns the secrets of the login to a provider.
    pub(crate) fn redactor(&self, provider: &str) -> &Redactor {
        self.login_redactors.get(provider).unwrap_or(&self.redactor)
    }

    /// Runs `work` on a blocking thread.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SecretStore) -> Result<T, SecretStoreError> + Send + 'static,
    ) -> Result<T, SecretStoreError> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.expect("the store does not panic, and the runtime does not cancel blocking tasks")
    }

    /// Locks a login against other processes and tasks. Fails after [`LOCK_WAIT`].
    pub(crate) async fn lock(&self, name: &SecretName) -> Result<SecretLock, SecretStoreError> {
        let begun = Instant::now();
        loop {
            let owned_name = name.clone();
            if let Some(lock) = self.with_store(move |store| store.try_lock(&owned_name)).await? {
                return Ok(lock);
            }
            if begun.elapsed() >= LOCK_WAIT {
                return Err(SecretStoreError::Busy { path: self.store.location(name).into() });
            }
            tokio::time::sleep(LOCK_STEP).await;
        }
    }

    /// Reads the stored login. The redactor learns its secrets.
    pub(crate) async fn read(&self, name: &SecretName) -> Result<Option<Login>, SecretStoreError> {
        let owned_name = name.clone();
        let Some(text) = self.with_store(move |store| store.read(&owned_name)).await? else {
            return Ok(None);
        };
        let provider = || name.login_name().unwrap_or(name.as_str()).to_owned();
        let login = Login::parse(&text).ok_or_else(|| SecretStoreError::Corrupt { name: provider() })?;
        let redactor = self.redactor(&provider());
        login.secrets().iter().for_each(|secret| redactor.learn(secret));
        Ok(Some(login))
    }

    /// Stores a login.
    pub(crate) async fn write(&self, name: &SecretName, login: &Login) -> Result<(), SecretStoreError> {
        let (name, text) = (name.clone(), login.to_text());
        self.with_store(move |store| store.write(&name, &text)).await
    }

    async fn store_granted(
        &self,
        provider: &LoginProvider,
        flow: LoginFlow,
        granted: GrantedTokens,
    ) -> Result<LoginOutcome, LoginError> {
        let local = |error: SecretStoreError| LoginError::Local(error.to_string());
        let login =
            Login { client: provider.discovered.clone(), ..granted.into_login(self.time.now(), None) };
        let name = provider.secret_name();
        let _lock = self.lock(&name).await.map_err(local)?;
        self.write(&name, &login).await.map_err(local)?;
        Ok(LoginOutcome { provider: provider.name.clone(), flow, account: login.account })
    }

    async fn status(&self, provider: String) -> LoginStatus {
        let name = match self.provider(&provider) {
            Some(provider) => provider.secret_name(),
            None => SecretName::login(&provider).expect("stored names are valid"),
        };
        let (login, state) = match self.read(&name).await {
            Ok(None) => (None, LoginState::LoggedOut),
            Ok(Some(login)) => {
                let state = self.state(&login);
                (Some(login), state)
            }
            Err(error) => (None, LoginState::Unreadable(error.to_string())),
        };
        LoginStatus {
            configured: self.providers.contains_key(&provider),
            provider,
            state,
            expires_at: login.as_ref().and_then(|login| login.expires_at),
            renewable: login.as_ref().is_some_and(|login| login.refresh.is_some()),
            account: login.and_then(|login| login.account),
            location: self.store.location(&name),
        }
    }

    fn state(&self, login: &Login) -> LoginState {
        match &login.ended {
            Some(reason) => LoginState::Ended(reason.clone()),
            None if login.refresh.is_none() && login.expires_at.is_some_and(|at| at <= self.time.now()) => {
                LoginState::Expired
            }
            None => LoginState::LoggedIn,
        }
    }
}
