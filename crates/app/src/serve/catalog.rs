//! The agents and models of the settings, as the web server shows them to clients.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parlor_model::provider::ProviderKind;
use parlor_web::{AgentInfo, HasKey, ModelCatalog, ModelInfo};

use crate::environment::Environment;
use crate::home::Home;
use crate::settings::models::REASONING;
use crate::settings::{AgentKind, Config, FILE};

/// The catalog of a state folder with an agent for each provider. An agent that the settings do not name is shown only
/// while parlor has a key for its provider.
pub(super) fn model_catalog(home: &Home, environment: &Environment) -> ModelCatalog {
    let (config, keys) = (home.config(), home.keys().clone());
    let variables = environment.model_keys.clone();
    let providers: HashMap<String, ProviderKind> =
        config.agents.keys().filter_map(|id| Some((id.clone(), provider_of(config, id)?))).collect();
    let agent_has_key = {
        let keys = keys.clone();
        move |id: &str| {
            providers.get(id).is_none_or(|provider| {
                provider.key_variable().is_some_and(|name| variables.contains(&name))
                    || keys.has_credential(*provider)
            })
        }
    };
    let models = Arc::new(config.models.clone());
    let model_has_key = move |name: &str| -> HasKey {
        let (name, models, keys) = (name.to_owned(), Arc::clone(&models), keys.clone());
        Box::pin(async move {
            match models.get(&name) {
                Some(model) => keys.credential(model).await.is_ok(),
                None => false,
            }
        })
    };
    let user_home = environment.user_home.as_ref().map(Path::new);
    ModelCatalog {
        agents: config.agents.keys().filter_map(|id| agent_info(config, id)).collect(),
        models: config
            .models
            .iter()
            .map(|(name, model)| ModelInfo {
                name: name.clone(),
                provider: model.provider.name().to_owned(),
                model: model.model.clone(),
            })
            .collect(),
        reasoning: REASONING.iter().map(|(name, _)| *name).collect(),
        settings_file: shown(&home.path().join(FILE), user_home),
        agent_has_key: Arc::new(agent_has_key),
        model_has_key: Arc::new(model_has_key),
    }
}

fn agent_info(config: &Config, id: &str) -> Option<AgentInfo> {
    let agent = config.agents.get(id)?;
    let (kind, model) = match &agent.kind {
        AgentKind::Local { .. } => ("local", None),
        AgentKind::Script(_) => ("script", None),
        AgentKind::Model(settings) => ("model", Some(settings.model.clone())),
    };
    let is_default = id == config.default_agent;
    let is_preset = !config.has_configured_model_agents() && provider_of(config, id).is_some();
    let (id, name) = (id.to_owned(), agent.name.clone());
    Some(AgentInfo { id, name, kind, model, is_default, needs_key: is_preset && !is_default })
}

/// The provider of the model that an agent asks.
fn provider_of(config: &Config, id: &str) -> Option<ProviderKind> {
    match &config.agents.get(id)?.kind {
        AgentKind::Model(settings) => Some(config.models.get(&settings.model)?.provider),
        AgentKind::Local { .. } | AgentKind::Script(_) => None,
    }
}

/// A path as people write it, with `~` for the home folder of the user.
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
    fn a_path_below_the_home_folder_starts_with_a_tilde() {
        let shown = |path: &str, home: Option<&str>| super::shown(Path::new(path), home.map(Path::new));
        assert_eq!(shown("/home/me/.parlor/parlor.toml", Some("/home/me")), "~/.parlor/parlor.toml");
        assert_eq!(shown("/home/me/.parlor/parlor.toml", Some("/home/me/")), "~/.parlor/parlor.toml");
        assert_eq!(shown("/home/meg/parlor.toml", Some("/home/me")), "/home/meg/parlor.toml");
        assert_eq!(shown("/srv/parlor.toml", None), "/srv/parlor.toml");
        assert_eq!(shown("/srv/parlor.toml", Some("")), "/srv/parlor.toml");
    }
}
