//! Turns the configured agents and models into the list of models that the loaf door offers.
//!
//! Clients of the door know a fixed set of providers. Models of OpenRouter are listed as `openrouter`; everything else is
//! listed as `openai`, with the name of the real provider for display.

use std::collections::HashSet;

use parlor_model::provider::ProviderKind;
use parlor_vocab::{AgentChoice, AgentId, ModelOption};

use crate::models::ServerList;
use crate::settings::models::ModelConfig;
use crate::settings::{AgentConfig, AgentKind, Config};

/// The provider under which everything is listed that does not run at OpenRouter.
const DEFAULT_PROVIDER: &str = "openai";

/// The provider under which models of OpenRouter are listed.
const OPENROUTER: &str = "openrouter";

/// The list: the default agent, the other agents, then the models. A model, and an agent that exists only because a
/// key may come, is left out unless `is_usable` accepts its model.
pub(super) fn models(config: &Config, is_usable: impl Fn(&str) -> bool) -> Vec<ModelOption> {
    let mut agents: Vec<(&String, &AgentConfig)> = config.agents.iter().collect();
    agents.sort_by_key(|(id, _)| **id != config.default_agent);
    let is_listed = |agent: &AgentConfig| match &agent.kind {
        AgentKind::Model(model_agent) => {
            config.has_configured_model_agents() || is_usable(&model_agent.model)
        }
        AgentKind::Local { .. } | AgentKind::Script(_) => true,
    };
    let listed = agents.iter().filter(|(_, agent)| is_listed(agent));
    let mut options: Vec<ModelOption> =
        listed.filter_map(|(id, agent)| agent_option(config, id, agent)).collect();
    let first_model_agent = agents.iter().find(|(_, agent)| matches!(agent.kind, AgentKind::Model(_)));
    let model_agent = first_model_agent.and_then(|(id, _)| AgentId::parse(id).ok());
    if model_agent.is_some() {
        for (name, model) in config.models.iter().filter(|(name, _)| is_usable(name)) {
            let choice =
                AgentChoice { agent: model_agent.clone(), model: Some(name.clone()), reasoning: None };
            let option = model_option(name, model, choice);
            let is_duplicate =
                options.iter().any(|known| known.id == option.id && known.provider == option.provider);
            if !is_duplicate {
                options.push(option);
            }
        }
    }
    options
}

/// Adds the models that the servers list, by their providers' names. `server_of` returns the [`ServerList::server`] of a
/// model.
pub(super) fn add_listed(
    options: &mut Vec<ModelOption>,
    config: &Config,
    lists: &[ServerList],
    server_of: impl Fn(&ModelConfig) -> String,
) {
    let mut agents: Vec<(AgentId, &str, &ModelConfig)> = config
        .agents
        .iter()
        .filter_map(|(id, agent)| match &agent.kind {
            AgentKind::Model(settings) => {
                let model = config.models.get(&settings.model)?;
                Some((AgentId::parse(id).ok()?, id.as_str(), model))
            }
            AgentKind::Local { .. } | AgentKind::Script(_) => None,
        })
        .collect();
    agents.sort_by_key(|(_, id, _)| *id != config.default_agent);
    let Some((first_agent, ..)) = agents.first() else { return };
    let mut listed: HashSet<(String, String)> =
        options.iter().map(|option| (option.provider.clone(), option.id.clone())).collect();
    for list in lists {
        let is_here = |model: &ModelConfig| server_of(model) == list.server;
        let own_agent = agents.iter().find(|(_, _, model)| is_here(model)).map(|(agent, ..)| agent);
        let here: Vec<_> = config.models.iter().filter(|(_, model)| is_here(model)).collect();
        for id in &list.ids {
            let configured = here.iter().find(|(_, model)| model.model == *id);
            let (agent, model) = match (configured, own_agent) {
                // The configured model has a price.
                (Some((name, _)), _) => (first_agent, (*name).clone()),
                (None, Some(agent)) => (agent, id.clone()),
                (None, None) => (first_agent, format!("{id}@{}", list.model)),
            };
            let choice = AgentChoice { agent: Some(agent.clone()), model: Some(model), reasoning: None };
            let option = ModelOption {
                context_window: None,
                ..model_option(id, &ModelConfig::new(list.provider, id), choice)
            };
            if listed.insert((option.provider.clone(), option.id.clone())) {
                options.push(option);
            }
        }
    }
}

fn agent_option(config: &Config, id: &str, agent: &AgentConfig) -> Option<ModelOption> {
    // The name of the agent stands for its own model: without one, the model of an earlier choice would stay.
    let choice =
        AgentChoice { agent: Some(AgentId::parse(id).ok()?), model: Some(id.to_owned()), reasoning: None };
    let description = match &agent.kind {
        AgentKind::Local { .. } => {
            "the built-in agent, which needs no model and no key: /help says what it can do"
        }
        AgentKind::Script(_) => "an agent that performs a script",
        AgentKind::Model(model_agent) => {
            let model = config.models.get(&model_agent.model)?;
            let option = model_option(id, model, choice);
            return Some(ModelOption { label: agent.name.clone(), ..option });
        }
    };
    Some(ModelOption {
        id: id.to_owned(),
        provider: DEFAULT_PROVIDER.to_owned(),
        provider_label: Some("parlor".to_owned()),
        label: agent.name.clone(),
        description: description.to_owned(),
        context_window: None,
        choice,
    })
}

fn model_option(id: &str, model: &ModelConfig, choice: AgentChoice) -> ModelOption {
    let is_routed = model.provider == ProviderKind::OpenRouter;
    ModelOption {
        id: id.to_owned(),
        provider: if is_routed { OPENROUTER } else { DEFAULT_PROVIDER }.to_owned(),
        provider_label: (!is_routed).then(|| model.provider.name().to_owned()),
        label: id.to_owned(),
        description: format!("{} by {}", model.model, model.provider.name()),
        context_window: Some(model.context_window.unwrap_or(parlor_model::DEFAULT_CONTEXT_WINDOW)),
        choice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_come_before_models_and_openrouter_models_keep_their_provider() {
        let text = r#"
default_agent = "main"
[models.fast]
provider = "anthropic"
model = "some-model"
[models.routed]
provider = "openrouter"
model = "a/b"
context_window = 9000
[agents.main]
kind = "model"
name = "Main"
model = "fast"
"#;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("parlor.toml"), text).unwrap();
        let config = Config::load(folder.path()).unwrap();
        let options = models(&config, |name| ["fast", "routed"].contains(&name));
        let listed: Vec<(&str, &str, Option<&str>, Option<&str>)> = options
            .iter()
            .map(|option| {
                let model = option.choice.model.as_deref();
                (option.id.as_str(), option.provider.as_str(), option.provider_label.as_deref(), model)
            })
            .collect();
        assert_eq!(
            listed,
            [
                ("main", "openai", Some("anthropic"), Some("main")),
                ("local", "openai", Some("parlor"), Some("local")),
                ("fast", "openai", Some("anthropic"), Some("fast")),
                ("routed", "openrouter", None, Some("routed")),
            ]
        );
        assert_eq!(options[3].context_window, Some(9000));
    }
}
