//! Keys, logins and what was chosen, in the state folder.

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use parlor_auth::{
    Account, LoginError, LoginProgress, LoginRequest, LoginState, LoginWay, LoginWayWanted, Secret,
    SecretName,
};
use parlor_frontend::{Accounts, LoginOptions, LoginProgressSender, find_skills_in};
use parlor_model::provider::{ProviderKind, routes};
use parlor_vocab::{
    CompletedLogin, Credentials, LoginAccount, LoginFailure, LoginMethod, LoginStep, ModelOption,
    Preferences, SecretText, SkillList,
};

use super::{kept, offers};
use crate::environment::Environment;
use crate::home::Home;
use crate::login;
use crate::models::Keys;
use crate::settings::Config;
use crate::settings::models::ModelConfig;

/// The services whose keys are kept.
const SERVICES: [&str; 2] = ["openrouter", "exa"];

/// The variable that holds the key of the first.
const ROUTER_KEY: &str = "OPENROUTER_API_KEY";

/// The clerk of a state folder.
pub(super) struct HomeAccounts {
    home: PathBuf,
    folder: PathBuf,
    user_home: Option<PathBuf>,
    config: Config,
    keys: Keys,
    /// Where the router is.
    router: String,
    /// Whether no browser can be seen from here.
    is_headless: bool,
    has_router_variable: bool,
}

impl HomeAccounts {
    pub(super) fn new(home: &Home, environment: &Environment, folder: PathBuf) -> Self {
        Self {
            home: home.path().to_owned(),
            folder,
            user_home: environment.user_home.as_ref().map(PathBuf::from),
            config: home.config().clone(),
            keys: home.keys().clone(),
            router: router(home.config()),
            is_headless: login::is_headless(&environment.for_desktop()),
            has_router_variable: environment.model_keys.contains(&ROUTER_KEY),
        }
    }

    /// Does something that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Keys) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let keys = self.keys.clone();
        let done = tokio::task::spawn_blocking(move || work(&keys)).await;
        done.unwrap_or_else(|_| Err("the program is ending".to_owned()))
    }

    async fn kept_keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for service in SERVICES {
            let Some(name) = SecretName::key(service) else { continue };
            // No keyring is opened to say that there is something in it.
            let kept = self.on_disk(move |keys| Ok(keys.store().has(&name))).await;
            let is_set = service == SERVICES[0] && self.has_router_variable;
            if is_set || kept.is_ok_and(|is_kept| is_kept) {
                keys.push(service.to_owned());
            }
        }
        keys
    }
}

#[async_trait]
impl Accounts for HomeAccounts {
    async fn models(&self) -> Vec<ModelOption> {
        let mut usable = BTreeSet::new();
        for (name, model) in &self.config.models {
            if self.keys.pass(model).await.is_ok() {
                usable.insert(name.as_str());
            }
        }
        offers::models(&self.config, |name| usable.contains(name))
    }

    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        let told = routes(&self.router, model).await;
        told.map_err(|error| format!("who runs {model} cannot be looked up at {}: {error}", self.router))
    }

    async fn skills(&self) -> SkillList {
        let (folder, user_home, state) = (self.folder.clone(), self.user_home.clone(), self.home.clone());
        let find = move || find_skills_in(&folder, user_home.as_deref(), Some(&state));
        tokio::task::spawn_blocking(find).await.unwrap_or_default()
    }

    async fn save_preferences(&self, preferences: Preferences) -> Result<(), String> {
        let home = self.home.clone();
        self.on_disk(move |_| kept::write(&home, preferences)).await
    }

    async fn credentials(&self) -> Credentials {
        let statuses = self.keys.logins().statuses().await.unwrap_or_default();
        let logged_in = statuses.into_iter().filter(|status| status.state == LoginState::LoggedIn);
        Credentials {
            providers: logged_in.map(|status| (status.provider, status.account.map(account))).collect(),
            keys: self.kept_keys().await,
        }
    }

    async fn set_key(&self, service: &str, key: Option<SecretText>) -> Result<usize, String> {
        let wanted = service.to_owned();
        self.on_disk(move |keys| keys.keep(&wanted, key.map(|SecretText(key)| Secret::new(key)))).await?;
        Ok(self.models().await.iter().filter(|offer| offer.provider == service).count())
    }

    async fn log_in(
        &self,
        options: LoginOptions,
        progress: LoginProgressSender,
    ) -> Result<CompletedLogin, LoginFailure> {
        let way = match options.method {
            LoginMethod::Browser => LoginWayWanted::Only(LoginWay::Browser),
            LoginMethod::Device => LoginWayWanted::Only(LoginWay::Device),
            LoginMethod::Auto if self.is_headless => LoginWayWanted::Device,
            LoginMethod::Auto => LoginWayWanted::Browser,
        };
        let originator = options.originator.map(|originator| ("originator".to_owned(), originator));
        let request = LoginRequest { way, authorize_params: originator.into_iter().collect() };
        let mut flow = self.keys.logins().start(&options.provider, request).map_err(flaw_of)?;
        loop {
            match flow.next().await {
                Some(LoginProgress::Started) => {}
                Some(LoginProgress::Url { url, .. }) => progress.send(LoginStep::Url(url)).await,
                Some(LoginProgress::DeviceCode(code)) => {
                    let step = LoginStep::Code {
                        url: code.verification_url,
                        code: code.user_code,
                        interval_seconds: code.interval_seconds,
                        expires_in_seconds: code.expires_in_seconds,
                    };
                    progress.send(step).await;
                }
                Some(LoginProgress::Completed(login)) => {
                    let by_device = login.way == LoginWay::Device;
                    return Ok(CompletedLogin { by_device, account: login.account.map(account) });
                }
                Some(LoginProgress::Failed(error)) => return Err(flaw_of(error)),
                Some(LoginProgress::Cancelled) | None => return Err(LoginFailure::Cancelled),
            }
        }
    }

    async fn log_out(&self, provider: &str) -> Result<bool, String> {
        let done = self.keys.logins().logout(provider).await;
        done.map(|done| done.existed).map_err(|error| error.to_string())
    }

    async fn forget_all(&self) -> Result<(), String> {
        for service in SERVICES {
            self.set_key(service, None).await?;
        }
        for (provider, _) in self.credentials().await.providers {
            self.log_out(&provider).await?;
        }
        let home = self.home.clone();
        self.on_disk(move |_| kept::remove(&home)).await
    }
}

/// Where the models of the router are that are configured; where it usually is, if none is.
fn router(config: &Config) -> String {
    let is_routed = |model: &&ModelConfig| model.provider == ProviderKind::OpenRouter;
    let urls = config.models.values().filter(is_routed).filter_map(|model| model.base_url.clone());
    urls.into_iter().next().unwrap_or_else(|| ProviderKind::OpenRouter.base_url().to_owned())
}

fn account(account: Account) -> LoginAccount {
    let Account { id, email, name, picture } = account;
    LoginAccount { id, email, name, picture }
}

fn flaw_of(error: LoginError) -> LoginFailure {
    match error {
        LoginError::UnknownProvider { .. } => LoginFailure::NotConfigured,
        LoginError::Cancelled => LoginFailure::Cancelled,
        LoginError::StateMismatch => LoginFailure::StateMismatch,
        LoginError::Denied { code, description } => LoginFailure::Denied(description.unwrap_or(code)),
        LoginError::NoCode => LoginFailure::NoCode,
        LoginError::TimedOut(limit) => LoginFailure::TimedOut(limit.as_secs()),
        LoginError::CodeExpired => LoginFailure::CodeExpired,
        LoginError::DeviceUnsupported => LoginFailure::NoDeviceCode,
        LoginError::DeviceRequest { status, reason } => LoginFailure::CodeRefused(status, reason),
        LoginError::DevicePoll { status, reason } => LoginFailure::PollFailed(status, reason),
        LoginError::Exchange { status, reason } => LoginFailure::NoToken(status, reason),
        error @ (LoginError::WayMissing { .. } | LoginError::TooMany { .. } | LoginError::Local(_)) => {
            LoginFailure::Other(error.to_string())
        }
    }
}
