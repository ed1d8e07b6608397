//! Keys, logins and what was chosen, in the state folder.

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use parlor_auth::{Account, LoginError, LoginRequest, Progress, Secret, SecretName, State, Way, WayWanted};
use parlor_engine::{Clerk, LoginWish, Teller, find_skills_in};
use parlor_model::provider::{ProviderKind, routes};
use parlor_vocab::{
    Hidden, Kept, LoggedIn, LoginAccount, LoginFlaw, LoginStep, LoginWay, Logins, Offer, Skills,
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
pub(super) struct HomeClerk {
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

impl HomeClerk {
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
impl Clerk for HomeClerk {
    async fn offers(&self) -> Vec<Offer> {
        let mut usable = BTreeSet::new();
        for (name, model) in &self.config.models {
            if self.keys.pass(model).await.is_ok() {
                usable.insert(name.as_str());
            }
        }
        offers::offers(&self.config, |name| usable.contains(name))
    }

    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        let told = routes(&self.router, model).await;
        told.map_err(|error| format!("who runs {model} cannot be looked up at {}: {error}", self.router))
    }

    async fn skills(&self) -> Skills {
        let (folder, user_home, state) = (self.folder.clone(), self.user_home.clone(), self.home.clone());
        let find = move || find_skills_in(&folder, user_home.as_deref(), Some(&state));
        tokio::task::spawn_blocking(find).await.unwrap_or_default()
    }

    async fn keep(&self, kept: Kept) -> Result<(), String> {
        let home = self.home.clone();
        self.on_disk(move |_| kept::write(&home, kept)).await
    }

    async fn logins(&self) -> Logins {
        let statuses = self.keys.logins().statuses().await.unwrap_or_default();
        let logged_in = statuses.into_iter().filter(|status| status.state == State::LoggedIn);
        Logins {
            providers: logged_in.map(|status| (status.provider, status.account.map(account))).collect(),
            keys: self.kept_keys().await,
        }
    }

    async fn set_key(&self, service: &str, key: Option<Hidden>) -> Result<usize, String> {
        let wanted = service.to_owned();
        self.on_disk(move |keys| keys.keep(&wanted, key.map(|Hidden(key)| Secret::new(key)))).await?;
        Ok(self.offers().await.iter().filter(|offer| offer.provider == service).count())
    }

    async fn log_in(&self, wish: LoginWish, teller: Teller) -> Result<LoggedIn, LoginFlaw> {
        let way = match wish.way {
            LoginWay::Browser => WayWanted::Only(Way::Browser),
            LoginWay::Device => WayWanted::Only(Way::Device),
            LoginWay::Auto if self.is_headless => WayWanted::Device,
            LoginWay::Auto => WayWanted::Browser,
        };
        let originator = wish.originator.map(|originator| ("originator".to_owned(), originator));
        let request = LoginRequest { way, authorize_params: originator.into_iter().collect() };
        let mut flow = self.keys.logins().start(&wish.provider, request).map_err(flaw_of)?;
        loop {
            match flow.next().await {
                Some(Progress::Started) => {}
                Some(Progress::Url { url, .. }) => teller.tell(LoginStep::Url(url)).await,
                Some(Progress::DeviceCode(code)) => {
                    let step = LoginStep::Code {
                        url: code.verification_url,
                        code: code.user_code,
                        interval_seconds: code.interval_seconds,
                        expires_in_seconds: code.expires_in_seconds,
                    };
                    teller.tell(step).await;
                }
                Some(Progress::Completed(login)) => {
                    let by_device = login.way == Way::Device;
                    return Ok(LoggedIn { by_device, account: login.account.map(account) });
                }
                Some(Progress::Failed(error)) => return Err(flaw_of(error)),
                Some(Progress::Cancelled) | None => return Err(LoginFlaw::Cancelled),
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
        for (provider, _) in self.logins().await.providers {
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

fn flaw_of(error: LoginError) -> LoginFlaw {
    match error {
        LoginError::UnknownProvider { .. } => LoginFlaw::NotConfigured,
        LoginError::Cancelled => LoginFlaw::Cancelled,
        LoginError::StateMismatch => LoginFlaw::StateMismatch,
        LoginError::Denied { code, description } => LoginFlaw::Denied(description.unwrap_or(code)),
        LoginError::NoCode => LoginFlaw::NoCode,
        LoginError::TimedOut(limit) => LoginFlaw::TimedOut(limit.as_secs()),
        LoginError::CodeExpired => LoginFlaw::CodeExpired,
        LoginError::DeviceUnsupported => LoginFlaw::NoDeviceCode,
        LoginError::DeviceRequest { status, reason } => LoginFlaw::CodeRefused(status, reason),
        LoginError::DevicePoll { status, reason } => LoginFlaw::PollFailed(status, reason),
        LoginError::Exchange { status, reason } => LoginFlaw::NoToken(status, reason),
        error @ (LoginError::WayMissing { .. } | LoginError::TooMany { .. } | LoginError::Local(_)) => {
            LoginFlaw::Other(error.to_string())
        }
    }
}
