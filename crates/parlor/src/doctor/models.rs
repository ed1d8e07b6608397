//! Whether there is a model to talk to, and how to get one.

use std::path::Path;

use super::Finding;
use crate::environment::Environment;
use crate::home::Home;
use crate::models::{Pass, name_of};
use crate::settings::models::BUILT_IN;
use crate::settings::{AgentKind, FILE};

const CHECK: &str = "model";

/// Looks at the agent that answers where nobody is asked for.
pub(super) fn look(home: &Path, environment: &Environment) -> Option<Finding> {
    // What is wrong with the settings is said elsewhere.
    let home = Home::at(environment, home.to_owned()).ok()?;
    let config = home.config();
    let minds = config.agents.iter().filter_map(|(id, agent)| match &agent.kind {
        AgentKind::Model(mind) => Some((id, mind)),
        AgentKind::Local | AgentKind::Script(_) => None,
    });
    let mut minds: Vec<_> = minds.collect();
    minds.sort_by_key(|(id, _)| **id != config.default_agent);
    let Some((id, mind)) = minds.first() else { return Some(none(home.path())) };
    let model = config.models.get(&mind.model)?;
    let place = home.keys().base_url(model).map_or_else(String::new, |url| format!(" at {url}"));
    let said =
        format!("agent {id} asks {} ({} of {}{place})", mind.model, model.model, model.provider.name());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    Some(match runtime.block_on(home.keys().pass(model)) {
        Ok(Pass::Variable(name)) => Finding::ok(CHECK, format!("{said}; {name} set")),
        Ok(Pass::Kept(name)) => Finding::ok(CHECK, format!("{said}, with the key of {name} that is kept")),
        Ok(Pass::Login(name)) => Finding::ok(CHECK, format!("{said}, with the login to {name}")),
        Ok(Pass::None) => Finding::ok(CHECK, format!("{said}, without a key")),
        Err(error) => Finding::warning(
            CHECK,
            format!("{said}: {error}"),
            "parlor models lists all, with what is missing",
        ),
    })
}

fn none(home: &Path) -> Finding {
    let variables: Vec<&str> =
        BUILT_IN.into_iter().filter_map(|(provider, _)| provider.key_variable()).collect();
    let names = BUILT_IN.map(|(provider, _)| name_of(provider));
    let file = home.join(FILE);
    let fix = format!(
        "one of these, then parlor models shows it:\n    \
         a key:           parlor login {} --key, or export {} (docs/models.md)\n    \
         a login:         describe it as [auth.NAME] in {}, then parlor login NAME (docs/auth.md)\n    \
         a local server:  put this into {}\n                     \
         [models.mine]\n                     \
         provider = \"ollama\"          # or \"openai\" with base_url = \"http://127.0.0.1:8080/v1\"\n                     \
         model = \"qwen3-coder\"\n                     \
         [agents.main]\n                     \
         kind = \"model\"\n                     \
         model = \"mine\"",
        names.join("|"),
        variables.join(" or "),
        file.display(),
        file.display(),
    );
    Finding::warning(CHECK, "none; the local agent answers, which does only what it is told", fix)
}
