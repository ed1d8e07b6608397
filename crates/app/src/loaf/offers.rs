//! The agents and models that are configured, as the models that this door offers.
//!
//! Clients know three providers. What OpenRouter runs is offered as its; everything else stands in the
//! first group, under the name of who really runs it.

use parlor_model::provider::ProviderKind;
use parlor_vocab::{AgentChoice, AgentId, ModelOption};

use crate::settings::models::ModelConfig;
use crate::settings::{AgentConfig, AgentKind, Config};

/// Where agents stand that are no model's.
const GROUP: &str = "openai";

/// The group of a router.
const ROUTER: &str = "openrouter";

/// What is offered, with the agent that answers by default first. Of the models, and of the agents that are there
/// for whoever has a key, only those whose model is usable.
pub(super) fn models(config: &Config, is_usable: impl Fn(&str) -> bool) -> Vec<ModelOption> {
    let mut agents: Vec<(&String, &AgentConfig)> = config.agents.iter().collect();
    agents.sort_by_key(|(id, _)| **id != config.default_agent);
    let is_offered = |agent: &AgentConfig| match &agent.kind {
        AgentKind::Model(mind) => config.are_minds_given() || is_usable(&mind.model),
        AgentKind::Local | AgentKind::Script(_) => true,
    };
    let offered = agents.iter().filter(|(_, agent)| is_offered(agent));
    let mut offers: Vec<ModelOption> =
        offered.filter_map(|(id, agent)| of_agent(config, id, agent)).collect();
    let with_model = agents.iter().find(|(_, agent)| matches!(agent.kind, AgentKind::Model(_)));
    let mind = with_model.and_then(|(id, _)| AgentId::parse(id).ok());
    if mind.is_some() {
        for (name, model) in config.models.iter().filter(|(name, _)| is_usable(name)) {
            let choice = AgentChoice { agent: mind.clone(), model: Some(name.clone()), reasoning: None };
            let offer = of_model(name, model, choice);
            let is_there =
                offers.iter().any(|known| known.id == offer.id && known.provider == offer.provider);
            if !is_there {
                offers.push(offer);
            }
        }
    }
    offers
}

fn of_agent(config: &Config, id: &str, agent: &AgentConfig) -> Option<ModelOption> {
    let choice = AgentChoice { agent: Some(AgentId::parse(id).ok()?), ..AgentChoice::default() };
    let description = match &agent.kind {
        AgentKind::Local => "the built-in agent, which needs no model and no key: /help says what it can do",
        AgentKind::Script(_) => "an agent that performs a script",
        AgentKind::Model(mind) => {
            let model = config.models.get(&mind.model)?;
            let offer = of_model(id, model, choice);
            return Some(ModelOption { label: agent.name.clone(), ..offer });
        }
    };
    Some(ModelOption {
        id: id.to_owned(),
        provider: GROUP.to_owned(),
        shown_provider: Some("parlor".to_owned()),
        label: agent.name.clone(),
        description: description.to_owned(),
        window: None,
        choice,
    })
}

fn of_model(id: &str, model: &ModelConfig, choice: AgentChoice) -> ModelOption {
    let is_routed = model.provider == ProviderKind::OpenRouter;
    ModelOption {
        id: id.to_owned(),
        provider: if is_routed { ROUTER } else { GROUP }.to_owned(),
        shown_provider: (!is_routed).then(|| model.provider.name().to_owned()),
        label: id.to_owned(),
        description: format!("{} by {}", model.model, model.provider.name()),
        window: Some(model.context_window.unwrap_or(parlor_model::DEFAULT_CONTEXT_WINDOW)),
        choice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_come_first_and_models_stand_with_whoever_runs_them() {
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
        let offers = models(&config, |name| ["fast", "routed"].contains(&name));
        let told: Vec<(&str, &str, Option<&str>, Option<&str>)> = offers
            .iter()
            .map(|offer| {
                let model = offer.choice.model.as_deref();
                (offer.id.as_str(), offer.provider.as_str(), offer.shown_provider.as_deref(), model)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("main", "openai", Some("anthropic"), None),
                ("local", "openai", Some("parlor"), None),
                ("fast", "openai", Some("anthropic"), Some("fast")),
                ("routed", "openrouter", None, Some("routed")),
            ]
        );
        assert_eq!(offers[3].window, Some(9000));
    }
}
