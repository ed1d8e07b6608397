//! The slash commands that the agent of a session understands. Editors refuse to send a `/word` that was not advertised.

use agent_client_protocol_schema::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, SessionUpdate, UnstructuredCommandInput,
};
use parlor_vocab::AgentChoice;

use super::options::current_agent;
use super::params::AcpParams;

/// The whole list of commands for a session with this choice.
pub(super) fn commands_update(params: &AcpParams, choice: &AgentChoice) -> SessionUpdate {
    let agent = current_agent(params, choice);
    let commands = agent.iter().flat_map(|agent| &agent.commands).map(|command| {
        let input = command
            .hint
            .as_ref()
            .map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint.clone())));
        AvailableCommand::new(command.name.clone(), command.description.clone()).input(input)
    });
    SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.collect()))
}
