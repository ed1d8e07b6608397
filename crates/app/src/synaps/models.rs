//! The models that the parent can choose: the configured agents by their names, and other models by theirs.
//!
//! A parent may ask for any model. [`routes`] says which agent answers with it; an agent without a model refuses the turn.

use parlor_doors::synaps::{AvailableModel, ModelNames, ModelRoute};
use parlor_model::provider::ProviderKind;
use parlor_vocab::AgentId;

use crate::settings::{AgentConfig, AgentKind, Config};

/// The models of a provider by the beginnings of their names, for users with the keys of several providers.
const FAMILIES: [(&str, ProviderKind); 7] = [
    ("claude", ProviderKind::Anthropic),
    ("gpt", ProviderKind::OpenAi),
    ("chatgpt", ProviderKind::OpenAi),
    ("o1", ProviderKind::OpenAi),
    ("o3", ProviderKind::OpenAi),
    ("o4", ProviderKind::OpenAi),
    ("gemini", ProviderKind::Gemini),
];

/// What the names of OpenRouter's models contain: `anthropic/claude-sonnet-5`.
const ROUTED: &str = "/";

/// The agents of `config`, as models.
pub(super) fn available(config: &Config) -> Vec<AvailableModel> {
    let model = |(id, agent): (&String, &AgentConfig)| AvailableModel {
        provider: "parlor".to_owned(),
        id: id.clone(),
        name: agent.name.clone(),
        agent: AgentId::parse(id).ok(),
    };
    config.agents.iter().map(model).collect()
}

/// Which agent answers with which other model. `usable` has the agents that are configured or have a key, `all` also those
/// of providers without one: with these, a turn fails with an error that says which key is missing.
pub(super) fn routes(usable: &Config, all: &Config) -> Vec<ModelRoute> {
    let route = |names: ModelNames, agent: &str| {
        let agent = AgentId::parse(agent).ok()?;
        Some(ModelRoute { names, agent })
    };
    let mut routes = Vec::new();
    // An agent with a model can use all models of the settings.
    if let Some(agent) = model_agent(usable).or_else(|| model_agent(all)) {
        let names = all.models.iter().flat_map(|(name, model)| [name, &model.model]);
        routes.extend(names.filter_map(|name| route(ModelNames::Equal(name.clone()), agent)));
    }
    // The agent that answers by default is asked first: its provider may have models of other families.
    let default_provider = provider_of(usable, &usable.default_agent);
    for (start, provider) in FAMILIES {
        if default_provider != Some(ProviderKind::OpenRouter)
            && let Some(agent) = agent_of(usable, provider)
        {
            routes.extend(route(ModelNames::StartWith(start), agent));
        }
    }
    if let Some(agent) = agent_of(usable, ProviderKind::OpenRouter) {
        routes.extend(route(ModelNames::Contain(ROUTED), agent));
    }
    routes.extend(route(ModelNames::StartWith(""), other_agent(usable)));
    routes
}

/// The agent for models that nothing else is known about. An agent with a script stands in for any model.
fn other_agent(config: &Config) -> &str {
    match config.agents.get(&config.default_agent).map(|agent| &agent.kind) {
        Some(AgentKind::Local { .. }) => model_agent(config).unwrap_or(&config.default_agent),
        Some(AgentKind::Model(_) | AgentKind::Script(_)) | None => &config.default_agent,
    }
}

/// The default agent if it has a model, else the first that has one.
fn model_agent(config: &Config) -> Option<&str> {
    let mut with_model: Vec<&str> =
        config.agents.keys().map(String::as_str).filter(|id| provider_of(config, id).is_some()).collect();
    with_model.sort_by_key(|id| *id != config.default_agent);
    with_model.first().copied()
}

/// The agent whose model is one of `provider`: the default agent, else the first.
fn agent_of(config: &Config, provider: ProviderKind) -> Option<&str> {
    let is_of = |id: &&str| {
        provider_of(config, id).is_some_and(|found| match found {
            ProviderKind::OpenAiResponses => provider == ProviderKind::OpenAi,
            ProviderKind::OpenAi
            | ProviderKind::Anthropic
            | ProviderKind::Gemini
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => provider == found,
        })
    };
    let mut agents: Vec<&str> = config.agents.keys().map(String::as_str).filter(is_of).collect();
    agents.sort_by_key(|id| *id != config.default_agent);
    agents.first().copied()
}

/// The provider of an agent's model. `None` if the agent has no model.
fn provider_of(config: &Config, agent: &str) -> Option<ProviderKind> {
    match &config.agents.get(agent)?.kind {
        AgentKind::Model(model_agent) => Some(config.models.get(&model_agent.model)?.provider),
        AgentKind::Local { .. } | AgentKind::Script(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use parlor_doors::synaps::ChildParams;
    use parlor_vocab::{AgentChoice, NewSession, Seq, SessionId};

    use super::*;

    fn config(settings: &str, keys: &[ProviderKind]) -> Config {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("parlor.toml"), settings).unwrap();
        Config::load(folder.path()).unwrap().with_keys(|provider| keys.contains(&provider))
    }

    /// The agent that answers with the model `name`.
    fn agent_for(usable: &Config, name: &str) -> String {
        let params = ChildParams {
            session: SessionId::parse("s").unwrap(),
            head: Seq::START,
            is_new: true,
            active: None,
            key_prefix: String::new(),
            new_session: NewSession {
                title: None,
                door: String::new(),
                folder: "/".into(),
                choice: AgentChoice::default(),
                system: None,
                forked_from: None,
            },
            default_model: usable.default_agent.clone(),
            models: available(usable),
            routes: routes(usable, &usable.clone().with_all_providers()),
            tools: Vec::new(),
        };
        params.choice(name).agent.unwrap().to_string()
    }

    #[test]
    fn the_provider_with_a_key_answers_with_its_models() {
        let both = config("", &[ProviderKind::Anthropic, ProviderKind::Gemini, ProviderKind::OpenRouter]);
        assert_eq!(agent_for(&both, "claude-new"), "anthropic");
        assert_eq!(agent_for(&both, "gemini-new"), "gemini");
        assert_eq!(agent_for(&both, "some/model"), "openrouter");
        assert_eq!(agent_for(&both, "gpt-new"), "anthropic", "the default agent, whose provider refuses it");
        assert_eq!(agent_for(&both, "gemini"), "gemini", "the name of an agent");
    }

    #[test]
    fn without_any_key_only_models_of_the_settings_have_an_agent_with_a_model() {
        let none = config("", &[]);
        assert_eq!(agent_for(&none, "claude-new"), "local");
        assert_eq!(
            agent_for(&none, "openai"),
            "anthropic",
            "it knows the model, and tells that the key is missing"
        );
        let own = config("[models.mine]\nprovider = \"ollama\"\nmodel = \"m:7b\"", &[]);
        assert_eq!(
            (agent_for(&own, "mine"), agent_for(&own, "m:7b")),
            ("anthropic".into(), "anthropic".into())
        );
    }

    #[test]
    fn configured_agents_come_before_families() {
        let agents = "default_agent = \"local\"\n[models.fast]\nprovider = \"ollama\"\nmodel = \"x\"\n\
                      [agents.main]\nkind = \"model\"\nmodel = \"fast\"\n";
        let configured = config(agents, &[ProviderKind::Anthropic]);
        for name in ["claude-new", "fast", "x", "anything"] {
            assert_eq!(agent_for(&configured, name), "main", "{name}");
        }
    }
}
