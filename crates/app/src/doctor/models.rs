//! Checks whether an agent has a model that can be used, and says how to set one up.

use std::path::Path;

use parlor_model::provider::redacted_url;

use super::Finding;
use crate::environment::Environment;
use crate::home::Home;
use crate::models::{ModelCredential, provider_credential_name};
use crate::settings::models::{BUILT_IN, is_http_address};
use crate::settings::{AgentKind, FILE};

const CHECK: &str = "model";

/// The address of a local model server in examples.
const LOCAL_SERVER: &str = "http://127.0.0.1:8080/v1";

/// Checks the default agent's model and `OPENAI_BASE_URL`.
pub(super) fn check(home: &Path, environment: &Environment) -> Vec<Finding> {
    let is_invalid = environment.openai_base_url.as_deref().is_some_and(|url| !is_http_address(url));
    let mut findings: Vec<Finding> = is_invalid.then(invalid_base_url).into_iter().collect();
    findings.extend(check_agent(home, environment));
    findings
}

/// `None` if the settings are invalid or `OPENAI_BASE_URL` is: other checks report that.
fn check_agent(home: &Path, environment: &Environment) -> Option<Finding> {
    let home = Home::at(environment, home.to_owned()).ok()?;
    let config = home.config();
    let model_agents = config.agents.iter().filter_map(|(id, agent)| match &agent.kind {
        AgentKind::Model(model_agent) => Some((id, model_agent)),
        AgentKind::Local { .. } | AgentKind::Script(_) => None,
    });
    let mut model_agents: Vec<_> = model_agents.collect();
    model_agents.sort_by_key(|(id, _)| **id != config.default_agent);
    let Some((id, model_agent)) = model_agents.first() else { return Some(no_model()) };
    let model = config.models.get(&model_agent.model)?;
    if home.keys().base_url(model).is_some_and(|url| !is_http_address(url)) {
        return None;
    }
    let address =
        home.keys().base_url(model).map_or_else(String::new, |url| format!(" at {}", redacted_url(url)));
    let text = format!(
        "agent {id} uses {} ({} of {}{address})",
        model_agent.model,
        model.model,
        model.provider.name()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    Some(match runtime.block_on(home.keys().credential(model)) {
        Ok(ModelCredential::Variable(name)) => Finding::ok(CHECK, format!("{text}; {name} set")),
        Ok(ModelCredential::StoredKey(name)) => {
            Finding::ok(CHECK, format!("{text}, with the stored key of {name}"))
        }
        Ok(ModelCredential::Login(name)) => Finding::ok(CHECK, format!("{text}, with the login to {name}")),
        Ok(ModelCredential::None) => Finding::ok(CHECK, format!("{text}, without a key")),
        Err(error) => Finding::warning(
            CHECK,
            format!("{text}: {error}"),
            "parlor models lists all models, with what is missing for each",
        ),
    })
}

fn invalid_base_url() -> Finding {
    Finding::warning(
        CHECK,
        "OPENAI_BASE_URL is not an address",
        format!("export OPENAI_BASE_URL={LOCAL_SERVER}, or unset it"),
    )
}

/// How to set up a model, in a few short lines, so that all findings fit on one screen.
fn no_model() -> Finding {
    let names = BUILT_IN.map(|(provider, _)| provider_credential_name(provider)).join("|");
    let variable = BUILT_IN.iter().find_map(|(provider, _)| provider.key_variable()).unwrap_or_default();
    let fix = format!(
        "any of these (docs/models.md, docs/auth.md):\n    \
         a key:           parlor login {names} --key\n                     \
         or export {variable}, and so on for the others\n    \
         a local server:  export OPENAI_BASE_URL={LOCAL_SERVER}\n                     \
         and parlor chat --model openai/NAME (Ollama: port 11434)\n    \
         a login:         [auth.NAME] in {FILE}, then parlor login NAME"
    );
    Finding::warning(CHECK, "none; the built-in agent answers, and only runs the commands that you type", fix)
}
