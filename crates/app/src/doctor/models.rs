//! Whether there is a model to talk to, and how to get one.

use std::path::Path;

use parlor_model::provider::redacted_url;

use super::Finding;
use crate::environment::Environment;
use crate::home::Home;
use crate::models::{ModelCredential, name_of};
use crate::settings::models::{BUILT_IN, is_address};
use crate::settings::{AgentKind, FILE};

const CHECK: &str = "model";

/// Where servers of one's own mostly are.
const LOCAL_SERVER: &str = "http://127.0.0.1:8080/v1";

/// Looks at the agent that answers where nobody is asked for, and at the variable that moves models elsewhere.
pub(super) fn look(home: &Path, environment: &Environment) -> Vec<Finding> {
    let is_wrong = environment.openai_base_url.as_deref().is_some_and(|url| !is_address(url));
    let mut findings: Vec<Finding> = is_wrong.then(moved_nowhere).into_iter().collect();
    findings.extend(agent(home, environment));
    findings
}

/// None if it is where the variable says, and that is nowhere.
fn agent(home: &Path, environment: &Environment) -> Option<Finding> {
    // What is wrong with the settings is said elsewhere.
    let home = Home::at(environment, home.to_owned()).ok()?;
    let config = home.config();
    let minds = config.agents.iter().filter_map(|(id, agent)| match &agent.kind {
        AgentKind::Model(mind) => Some((id, mind)),
        AgentKind::Local | AgentKind::Script(_) => None,
    });
    let mut minds: Vec<_> = minds.collect();
    minds.sort_by_key(|(id, _)| **id != config.default_agent);
    let Some((id, mind)) = minds.first() else { return Some(none()) };
    let model = config.models.get(&mind.model)?;
    if home.keys().base_url(model).is_some_and(|url| !is_address(url)) {
        return None;
    }
    let place =
        home.keys().base_url(model).map_or_else(String::new, |url| format!(" at {}", redacted_url(url)));
    let said =
        format!("agent {id} asks {} ({} of {}{place})", mind.model, model.model, model.provider.name());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    Some(match runtime.block_on(home.keys().credential(model)) {
        Ok(ModelCredential::Variable(name)) => Finding::ok(CHECK, format!("{said}; {name} set")),
        Ok(ModelCredential::Kept(name)) => Finding::ok(CHECK, format!("{said}, with the key of {name} that is kept")),
        Ok(ModelCredential::Login(name)) => Finding::ok(CHECK, format!("{said}, with the login to {name}")),
        Ok(ModelCredential::None) => Finding::ok(CHECK, format!("{said}, without a key")),
        Err(error) => Finding::warning(
            CHECK,
            format!("{said}: {error}"),
            "parlor models lists all, with what is missing",
        ),
    })
}

fn moved_nowhere() -> Finding {
    Finding::warning(
        CHECK,
        "OPENAI_BASE_URL is no address",
        format!("export OPENAI_BASE_URL={LOCAL_SERVER}, or unset it"),
    )
}

/// How to get a model, in so few and short lines that all findings fit on one screen.
fn none() -> Finding {
    let names = BUILT_IN.map(|(provider, _)| name_of(provider)).join("|");
    let variable = BUILT_IN.iter().find_map(|(provider, _)| provider.key_variable()).unwrap_or_default();
    let fix = format!(
        "any of these (docs/models.md, docs/auth.md):\n    \
         a key:           parlor login {names} --key\n                     \
         or export {variable}, and so on for the others\n    \
         a local server:  export OPENAI_BASE_URL={LOCAL_SERVER}\n                     \
         and parlor chat --model openai/NAME (Ollama: port 11434)\n    \
         a login:         [auth.NAME] in {FILE}, then parlor login NAME"
    );
    Finding::warning(CHECK, "none; the local agent answers, and does only as told", fix)
}
