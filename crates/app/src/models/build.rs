//! Builds agents and models from the settings.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use parlor_model::provider::{AdvisedConnection, Connection, Routing};
use parlor_model::{DEFAULT_CONTEXT_WINDOW, INSTRUCTIONS_FILE, Limits, Model, ModelAgent, UserFolders};

use crate::environment::Environment;
use crate::home::{Home, tools};
use crate::models::Keys;
use crate::settings::models::{ModelAgentConfig, ModelConfig};

/// The folder of skills in the state folder.
const SKILLS: &str = "skills";

/// The folder of skills in the user's home folder that other agents use too.
const SHARED_SKILLS: &str = ".agents/skills";

/// Builds agents and models from the settings of a state folder.
pub(crate) struct Builder<'a> {
    home: &'a Home,
    environment: &'a Environment,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(home: &'a Home, environment: &'a Environment) -> Self {
        Self { home, environment }
    }

    /// Builds an agent with its models and tools. Fails if a tool or model does not exist.
    pub(crate) fn agent(&self, name: &str, config: &ModelAgentConfig) -> anyhow::Result<ModelAgent> {
        if let Some(names) = &config.tools {
            tools(self.environment).only(names).map_err(|failure| anyhow::anyhow!(failure.message))?;
        }
        let own = std::iter::once(&config.model).chain(&config.fallback);
        let models = own.map(|name| self.model(name)).collect::<anyhow::Result<Vec<Model>>>()?;
        let known =
            self.home.config().models.keys().map(|name| self.model(name)).collect::<anyhow::Result<_>>()?;
        let spending = self.home.config().spending;
        Ok(ModelAgent {
            name: name.to_owned(),
            models,
            known,
            tools: config.tools.clone(),
            system: config.system.clone(),
            limits: Limits { session_micros: spending.session, day_micros: spending.day, ..config.limits },
            user_folders: self.user_folders(),
        })
    }

    fn model(&self, name: &str) -> anyhow::Result<Model> {
        let Some(config) = self.home.config().models.get(name) else { bail!("there is no model {name:?}") };
        Ok(Model {
            context_window: config.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW),
            max_output: config.max_output.and_then(|tokens| u32::try_from(tokens).ok()),
            reasoning: config.reasoning,
            price: config.price,
            ..Model::new(name, config.model.as_str(), Arc::new(connection(self.home.keys(), config)))
        })
    }

    /// The folders with the user's own instructions and skills.
    pub(crate) fn user_folders(&self) -> UserFolders {
        let home = self.environment.user_home.as_ref().map(PathBuf::from);
        let shared = home.as_ref().map(|home| home.join(SHARED_SKILLS));
        UserFolders {
            instructions: Some(self.home.path().join(INSTRUCTIONS_FILE)),
            skills: shared
                .into_iter()
                .chain([self.home.path().join(SKILLS)])
                .chain(self.home.skill_folder().map(PathBuf::from))
                .collect(),
            home,
            state: Some(self.home.path().to_owned()),
        }
    }
}

/// The connection to the provider of a model.
pub(super) fn connection(keys: &Keys, model: &ModelConfig) -> AdvisedConnection {
    let routing = Routing(model.routing.clone());
    let (url, key) = (keys.base_url(model), keys.source(model));
    let connection = Connection::new(model.provider, url, Arc::clone(&key), routing);
    AdvisedConnection::new(connection, model.provider, url, key)
}
