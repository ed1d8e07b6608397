//! The agents and models that are configured, as the page offers them.

use parlor_host::web::{AgentLine, Choices, ModelLine};

use crate::home::Home;
use crate::settings::AgentKind;
use crate::settings::models::REASONING;

/// What there is to choose from. Of the models only those that can be asked: some are there for whoever has a key.
pub(super) async fn choices(home: &Home) -> Choices {
    let config = home.config();
    let agents = config.agents.iter().map(|(id, agent)| {
        let (kind, model) = match &agent.kind {
            AgentKind::Local => ("local", None),
            AgentKind::Script(_) => ("script", None),
            AgentKind::Model(mind) => ("model", Some(mind.model.clone())),
        };
        AgentLine {
            id: id.clone(),
            name: agent.name.clone(),
            kind,
            model,
            is_default: *id == config.default_agent,
        }
    });
    let mut models = Vec::new();
    for (name, model) in &config.models {
        if home.keys().pass(model).await.is_ok() {
            models.push(ModelLine {
                name: name.clone(),
                provider: model.provider.name().to_owned(),
                model: model.model.clone(),
            });
        }
    }
    Choices { agents: agents.collect(), models, reasoning: REASONING.iter().map(|(name, _)| *name).collect() }
}
