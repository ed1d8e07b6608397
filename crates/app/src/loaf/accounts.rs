//! The keys, logins, models and preferences of a state folder, as the loaf and ACP doors need them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use parlor_auth::{
    Account, LoginError, LoginFlow, LoginPreference, LoginProgress, LoginRequest, LoginState, Secret,
    SecretName,
};
use parlor_frontend::{Accounts, LoginOptions, LoginProgressSender, SkillFolders, find_skills};
use parlor_model::provider::{ProviderKind, routes};
use parlor_vocab::{
    CompletedLogin, Credentials, LoginAccount, LoginFailure, LoginMethod, LoginStep, ModelLists, ModelOption,
    Preferences, SecretText, SkillList,
};
use parlor_web::LearnSecret;

use super::{model_options, preferences};
use crate::environment::Environment;
use crate::home::Home;
use crate::login;
use crate::models::{CatalogueSource, Keys, ListRefresh, server_key};
use crate::settings::Config;
use crate::settings::models::ModelConfig;

const OPENROUTER: &str = "openrouter";

/// The services whose keys a client of this door can set.
const SERVICES: [&str; 2] = [OPENROUTER, "exa"];

/// The folders in which loaf's own front end looks for skills.
const SKILL_FOLDERS: SkillFolders =
    SkillFolders { project: ".agents/skills", user: &[".loaf/skills", ".agents/skills"] };

/// The environment variable that holds the key of OpenRouter.
const OPENROUTER_KEY_VARIABLE: &str = "OPENROUTER_API_KEY";

/// Implements [`Accounts`] on a state folder.
pub(crate) struct HomeAccounts {
    state_folder: PathBuf,
    working_folder: PathBuf,
    user_home: Option<PathBuf>,
    config: Config,
    keys: Keys,
    catalogue: CatalogueSource,
    list_refresh: ListRefresh,
    openrouter_url: String,
    /// Whether the user has no display on this machine, for example over SSH, and so would not see a browser.
    is_headless: bool,
    browser: login::BrowserOpener,
    /// Whether [`OPENROUTER_KEY_VARIABLE`] is set.
    has_openrouter_variable: bool,
    /// Adds a secret that a client brought to those that are never shown.
    learn_secret: LearnSecret,
}

impl HomeAccounts {
    pub(crate) fn new(home: &Home, environment: &Environment, working_folder: PathBuf) -> Self {
        Self {
            state_folder: home.path().to_owned(),
            working_folder,
            user_home: environment.user_home.as_ref().map(PathBuf::from),
            config: home.config().clone(),
            keys: home.keys().clone(),
            catalogue: CatalogueSource::new(home),
            list_refresh: ListRefresh::default(),
            openrouter_url: openrouter_url(home.config()),
            is_headless: login::is_headless(&environment.for_desktop()),
            browser: login::BrowserOpener::new(environment),
            has_openrouter_variable: environment.model_keys.contains(&OPENROUTER_KEY_VARIABLE),
            learn_secret: home.redaction().new_learner(),
        }
    }

    /// Runs `work`, which may block, on one of the runtime's blocking threads.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Keys) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let keys = self.keys.clone();
        let result = tokio::task::spawn_blocking(move || work(&keys)).await;
        result.unwrap_or_else(|_| Err("the program is ending".to_owned()))
    }

    /// The services whose key is stored or in an environment variable.
    async fn services_with_key(&self) -> Vec<String> {
        let mut services = Vec::new();
        for service in SERVICES {
            let Some(name) = SecretName::key(service) else { continue };
            // `has` does not open the keyring.
            let stored = self.run_blocking(move |keys| Ok(keys.store().has(&name))).await;
            let is_in_variable = service == OPENROUTER && self.has_openrouter_variable;
            if is_in_variable || stored.is_ok_and(|is_stored| is_stored) {
                services.push(service.to_owned());
            }
        }
        services
    }
}

#[async_trait]
impl Accounts for HomeAccounts {
    async fn models(&self, lists: ModelLists) -> Vec<ModelOption> {
        let mut catalogue = self.catalogue.cached().await;
        if lists == ModelLists::Current && !catalogue.is_fresh {
            let source = self.catalogue.clone();
            // A provider that fails keeps its old list; `parlor models --all` shows the reason.
            self.list_refresh.start(async move { drop(source.read(false).await) });
            if !catalogue.is_complete {
                self.list_refresh.wait().await;
                catalogue = self.catalogue.cached().await;
            }
        }
        let mut usable = BTreeSet::new();
        for (name, model) in &self.config.models {
            if self.keys.credential(model).await.is_ok() {
                usable.insert(name.as_str());
            }
        }
        let mut options = model_options::models(&self.config, |name| usable.contains(name));
        let server_of = |model: &ModelConfig| server_key(&self.keys, model);
        model_options::add_listed(&mut options, &self.config, &catalogue.lists, server_of);
        options
    }

    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        let result = routes(&self.openrouter_url, model).await;
        result.map_err(|error| {
            format!("the providers of {model} cannot be looked up at {}: {error}", self.openrouter_url)
        })
    }

    async fn skills(&self) -> SkillList {
        let (working_folder, state_folder) = (self.working_folder.clone(), self.state_folder.clone());
        let user_home = self.user_home.clone();
        let find =
            move || find_skills(SKILL_FOLDERS, &working_folder, user_home.as_deref(), Some(&state_folder));
        tokio::task::spawn_blocking(find).await.unwrap_or_default()
    }

    async fn save_preferences(&self, chosen: Preferences) -> Result<(), String> {
        let state_folder = self.state_folder.clone();
        self.run_blocking(move |_| preferences::write(&state_folder, chosen)).await
    }

    async fn credentials(&self) -> Credentials {
        let statuses = self.keys.logins().statuses().await.unwrap_or_default();
        let logged_in = statuses.into_iter().filter(|status| status.state == LoginState::LoggedIn);
        Credentials {
            providers: logged_in.map(|status| (status.provider, status.account.map(login_account))).collect(),
            keys: self.services_with_key().await,
        }
    }

    async fn set_key(&self, service: &str, key: Option<SecretText>) -> Result<usize, String> {
        let name = service.to_owned();
        self.run_blocking(move |keys| keys.set_key(&name, key.map(|SecretText(key)| Secret::new(key))))
            .await?;
        self.list_refresh.reset();
        Ok(self.models(ModelLists::Cached).await.iter().filter(|option| option.provider == service).count())
    }

    async fn log_in(
        &self,
        options: LoginOptions,
        progress: LoginProgressSender,
    ) -> Result<CompletedLogin, LoginFailure> {
        let preference = match options.method {
            LoginMethod::Browser => LoginPreference::Only(LoginFlow::Browser),
            LoginMethod::Device => LoginPreference::Only(LoginFlow::Device),
            LoginMethod::Auto if self.is_headless => LoginPreference::Device,
            LoginMethod::Auto => LoginPreference::Browser,
        };
        let originator = options.originator.map(|originator| ("originator".to_owned(), originator));
        let request = LoginRequest { preference, authorize_params: originator.into_iter().collect() };
        let mut flow = self.keys.logins().start(&options.provider, request).map_err(login_failure)?;
        loop {
            match flow.next().await {
                Some(LoginProgress::Started) => {}
                Some(LoginProgress::Url { url, .. }) => {
                    if options.opens_browser {
                        self.browser.open(&url);
                    }
                    progress.send(LoginStep::Url(url)).await;
                }
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
                    self.list_refresh.reset();
                    let by_device = login.flow == LoginFlow::Device;
                    return Ok(CompletedLogin { by_device, account: login.account.map(login_account) });
                }
                Some(LoginProgress::Failed(error)) => return Err(login_failure(error)),
                Some(LoginProgress::Cancelled) | None => return Err(LoginFailure::Cancelled),
            }
        }
    }

    async fn log_out(&self, provider: &str) -> Result<bool, String> {
        let result = self.keys.logins().logout(provider).await;
        result.map(|logout| logout.existed).map_err(|error| error.to_string())
    }

    fn hide(&self, secrets: &[SecretText]) {
        secrets.iter().for_each(|SecretText(secret)| (self.learn_secret)(secret));
    }

    async fn forget_all(&self) -> Result<(), String> {
        for service in SERVICES {
            self.set_key(service, None).await?;
        }
        for (provider, _) in self.credentials().await.providers {
            self.log_out(&provider).await?;
        }
        let state_folder = self.state_folder.clone();
        self.run_blocking(move |_| preferences::remove(&state_folder)).await
    }
}

/// The address of OpenRouter: the `base_url` of the first OpenRouter model that has one, else the default.
fn openrouter_url(config: &Config) -> String {
    let is_openrouter = |model: &&ModelConfig| model.provider == ProviderKind::OpenRouter;
    let urls = config.models.values().filter(is_openrouter).filter_map(|model| model.base_url.clone());
    urls.into_iter().next().unwrap_or_else(|| ProviderKind::OpenRouter.base_url().to_owned())
}

fn login_account(account: Account) -> LoginAccount {
    let Account { id, email, name, picture } = account;
    LoginAccount { id, email, name, picture }
}

fn login_failure(error: LoginError) -> LoginFailure {
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
        error @ (LoginError::FlowNotConfigured { .. }
        | LoginError::TooMany { .. }
        | LoginError::IssuerMismatch
        | LoginError::Discovery(_)
        | LoginError::Local(_)) => LoginFailure::Other(error.to_string()),
    }
}
