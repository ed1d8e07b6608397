//! From the settings to models that can be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use parlor_model::provider::{Connection, FixedKey, Key, KeyError, ProviderKind, Routing};
use parlor_model::{DEFAULT_CONTEXT_WINDOW, INSTRUCTIONS_FILE, Limits, Model, ModelAgent, UserFolders};

use crate::environment::Environment;
use crate::home::tools;
use crate::settings::Config;
use crate::settings::models::{MindConfig, ModelConfig};

/// The folder of skills, in the state folder.
const SKILLS: &str = "skills";

/// The folder of skills that other agents share, in the user's home folder.
const SHARED_SKILLS: &str = ".agents/skills";

/// Makes models and agents of what is configured.
pub(crate) struct Builder<'a> {
    config: &'a Config,
    home: &'a Path,
    environment: &'a Environment,
}

impl<'a> Builder<'a> {
    /// For this configuration in that state folder.
    pub(crate) fn new(config: &'a Config, home: &'a Path, environment: &'a Environment) -> Self {
        Self { config, home, environment }
    }

    /// An agent with its models and tools.
    pub(crate) fn agent(&self, name: &str, mind: &MindConfig) -> anyhow::Result<ModelAgent> {
        if let Some(names) = &mind.tools {
            tools(self.environment).only(names).map_err(|failure| anyhow::anyhow!(failure.message))?;
        }
        let own = std::iter::once(&mind.model).chain(&mind.fallback);
        let models = own.map(|name| self.model(name)).collect::<anyhow::Result<Vec<Model>>>()?;
        let known = self.config.models.keys().map(|name| self.model(name)).collect::<anyhow::Result<_>>()?;
        let spending = self.config.spending;
        Ok(ModelAgent {
            name: name.to_owned(),
            models,
            known,
            tools: mind.tools.clone(),
            system: mind.system.clone(),
            limits: Limits { session_micros: spending.session, day_micros: spending.day, ..mind.limits },
            user_folders: self.user_folders(),
        })
    }

    /// The way to a model's provider.
    pub(crate) fn connection(&self, model: &ModelConfig) -> Connection {
        let routing = Routing(model.routing.clone());
        let key = Arc::new(FixedKey(self.key(model).map(|key| key.map(Key::new))));
        Connection::new(model.provider, self.base_url(model), key, routing)
    }

    /// Where a model is, if not at its provider's own address.
    pub(crate) fn base_url<'b>(&'b self, model: &'b ModelConfig) -> Option<&'b str> {
        let of_openai = match model.provider {
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => {
                self.environment.openai_base_url.as_deref()
            }
            ProviderKind::Anthropic
            | ProviderKind::Gemini
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => None,
        };
        model.base_url.as_deref().or(of_openai)
    }

    /// The key of a model, or what to do to have one.
    pub(crate) fn key(&self, model: &ModelConfig) -> Result<Option<String>, KeyError> {
        let Some(variable) = model.key_variable() else { return Ok(None) };
        match Environment::secret(variable) {
            Some(key) => Ok(Some(key)),
            // A server of one's own mostly wants none; if it does, it says so.
            None if self.base_url(model).is_some() => Ok(None),
            None => Err(KeyError(format!("there is no key: set {variable} to the one of your provider"))),
        }
    }

    fn model(&self, name: &str) -> anyhow::Result<Model> {
        let Some(config) = self.config.models.get(name) else { bail!("there is no model {name:?}") };
        Ok(Model {
            context_window: config.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW),
            max_output: config.max_output.and_then(|tokens| u32::try_from(tokens).ok()),
            reasoning: config.reasoning,
            price: config.price,
            ..Model::new(name, config.model.as_str(), Arc::new(self.connection(config)))
        })
    }

    fn user_folders(&self) -> UserFolders {
        let shared = self.environment.user_home.as_ref().map(|home| PathBuf::from(home).join(SHARED_SKILLS));
        UserFolders {
            instructions: Some(self.home.join(INSTRUCTIONS_FILE)),
            skills: shared.into_iter().chain([self.home.join(SKILLS)]).collect(),
        }
    }
}
