//! The ACP door with sessions in memory. Logins are not configured.

use std::sync::Arc;

use parlor_doors::acp::{AcpAgent, AcpMachine, AcpParams, SlashCommand};
use parlor_engine::OnDisconnect;
use parlor_frontend::FrontendBackend;
use parlor_model::LocalAgent;
use parlor_testkit::Case;
use parlor_vocab::PolicyMode;

use super::SessionsInMemory;
use super::loaf::MemoryAccounts;

/// Returns the machine and the backend of a connection with the settings of `case`.
pub(crate) fn connection(
    case: &Case,
) -> Result<impl Future<Output = (AcpMachine, FrontendBackend)> + use<>, String> {
    let sessions = SessionsInMemory::for_case(case)?;
    let mut accounts = MemoryAccounts::new(&sessions, case);
    for model in &mut accounts.models {
        // As in the program's own list: the name of an agent stands for its model.
        model.choice.model = Some(model.id.clone());
    }
    let agents = accounts.models.iter().filter_map(|model| {
        let is_local = model.id == "local";
        Some(AcpAgent {
            id: model.choice.agent.clone()?,
            name: model.label.clone(),
            uses_model: false,
            commands: if is_local { LocalAgent::commands().map(command).collect() } else { Vec::new() },
        })
    });
    let params = AcpParams {
        folder: Some(case.tmp.clone()),
        models: accounts.models.clone(),
        agents: agents.collect(),
        mode: PolicyMode::default(),
        logins: Vec::new(),
        key_services: Vec::new(),
        has_screen: false,
        media_folder: case.home.join("media"),
        sends_usage: true,
        key_prefix: "memory".to_owned(),
    };
    // The backend needs a runtime.
    Ok(async move {
        let backend = FrontendBackend::new(sessions.sessions, Arc::new(accounts), OnDisconnect::Stop);
        (AcpMachine::new(params), backend)
    })
}

fn command((usage, description): (&str, &str)) -> SlashCommand {
    let (name, hint) = usage.split_once(' ').unwrap_or((usage, ""));
    let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
    SlashCommand { name: name.replace('/', ""), description: description.to_owned(), hint }
}
