//! The agent and model that the command line asks for.

use parlor_model::provider::ProviderKind;

use crate::home::Home;
use crate::settings::{AgentConfig, AgentKind, Config};

/// The values of `--agent` and `--model`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelRequest {
    pub(super) agent: Option<String>,
    pub(super) model: Option<String>,
}

impl ModelRequest {
    /// Turns a model with the name of an agent into that agent with its own model, and a model `PROVIDER/NAME` into the
    /// model `NAME` of the agent of that provider. Equal `agent` and `model` in the result mean the agent's own model.
    /// `session_agent` is the agent of the session, which answers unless another one is requested.
    pub(super) fn resolve(self, config: &Config, session_agent: Option<&str>) -> Self {
        let Self { agent: None, model: Some(model) } = &self else { return self };
        let agent = session_agent.unwrap_or(&config.default_agent);
        let has_models = provider_of(config, agent).is_some();
        // A name of both an agent and a model means the model, if the present agent has models.
        if config.agents.contains_key(model) && !(has_models && config.models.contains_key(model)) {
            return Self { agent: Some(model.clone()), model: Some(model.clone()) };
        }
        let Some((provider, name)) = model.split_once('/').filter(|_| !config.models.contains_key(model))
        else {
            return self;
        };
        // OpenRouter's own model names have the form `VENDOR/NAME`.
        let is_openrouter_name = provider_of(config, agent) == Some(ProviderKind::OpenRouter)
            && provider != ProviderKind::OpenRouter.name();
        let has_own_agent = provider_of(config, provider).is_some_and(|kind| kind.name() == provider);
        if is_openrouter_name || !has_own_agent || name.is_empty() {
            return self;
        }
        Self { agent: Some(provider.to_owned()), model: Some(name.to_owned()) }
    }
}

/// Why `agent` cannot use `model`, and what the user should do.
pub(super) async fn why_unavailable(home: &Home, agent: &AgentConfig, model: &str) -> String {
    let config = home.config();
    let provider = model.split_once('/').map_or(model, |(provider, _)| provider);
    let known = config.models.get(model).or_else(|| config.models.get(provider));
    let why = match known {
        Some(known) => home.keys().credential(known).await.err(),
        None => None,
    };
    match why {
        Some(why) => format!("{model} cannot be used: {why}"),
        None => format!("the agent {:?} has no model; parlor doctor says how to set one up", agent.name),
    }
}

/// The provider of an agent's model.
fn provider_of(config: &Config, agent: &str) -> Option<ProviderKind> {
    match &config.agents.get(agent)?.kind {
        AgentKind::Model(model_agent) => config.models.get(&model_agent.model).map(|model| model.provider),
        AgentKind::Local { .. } | AgentKind::Script(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(model: &str, config: &Config) -> (Option<String>, Option<String>) {
        let request = ModelRequest { agent: None, model: Some(model.to_owned()) }.resolve(config, None);
        (request.agent, request.model)
    }

    fn both(agent: &str, model: &str) -> (Option<String>, Option<String>) {
        (Some(agent.to_owned()), Some(model.to_owned()))
    }

    #[test]
    fn a_provider_prefix_selects_the_agent_of_that_provider() {
        let config = Config::default().with_keys(|provider| provider != ProviderKind::OpenRouter);
        assert_eq!(resolve("openai/some-model", &config), both("openai", "some-model"));
        assert_eq!(resolve("openai/a/b", &config), both("openai", "a/b"));
        for other in ["openai", "meta/some-model", "openrouter/a/b", "openai/"] {
            assert_eq!(resolve(other, &config), (None, Some(other.to_owned())), "{other}");
        }
    }

    #[test]
    fn the_name_of_an_agent_selects_it_unless_a_model_has_that_name() {
        let config = Config::default().with_keys(|provider| provider == ProviderKind::OpenAi);
        assert_eq!(resolve("local", &config), both("local", "local"));
        assert_eq!(resolve("openai", &config), (None, Some("openai".to_owned())), "also a model");
        let mut config = config;
        config.default_agent = "local".to_owned();
        assert_eq!(resolve("openai", &config), both("openai", "openai"), "the default agent has no models");
    }

    #[test]
    fn openrouter_gets_its_own_names_unchanged() {
        let config = Config::default().with_keys(|provider| provider == ProviderKind::OpenRouter);
        let routed = "openai/some-model";
        assert_eq!(resolve(routed, &config), (None, Some(routed.to_owned())));
        assert_eq!(resolve("openrouter/a/b", &config), both("openrouter", "a/b"));
    }
}
