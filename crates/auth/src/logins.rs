//! All logins of one state folder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parlor_vocab::{Clock, Timestamp};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::flow::{PendingLogin, begin};
use crate::http::Http;
use crate::record::Login;
use crate::store::{LOCK_STEP, Lock};
use crate::time::{Time, Timer};
use crate::tokens::Granted;
use crate::{
    Account, AdmitsPeer, LOCK_WAIT, LoginError, LoginFlow, LoginProvider, LoginRequest, MAX_FLOWS, Redactor,
    SecretName, SecretStore, SecretStoreError,
};

/// What logins are made of.
pub struct LoginDeps {
    /// Where one can log in to.
    pub providers: Vec<LoginProvider>,
    /// Where logins are kept.
    pub store: SecretStore,
    /// What tells when a token expires.
    pub clock: Arc<dyn Clock>,
    /// Who is told of each secret.
    pub redactor: Redactor,
    /// Who may bring the code to the callback of a login.
    pub admits_peer: AdmitsPeer,
}

/// All logins of one state folder. Cheap to clone; several processes may use one folder.
///
/// Needs a tokio runtime with timers and the network.
#[derive(Clone)]
pub struct LoginManager(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    providers: BTreeMap<String, Arc<LoginProvider>>,
    /// One at a time renews, in this process; among processes a lock on a file does the same.
    pub(crate) gates: BTreeMap<String, Mutex<()>>,
    store: SecretStore,
    pub(crate) redactor: Redactor,
    pub(crate) http: Arc<Http>,
    pub(crate) time: Time,
    admits_peer: AdmitsPeer,
    flows: Arc<Semaphore>,
}

/// A login that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginOutcome {
    /// To which provider.
    pub provider: String,
    /// How.
    pub way: LoginFlow,
    /// Whose it is, as far as the provider tells.
    pub account: Option<Account>,
}

/// A login that was forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutOutcome {
    /// Whether there was one.
    pub existed: bool,
    /// Whether the provider was told, and why not if it was to be.
    pub revoked: Result<bool, String>,
}

/// How it stands with a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginStatus {
    /// The provider.
    pub provider: String,
    /// Whether it is configured; one that is not can only be logged out of.
    pub configured: bool,
    /// How it stands.
    pub state: LoginState,
    /// Whose it is, as far as the provider tells.
    pub account: Option<Account>,
    /// When the present token expires.
    pub expires_at: Option<Timestamp>,
    /// Whether it is renewed by itself.
    pub renewable: bool,
    /// Where it is kept, or would be.
    pub place: String,
}

/// How it stands with a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// Nobody logged in.
    LoggedOut,
    /// It can be used.
    LoggedIn,
    /// It has expired, and cannot be renewed.
    Expired,
    /// The provider does not renew it any more, and says why.
    Ended(String),
    /// It cannot be read, and why.
    Unreadable(String),
}

impl LoginManager {
    /// The logins that `means` allow. Looks at nothing yet.
    pub fn new(means: LoginDeps) -> Self {
        Self::with(means, |time| time, Http::new())
    }

    /// The same, with the waiting and the way to providers that a test brings.
    pub(crate) fn with(means: LoginDeps, time: impl FnOnce(Time) -> Time, http: Http) -> Self {
        for secret in means.providers.iter().filter_map(|provider| provider.client_secret.as_ref()) {
            means.redactor.learn(secret);
        }
        Self(Arc::new(Inner {
            gates: means.providers.iter().map(|provider| (provider.name.clone(), Mutex::new(()))).collect(),
            providers: means.providers.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect(),
            store: means.store,
            redactor: means.redactor,
            http: Arc::new(http),
            time: time(Time { clock: means.clock, timer: Arc::new(Timer) }),
            admits_peer: means.admits_peer,
            flows: Arc::new(Semaphore::new(MAX_FLOWS)),
        }))
    }

    /// The providers that are configured, by name.
    pub fn providers(&self) -> impl Iterator<Item = &LoginProvider> {
        self.0.providers.values().map(Arc::as_ref)
    }

    /// Begins a login. What was logged in before stays until it is completed.
    pub fn start(&self, provider: &str, request: LoginRequest) -> Result<PendingLogin, LoginError> {
        let inner = &self.0;
        let unknown = || LoginError::UnknownProvider { name: provider.to_owned(), known: inner.known() };
        let provider = Arc::clone(inner.providers.get(provider).ok_or_else(unknown)?);
        if let Some(what) = &provider.lacks {
            return Err(LoginError::Local(what.clone()));
        }
        let place = Arc::clone(&inner.flows).try_acquire_owned();
        let place = place.map_err(|_| LoginError::TooMany { limit: MAX_FLOWS })?;
        let (http, admits_peer) = (Arc::clone(&inner.http), Arc::clone(&inner.admits_peer));
        let means = (Arc::clone(&provider), http, inner.redactor.clone(), inner.time.clone(), admits_peer);
        let inner = Arc::clone(inner);
        Ok(begin(means, request, place, move |way, granted| async move {
            inner.keep(&provider, way, granted).await
        }))
    }

    /// How it stands with the login to a provider that is configured.
    pub async fn status(&self, provider: &str) -> Option<LoginStatus> {
        let provider = self.0.provider(provider)?;
        Some(self.0.status(provider.name.clone()).await)
    }

    /// How it stands with each login: those that are configured, and others that are kept in files.
    pub async fn statuses(&self) -> Result<Vec<LoginStatus>, SecretStoreError> {
        let kept = self.0.on_disk(SecretStore::names).await?;
        let kept = kept.iter().filter_map(|name| name.provider()).map(str::to_owned);
        let names: BTreeSet<String> = self.0.known().into_iter().chain(kept).collect();
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

    /// Does something that may block.
    pub(crate) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SecretStore) -> Result<T, SecretStoreError> + Send + 'static,
    ) -> Result<T, SecretStoreError> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.expect("the store does not panic, and is not cancelled while the runtime lives")
    }

    /// Has a login to itself, among all processes.
    pub(crate) async fn lock(&self, name: &SecretName) -> Result<Lock, SecretStoreError> {
        let begun = Instant::now();
        loop {
            let wanted = name.clone();
            if let Some(lock) = self.on_disk(move |store| store.try_lock(&wanted)).await? {
                return Ok(lock);
            }
            if begun.elapsed() >= LOCK_WAIT {
                return Err(SecretStoreError::Busy { path: self.store.place(name).into() });
            }
            tokio::time::sleep(LOCK_STEP).await;
        }
    }

    /// The login that is kept. From now on its secrets are known.
    pub(crate) async fn read(&self, name: &SecretName) -> Result<Option<Login>, SecretStoreError> {
        let wanted = name.clone();
        let Some(text) = self.on_disk(move |store| store.read(&wanted)).await? else { return Ok(None) };
        let provider = || name.provider().unwrap_or(name.as_str()).to_owned();
        let login = Login::parse(&text).ok_or_else(|| SecretStoreError::Corrupt { name: provider() })?;
        for secret in [&login.access, &login.refresh].into_iter().flatten() {
            self.redactor.learn(secret);
        }
        Ok(Some(login))
    }

    /// Keeps a login.
    pub(crate) async fn write(&self, name: &SecretName, login: &Login) -> Result<(), SecretStoreError> {
        let (name, text) = (name.clone(), login.to_text());
        self.on_disk(move |store| store.write(&name, &text)).await
    }

    async fn keep(
        &self,
        provider: &LoginProvider,
        way: LoginFlow,
        granted: Granted,
    ) -> Result<LoginOutcome, LoginError> {
        let local = |error: SecretStoreError| LoginError::Local(error.to_string());
        let login = granted.into_login(self.time.now(), None);
        let name = name_of(&provider.name);
        let _lock = self.lock(&name).await.map_err(local)?;
        self.write(&name, &login).await.map_err(local)?;
        Ok(LoginOutcome { provider: provider.name.clone(), way, account: login.account })
    }

    async fn status(&self, provider: String) -> LoginStatus {
        let name = name_of(&provider);
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
            place: self.store.place(&name),
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

/// What a provider's login is called in the store.
pub(crate) fn name_of(provider: &str) -> SecretName {
    SecretName::login(provider).expect("the names of providers are checked when they are configured")
}
