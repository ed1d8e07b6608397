//! Which agent and model somebody asks for.

use parlor_model::provider::ProviderKind;

use crate::home::Home;
use crate::settings::{AgentConfig, AgentKind, Config};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlashCommand {
    pub(super) agent: Option<String>,
    pub(super) model: Option<String>,
}

impl SlashCommand {
    /// The same, where `PROVIDER/NAME` is the model NAME of the agent of that provider. `chosen` answers if nobody else
    /// is asked for.
    pub(super) fn sorted(self, config: &Config, chosen: Option<&str>) -> Self {
        let Self { agent: None, model: Some(model) } = &self else { return self };
        let answers = chosen.unwrap_or(&config.default_agent);
        let Some((provider, name)) = model.split_once('/').filter(|_| !config.models.contains_key(model))
        else {
            return self;
        };
        // There, all names have the name of somebody else before them.
        let is_router = provider_of(config, answers) == Some(ProviderKind::OpenRouter)
            && provider != ProviderKind::OpenRouter.name();
        let is_provider = provider_of(config, provider).is_some_and(|kind| kind.name() == provider);
        if is_router || !is_provider || name.is_empty() {
            return self;
        }
        Self { agent: Some(provider.to_owned()), model: Some(name.to_owned()) }
    }
}

/// Why `agent` cannot let `model` answer, and what to do.
pub(super) async fn missing(home: &Home, agent: &AgentConfig, model: &str) -> String {
    let config = home.config();
    let provider = model.split_once('/').map_or(model, |(provider, _)| provider);
    let known = config.models.get(model).or_else(|| config.models.get(provider));
    let why = match known {
        Some(known) => home.keys().pass(known).await.err(),
        None => None,
    };
    match why {
        Some(why) => format!("{model} cannot be asked: {why}"),
        None => format!("{:?} is no agent with a model; parlor doctor says how to get one", agent.name),
    }
}

/// Who runs the model of an agent.
fn provider_of(config: &Config, agent: &str) -> Option<ProviderKind> {
    match &config.agents.get(agent)?.kind {
        AgentKind::Model(mind) => config.models.get(&mind.model).map(|model| model.provider),
        AgentKind::Local | AgentKind::Script(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(model: &str, config: &Config) -> (Option<String>, Option<String>) {
        let wish = SlashCommand { agent: None, model: Some(model.to_owned()) }.sorted(config, None);
        (wish.agent, wish.model)
    }

    fn asked(agent: &str, model: &str) -> (Option<String>, Option<String>) {
        (Some(agent.to_owned()), Some(model.to_owned()))
    }

    #[test]
    fn a_provider_before_a_name_is_the_agent_that_has_it() {
        let config = Config::default().with_keys(|provider| provider != ProviderKind::OpenRouter);
        assert_eq!(sorted("openai/some-model", &config), asked("openai", "some-model"));
        assert_eq!(sorted("openai/a/b", &config), asked("openai", "a/b"));
        for other in ["openai", "meta/some-model", "openrouter/a/b", "openai/"] {
            assert_eq!(sorted(other, &config), (None, Some(other.to_owned())), "{other}");
        }
    }

    #[test]
    fn a_router_is_asked_for_what_it_calls_so() {
        let config = Config::default().with_keys(|provider| provider == ProviderKind::OpenRouter);
        let routed = "openai/some-model";
        assert_eq!(sorted(routed, &config), (None, Some(routed.to_owned())));
        assert_eq!(sorted("openrouter/a/b", &config), asked("openrouter", "a/b"));
    }
}
