//! The credentials for model providers: keys in environment variables, stored keys, and logins, in this order.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_auth::{AccessError, LoginManager, LoginState, Redactor, Secret, SecretName, SecretStore};
use parlor_model::provider::{Key, KeyError, KeyInfo, KeySource, ProviderKind, secret_in_url};
use percent_encoding::percent_decode_str;

use crate::environment::Environment;
use crate::login;
use crate::settings::Config;
use crate::settings::models::{ModelConfig, is_http_address};

/// How the user can correct `OPENAI_BASE_URL`.
const BASE_URL_FIX: &str = "set it to an address such as http://127.0.0.1:8080/v1, or unset it";

/// Why a text cannot be sent as a key.
const INVALID_KEY_REASON: &str = "it contains a line break or another invisible character";

/// Finds the key or login for each model of a state folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keys {
    store: SecretStore,
    logins: LoginManager,
    redactor: Redactor,
    /// The value of `OPENAI_BASE_URL`, which need not be an address.
    openai_base_url: Option<String>,
}

/// Which credential requests to a model carry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ModelCredential {
    /// None: as far as parlor knows, the server needs no key.
    None,
    /// The key in the environment variable of this name.
    Variable(String),
    /// The stored key of this name.
    StoredKey(String),
    /// The login of this name.
    Login(String),
}

impl Keys {
    /// Opens the secret store of the state folder `home`. Adds all its keys and logins to the redactor.
    pub(crate) fn open(
        home: &Path,
        config: &Config,
        environment: &Environment,
        redactor: Redactor,
    ) -> anyhow::Result<Self> {
        let keyring = match config.keyring {
            true => environment.session_bus.clone(),
            false => Err("secrets.keyring in parlor.toml is false".to_owned()),
        };
        let store = SecretStore::with_keyring(home, keyring)?;
        let logins = login::logins(config, store.clone(), &redactor);
        redactor.learn_all(&store);
        let openai_base_url = environment.openai_base_url.clone();
        let keys = Self { store, logins, redactor, openai_base_url };
        keys.openai_base_url.iter().for_each(|url| keys.learn_password(url));
        for model in config.models.values() {
            model.base_url.iter().for_each(|url| keys.learn_password(url));
            // `variable_key` adds the key to the redactor.
            drop(keys.variable_key(model));
        }
        Ok(keys)
    }

    pub(crate) fn logins(&self) -> &LoginManager {
        &self.logins
    }

    pub(crate) fn store(&self) -> &SecretStore {
        &self.store
    }

    /// The redactor, which removes the known keys and logins from texts.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Whether models of a provider can be used: with a stored key, with a login, or at the user's own server, which
    /// usually needs no key. Does not open a keyring. Blocks.
    pub(crate) fn has_credential(&self, provider: ProviderKind) -> bool {
        let name = provider_credential_name(provider);
        let is_stored = |name: Option<SecretName>| name.is_some_and(|name| self.store.has(&name));
        let has_own_server = provider == ProviderKind::OpenAi && self.openai_base_url.is_some();
        has_own_server
            || is_stored(SecretName::key(name))
            || (self.has_login(name) && is_stored(SecretName::login(name)))
    }

    /// Stores a key, or removes it if `key` is `None`. Returns false if there was no key to remove. Blocks.
    pub(crate) fn set_key(&self, service: &str, key: Option<Secret>) -> Result<bool, String> {
        let name = SecretName::key(service)
            .ok_or_else(|| format!("{service:?} is not a valid name: use letters, digits, - and _"))?;
        let result = match key {
            Some(key) => {
                self.redactor.learn(&key);
                self.store.write(&name, &key).map(|()| true)
            }
            None => self.store.remove(&name),
        };
        result.map_err(|error| error.to_string())
    }

    /// The address of the model's server, if it is not the provider's own.
    pub(crate) fn base_url<'b>(&'b self, model: &'b ModelConfig) -> Option<&'b str> {
        let from_variable = match model.provider {
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => self.openai_base_url.as_deref(),
            ProviderKind::Anthropic
            | ProviderKind::Gemini
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => None,
        };
        model.base_url.as_deref().or(from_variable)
    }

    /// The key source of a model. It reads the environment variable now, and a stored key or login at each request.
    pub(crate) fn source(&self, model: &ModelConfig) -> Arc<dyn KeySource> {
        Arc::new(ModelKeySource {
            keys: self.clone(),
            model: model.clone(),
            variable: self.variable_key(model),
        })
    }

    /// The credential that requests to a model carry. The error says what the user should do. Renews no login.
    pub(crate) async fn credential(&self, model: &ModelConfig) -> Result<ModelCredential, String> {
        self.check_address(model)?;
        if self.variable_key(model)?.is_some() {
            return Ok(ModelCredential::Variable(model.key_variable().unwrap_or_default().to_owned()));
        }
        let Some(name) = credential_name(model) else {
            return self.check_keyless(model).map(|()| ModelCredential::None);
        };
        if self.stored_key(name).await?.is_some() {
            return Ok(ModelCredential::StoredKey(name.to_owned()));
        }
        match self.logins.status(name).await.map(|status| status.state) {
            Some(LoginState::LoggedIn) => Ok(ModelCredential::Login(name.to_owned())),
            Some(LoginState::Expired) => {
                Err(format!("the login to {name} has expired; run: parlor login {name}"))
            }
            Some(LoginState::Ended(why)) => {
                Err(format!("the login to {name} has ended: {why}; run: parlor login {name}"))
            }
            Some(LoginState::Unreadable(why)) => Err(why),
            Some(LoginState::LoggedOut) | None => self.check_keyless(model).map(|()| ModelCredential::None),
        }
    }

    /// Fails if `OPENAI_BASE_URL` applies to the model and is not an address. (Addresses in `parlor.toml` are checked when
    /// it is read.)
    fn check_address(&self, model: &ModelConfig) -> Result<(), String> {
        match self.base_url(model) {
            Some(url) if !is_http_address(url) => {
                // The message does not repeat the value: it may be a key.
                Err(format!("OPENAI_BASE_URL is not an address: {BASE_URL_FIX}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Describes the key of a model for people: which one is used, and how to change it.
    async fn key_info(&self, model: &ModelConfig) -> KeyInfo {
        let store_key = credential_name(model).map(|name| format!("run: parlor login {name} --key"));
        let (used, remedy) = match self.credential(model).await {
            Ok(ModelCredential::Variable(name)) => (
                Some(format!("the key in {name}")),
                match store_key {
                    Some(store_key) => format!("set another there, or unset it and {store_key}"),
                    None => "set another there".to_owned(),
                },
            ),
            Ok(ModelCredential::StoredKey(name)) => {
                (Some(format!("the stored key of {name}")), format!("run: parlor login {name} --key"))
            }
            Ok(ModelCredential::Login(name)) => {
                (Some(format!("the login to {name}")), format!("run: parlor login {name}"))
            }
            Ok(ModelCredential::None) => {
                let set_variable =
                    model.key_variable().map_or_else(String::new, |name| format!("set {name}, or "));
                let store_key = store_key.unwrap_or_else(|| {
                    "set auth in [models.NAME] of parlor.toml to the name of a stored key (docs/models.md)"
                        .to_owned()
                });
                (None, set_variable + &store_key)
            }
            Err(why) => (None, why),
        };
        KeyInfo { used, remedy }
    }

    /// The key in a model's environment variable. The error says why the value is not a valid key.
    fn variable_key(&self, model: &ModelConfig) -> Result<Option<Key>, String> {
        let Some(name) = model.key_variable() else { return Ok(None) };
        let Some(key) = Environment::secret(name) else { return Ok(None) };
        self.redactor.learn(&Secret::new(key.as_str()));
        if !can_be_sent(&key) {
            return Err(format!(
                "{name} is not a valid key: {INVALID_KEY_REASON}; set it again, or unset it"
            ));
        }
        Ok(Some(Key::new(key)))
    }

    /// Adds the password in an address to the redactor, as written and percent-decoded.
    fn learn_password(&self, url: &str) {
        let Some(written) = secret_in_url(url) else { return };
        let decoded = percent_decode_str(&written).decode_utf8_lossy().into_owned();
        [written, decoded].into_iter().for_each(|secret| self.redactor.learn(&Secret::new(secret)));
    }

    /// The key that is stored under a name. The error says why it cannot be used.
    async fn stored_key(&self, name: &str) -> Result<Option<Secret>, String> {
        let (store, Some(secret)) = (self.store.clone(), SecretName::key(name)) else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || store.read(&secret)).await;
        let key = read.map_err(|_| "the program is ending".to_owned())?.map_err(|error| error.to_string())?;
        key.iter().for_each(|key| self.redactor.learn(key));
        if key.as_ref().is_some_and(|key| !can_be_sent(key.expose())) {
            return Err(format!(
                "the stored key of {name} is not valid: {INVALID_KEY_REASON}; run: parlor login {name} --key"
            ));
        }
        Ok(key)
    }

    fn has_login(&self, name: &str) -> bool {
        self.logins.providers().any(|provider| provider.name() == name)
    }

    /// Fails if a model needs a key. The error says how to provide one.
    fn check_keyless(&self, model: &ModelConfig) -> Result<(), String> {
        // The user's own server usually needs no key. If it does need one, it refuses the request.
        if model.auth.is_none() && (model.key_variable().is_none() || self.base_url(model).is_some()) {
            return Ok(());
        }
        let Some(name) = credential_name(model) else { return Ok(()) };
        let login = if self.has_login(name) { format!(", or parlor login {name}") } else { String::new() };
        let variable = model.key_variable().map_or_else(String::new, |name| format!("set {name}, or "));
        Err(format!("there is no key: {variable}run: parlor login {name} --key{login}"))
    }
}

/// Whether a key can be sent in an HTTP header.
fn can_be_sent(key: &str) -> bool {
    !key.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER)
}

/// The name under which the key or login of a provider is stored.
pub(crate) fn provider_credential_name(provider: ProviderKind) -> &'static str {
    match provider {
        ProviderKind::OpenAi | ProviderKind::OpenAiResponses => ProviderKind::OpenAi.name(),
        ProviderKind::Anthropic | ProviderKind::Gemini | ProviderKind::OpenRouter | ProviderKind::Ollama => {
            provider.name()
        }
    }
}

/// The name under which the key or login of a model is stored. A server other than the provider's own gets a stored key
/// only if the settings name that key.
fn credential_name(model: &ModelConfig) -> Option<&str> {
    let provider_name = model.base_url.is_none().then(|| provider_credential_name(model.provider));
    model.auth.as_deref().or(provider_name)
}

/// Finds the key for each request to one model.
struct ModelKeySource {
    keys: Keys,
    model: ModelConfig,
    /// The result of [`Keys::variable_key`] when this source was created.
    variable: Result<Option<Key>, String>,
}

#[async_trait]
impl KeySource for ModelKeySource {
    async fn key(&self) -> Result<Option<Key>, KeyError> {
        self.keys.check_address(&self.model).map_err(KeyError::Settings)?;
        if let Some(key) = self.variable.clone().map_err(KeyError::Settings)? {
            return Ok(Some(key));
        }
        if let Some(name) = credential_name(&self.model) {
            if let Some(key) = self.keys.stored_key(name).await.map_err(KeyError::Missing)? {
                return Ok(Some(Key::new(key.expose())));
            }
            if self.keys.has_login(name) {
                match self.keys.logins.access_token(name).await {
                    Ok(token) => return Ok(Some(Key::bearer(token.expose()))),
                    Err(AccessError::LoggedOut { .. }) => {}
                    Err(error) => return Err(login_error(&error)),
                }
            }
        }
        self.keys.check_keyless(&self.model).map(|()| None).map_err(KeyError::Missing)
    }

    async fn replacement_for(&self, refused: &Key) -> Result<Option<Key>, KeyError> {
        let Some(name) = credential_name(&self.model).filter(|_| refused.is_bearer()) else {
            return Ok(None);
        };
        let renewed = self.keys.logins.replacement_token(name, &Secret::new(refused.reveal())).await;
        renewed.map(|token| Some(Key::bearer(token.expose()))).map_err(|error| login_error(&error))
    }

    async fn info(&self) -> KeyInfo {
        self.keys.key_info(&self.model).await
    }
}

fn login_error(error: &AccessError) -> KeyError {
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
    fn a_stored_key_goes_to_another_server_only_if_the_settings_name_it() {
        let name = |base_url, auth| {
            let model = model(ProviderKind::OpenAiResponses, base_url, auth);
            credential_name(&model).map(str::to_owned)
        };
        assert_eq!(name(None, None).as_deref(), Some("openai"));
        assert_eq!(name(Some("http://elsewhere"), None), None);
        assert_eq!(name(Some("http://elsewhere"), Some("mine")).as_deref(), Some("mine"));
        assert_eq!(name(None, Some("mine")).as_deref(), Some("mine"));
    }
}
