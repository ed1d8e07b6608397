//! The agents and models that are configured and can be asked, as the page offers them.

use std::path::Path;

use async_trait::async_trait;
use parlor_model::provider::ProviderKind;
use parlor_web::{AgentInfo, ModelInfo, ModelMenu};

use crate::environment::Environment;
use crate::home::Home;
use crate::models::Keys;
use crate::settings::models::REASONING;
use crate::settings::{AgentKind, Config, FILE};

/// What is configured, and the keys that open it.
pub(super) struct ModelMenuSource {
    config: Config,
    keys: Keys,
    /// The variables with keys that are set.
    variables: Vec<&'static str>,
    settings_file: String,
}

impl ModelMenuSource {
    /// Of a state folder that has agents for all providers: who has a key now is told of, the others wait for one.
    pub(super) fn new(home: &Home, environment: &Environment) -> Self {
        let user_home = environment.user_home.as_ref().map(Path::new);
        Self {
            config: home.config().clone(),
            keys: home.keys().clone(),
            variables: environment.model_keys.clone(),
            settings_file: shown(&home.path().join(FILE), user_home),
        }
    }

    /// The ids of agents that are there for whoever has a key, and have none.
    async fn waiting(&self) -> Vec<String> {
        if self.config.are_minds_given() {
            return Vec::new();
        }
        let minds = self.config.agents.iter().filter_map(|(id, agent)| match &agent.kind {
            AgentKind::Model(mind) => Some((id.clone(), self.config.models.get(&mind.model)?.provider)),
            AgentKind::Local | AgentKind::Script(_) => None,
        });
        let (keys, variables) = (self.keys.clone(), self.variables.clone());
        let is_set = move |provider: ProviderKind| {
            provider.key_variable().is_some_and(|name| variables.contains(&name)) || keys.has(provider)
        };
        let mut minds: Vec<_> = minds.collect();
        let kept = tokio::task::spawn_blocking(move || {
            minds.retain(|(_, provider)| !is_set(*provider));
            minds.into_iter().map(|(id, _)| id).collect()
        });
        // The program is ending otherwise.
        kept.await.unwrap_or_default()
    }
}

#[async_trait]
impl ModelMenu for ModelMenuSource {
    async fn agents(&self) -> Vec<AgentInfo> {
        let waiting = self.waiting().await;
        let is_default = |id: &str| id == self.config.default_agent;
        let there = self.config.agents.iter().filter(|(id, _)| is_default(id) || !waiting.contains(id));
        let line = |(id, agent): (&String, &crate::settings::AgentConfig)| {
            let (kind, model) = match &agent.kind {
                AgentKind::Local => ("local", None),
                AgentKind::Script(_) => ("script", None),
                AgentKind::Model(mind) => ("model", Some(mind.model.clone())),
            };
            AgentInfo { id: id.clone(), name: agent.name.clone(), kind, model, is_default: is_default(id) }
        };
        there.map(line).collect()
    }

    async fn models(&self) -> Vec<ModelInfo> {
        let mut models = Vec::new();
        for (name, model) in &self.config.models {
            if self.keys.pass(model).await.is_ok() {
                models.push(ModelInfo {
                    name: name.clone(),
                    provider: model.provider.name().to_owned(),
                    model: model.model.clone(),
                });
            }
        }
        models
    }

    fn reasoning(&self) -> Vec<&'static str> {
        REASONING.iter().map(|(name, _)| *name).collect()
    }

    fn settings_file(&self) -> &str {
        &self.settings_file
    }
}

/// A path as people write it: with `~` for the user's own folder.
fn shown(path: &Path, user_home: Option<&Path>) -> String {
    match user_home.filter(|home| home.is_absolute()).and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) => Path::new("~").join(rest).display().to_string(),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_people_write_it() {
        let shown = |path: &str, home: Option<&str>| super::shown(Path::new(path), home.map(Path::new));
        assert_eq!(shown("/home/me/.parlor/parlor.toml", Some("/home/me")), "~/.parlor/parlor.toml");
        assert_eq!(shown("/home/me/.parlor/parlor.toml", Some("/home/me/")), "~/.parlor/parlor.toml");
        assert_eq!(shown("/home/meg/parlor.toml", Some("/home/me")), "/home/meg/parlor.toml");
        assert_eq!(shown("/srv/parlor.toml", None), "/srv/parlor.toml");
        assert_eq!(shown("/srv/parlor.toml", Some("")), "/srv/parlor.toml");
    }
}
