//! What opens the providers: variables, keys that are kept, and logins, in this order.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_auth::{AccessError, LoginManager, LoginState, Redactor, Secret, SecretName, SecretStore};
use parlor_model::provider::{Key, KeyError, KeyInfo, KeySource, ProviderKind, secret_in_address};
use percent_encoding::percent_decode_str;

use crate::environment::Environment;
use crate::login;
use crate::settings::Config;
use crate::settings::models::{ModelConfig, is_address};

/// How to set `OPENAI_BASE_URL` right.
const RIGHT_ADDRESS: &str = "set it to one such as http://127.0.0.1:8080/v1, or unset it";

/// What is wrong with what cannot be sent as a key.
const NO_KEY: &str = "there is the end of a line in it, or another character that cannot be seen";

/// All keys and logins of a state folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keys {
    store: SecretStore,
    logins: LoginManager,
    redactor: Redactor,
    /// `OPENAI_BASE_URL`.
    openai_base_url: Option<String>,
}

/// By what a model can be asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Its server wants nothing, as far as that is known.
    None,
    /// By the key in this variable.
    Variable(String),
    /// By the key that is kept under this name.
    Kept(String),
    /// By the login of this name.
    Login(String),
}

impl Keys {
    /// Those of the state folder `home`. From now on, all that is known of them is taken out of texts.
    pub(crate) fn open(home: &Path, config: &Config, environment: &Environment) -> anyhow::Result<Self> {
        let redactor = Redactor::new();
        let keyring = match config.keyring {
            true => environment.session_bus.clone(),
            false => Err("secrets.keyring in parlor.toml is false".to_owned()),
        };
        let store = SecretStore::with_keyring(home, keyring)?;
        let logins = login::logins(config, store.clone(), &redactor);
        redactor.learn_all(&store);
        let openai_base_url = environment.openai_base_url.clone();
        let keys = Self { store, logins, redactor, openai_base_url };
        keys.openai_base_url.iter().for_each(|url| keys.learn_address(url));
        for model in config.models.values() {
            model.base_url.iter().for_each(|url| keys.learn_address(url));
            // A variable of which nobody asks now may be asked for later.
            drop(keys.variable(model));
        }
        Ok(keys)
    }

    /// The logins there are.
    pub(crate) fn logins(&self) -> &LoginManager {
        &self.logins
    }

    /// Where secrets are kept.
    pub(crate) fn store(&self) -> &SecretStore {
        &self.store
    }

    /// What takes secrets out of texts.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Whether there is something by which a provider can be asked: a key or a login that is kept, or a server of one's
    /// own in its place, which mostly wants none. Asks no keyring. Blocking.
    pub(crate) fn has(&self, provider: ProviderKind) -> bool {
        let name = name_of(provider);
        let is_kept = |name: Option<SecretName>| name.is_some_and(|name| self.store.has(&name));
        let is_moved = provider == ProviderKind::OpenAi && self.openai_base_url.is_some();
        is_moved
            || is_kept(SecretName::key(name))
            || (self.has_login(name) && is_kept(SecretName::login(name)))
    }

    /// Keeps a key, or forgets it; says whether there was one to forget. Blocking.
    pub(crate) fn keep(&self, service: &str, key: Option<Secret>) -> Result<bool, String> {
        let name = SecretName::key(service)
            .ok_or_else(|| format!("{service:?} is no name: letters, digits, - and _ make one"))?;
        let done = match key {
            Some(key) => {
                self.redactor.learn(&key);
                self.store.write(&name, &key).map(|()| true)
            }
            None => self.store.remove(&name),
        };
        done.map_err(|error| error.to_string())
    }

    /// Where a model is, if not at its provider's own address.
    pub(crate) fn base_url<'b>(&'b self, model: &'b ModelConfig) -> Option<&'b str> {
        let of_openai = match model.provider {
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => self.openai_base_url.as_deref(),
            ProviderKind::Anthropic
            | ProviderKind::Gemini
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => None,
        };
        model.base_url.as_deref().or(of_openai)
    }

    /// Where the key of a model comes from.
    pub(crate) fn source(&self, model: &ModelConfig) -> Arc<dyn KeySource> {
        Arc::new(ModelKey { keys: self.clone(), model: model.clone(), variable: self.variable(model) })
    }

    /// By what a model can be asked, or what to do so that it can. Renews no login.
    pub(crate) async fn pass(&self, model: &ModelConfig) -> Result<Pass, String> {
        self.check_address(model)?;
        if self.variable(model)?.is_some() {
            return Ok(Pass::Variable(model.key_variable().unwrap_or_default().to_owned()));
        }
        let Some(name) = kept_name(model) else { return self.without(model).map(|()| Pass::None) };
        if self.kept(name).await?.is_some() {
            return Ok(Pass::Kept(name.to_owned()));
        }
        match self.logins.status(name).await.map(|status| status.state) {
            Some(LoginState::LoggedIn) => Ok(Pass::Login(name.to_owned())),
            Some(LoginState::Expired) => {
                Err(format!("the login to {name} has expired; run: parlor login {name}"))
            }
            Some(LoginState::Ended(why)) => {
                Err(format!("the login to {name} has ended: {why}; run: parlor login {name}"))
            }
            Some(LoginState::Unreadable(why)) => Err(why),
            Some(LoginState::LoggedOut) | None => self.without(model).map(|()| Pass::None),
        }
    }

    /// Says so if the variable that moves a model elsewhere names no address.
    fn check_address(&self, model: &ModelConfig) -> Result<(), String> {
        match self.base_url(model) {
            Some(url) if !is_address(url) => {
                // What it is instead may be a key.
                Err(format!("OPENAI_BASE_URL is no address: {RIGHT_ADDRESS}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What people are told of the key of a model.
    async fn about(&self, model: &ModelConfig) -> KeyInfo {
        let keep = kept_name(model).map(|name| format!("run: parlor login {name} --key"));
        let (used, remedy) = match self.pass(model).await {
            Ok(Pass::Variable(name)) => (
                Some(format!("the key in {name}")),
                match keep {
                    Some(keep) => format!("set another there, or unset it and {keep}"),
                    None => "set another there".to_owned(),
                },
            ),
            Ok(Pass::Kept(name)) => {
                (Some(format!("the key of {name} that is kept")), format!("run: parlor login {name} --key"))
            }
            Ok(Pass::Login(name)) => {
                (Some(format!("the login to {name}")), format!("run: parlor login {name}"))
            }
            Ok(Pass::None) => {
                let set = model.key_variable().map_or_else(String::new, |name| format!("set {name}, or "));
                let keep = keep.unwrap_or_else(|| {
                    "name one with auth in its [models.NAME] of parlor.toml (docs/models.md)".to_owned()
                });
                (None, set + &keep)
            }
            Err(why) => (None, why),
        };
        KeyInfo { used, remedy }
    }

    /// The key in a model's variable, or what is wrong with it.
    fn variable(&self, model: &ModelConfig) -> Result<Option<Key>, String> {
        let Some(name) = model.key_variable() else { return Ok(None) };
        let Some(key) = Environment::secret(name) else { return Ok(None) };
        self.redactor.learn(&Secret::new(key.as_str()));
        if !can_be_sent(&key) {
            return Err(format!("{name} holds no key: {NO_KEY}; set it again, or unset it"));
        }
        Ok(Some(Key::new(key)))
    }

    /// From now on, what is secret in an address is taken out of texts: as it is written, and as it is sent.
    fn learn_address(&self, url: &str) {
        let Some(written) = secret_in_address(url) else { return };
        let sent = percent_decode_str(&written).decode_utf8_lossy().into_owned();
        [written, sent].into_iter().for_each(|secret| self.redactor.learn(&Secret::new(secret)));
    }

    /// The key that is kept under a name, or what is wrong with it.
    async fn kept(&self, name: &str) -> Result<Option<Secret>, String> {
        let (store, Some(secret)) = (self.store.clone(), SecretName::key(name)) else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || store.read(&secret)).await;
        let key = read.map_err(|_| "the program is ending".to_owned())?.map_err(|error| error.to_string())?;
        key.iter().for_each(|key| self.redactor.learn(key));
        if key.as_ref().is_some_and(|key| !can_be_sent(key.expose())) {
            return Err(format!(
                "what is kept for {name} is no key: {NO_KEY}; run: parlor login {name} --key"
            ));
        }
        Ok(key)
    }

    fn has_login(&self, name: &str) -> bool {
        self.logins.providers().any(|provider| provider.name() == name)
    }

    /// Whether a model can be asked without a key, or what to do to have one.
    fn without(&self, model: &ModelConfig) -> Result<(), String> {
        // A server of one's own mostly wants none; if it does, it says so.
        if model.auth.is_none() && (model.key_variable().is_none() || self.base_url(model).is_some()) {
            return Ok(());
        }
        let Some(name) = kept_name(model) else { return Ok(()) };
        let login = if self.has_login(name) { format!(", or parlor login {name}") } else { String::new() };
        let variable = model.key_variable().map_or_else(String::new, |name| format!("set {name}, or "));
        Err(format!("there is no key: {variable}run: parlor login {name} --key{login}"))
    }
}

/// Whether a line of a request's head can hold a key.
fn can_be_sent(key: &str) -> bool {
    !key.contains(|letter: char| letter.is_control() || letter == char::REPLACEMENT_CHARACTER)
}

/// Under which name the keys and logins of a provider are kept.
pub(crate) fn name_of(provider: ProviderKind) -> &'static str {
    match provider {
        ProviderKind::OpenAi | ProviderKind::OpenAiResponses => ProviderKind::OpenAi.name(),
        ProviderKind::Anthropic | ProviderKind::Gemini | ProviderKind::OpenRouter | ProviderKind::Ollama => {
            provider.name()
        }
    }
}

/// Under which name what opens a model is kept. A key goes to a server other than its provider's only if
/// the settings say so.
fn kept_name(model: &ModelConfig) -> Option<&str> {
    let of_provider = model.base_url.is_none().then(|| name_of(model.provider));
    model.auth.as_deref().or(of_provider)
}

/// The key of one model.
struct ModelKey {
    keys: Keys,
    model: ModelConfig,
    variable: Result<Option<Key>, String>,
}

#[async_trait]
impl KeySource for ModelKey {
    async fn key(&self) -> Result<Option<Key>, KeyError> {
        self.keys.check_address(&self.model).map_err(KeyError::Settings)?;
        if let Some(key) = self.variable.clone().map_err(KeyError::Settings)? {
            return Ok(Some(key));
        }
        if let Some(name) = kept_name(&self.model) {
            if let Some(key) = self.keys.kept(name).await.map_err(KeyError::Missing)? {
                return Ok(Some(Key::new(key.expose())));
            }
            if self.keys.has_login(name) {
                match self.keys.logins.access(name).await {
                    Ok(token) => return Ok(Some(Key::bearer(token.expose()))),
                    Err(AccessError::LoggedOut { .. }) => {}
                    Err(error) => return Err(of_login(&error)),
                }
            }
        }
        self.keys.without(&self.model).map(|()| None).map_err(KeyError::Missing)
    }

    async fn instead_of(&self, refused: &Key) -> Result<Option<Key>, KeyError> {
        let Some(name) = kept_name(&self.model).filter(|_| refused.is_bearer()) else { return Ok(None) };
        let renewed = self.keys.logins.access_instead_of(name, &Secret::new(refused.reveal())).await;
        renewed.map(|token| Some(Key::bearer(token.expose()))).map_err(|error| of_login(&error))
    }

    async fn about(&self) -> KeyInfo {
        self.keys.about(&self.model).await
    }
}

fn of_login(error: &AccessError) -> KeyError {
    match error {
        AccessError::Unavailable { .. } => KeyError::Unavailable(error.to_string()),
        AccessError::UnknownProvider { .. }
        | AccessError::LoggedOut { .. }
        | AccessError::Ended { .. }
        | AccessError::Local(_) => KeyError::Missing(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(provider: ProviderKind, base_url: Option<&str>, auth: Option<&str>) -> ModelConfig {
        ModelConfig {
            base_url: base_url.map(str::to_owned),
            auth: auth.map(str::to_owned),
            ..ModelConfig::new(provider, "m")
        }
    }

    #[test]
    fn what_is_kept_goes_to_its_provider_and_elsewhere_only_where_the_settings_say_so() {
        let name = |base_url, auth| {
            let model = model(ProviderKind::OpenAiResponses, base_url, auth);
            kept_name(&model).map(str::to_owned)
        };
        assert_eq!(name(None, None).as_deref(), Some("openai"));
        assert_eq!(name(Some("http://elsewhere"), None), None);
        assert_eq!(name(Some("http://elsewhere"), Some("mine")).as_deref(), Some("mine"));
        assert_eq!(name(None, Some("mine")).as_deref(), Some("mine"));
    }
}
