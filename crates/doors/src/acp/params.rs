//! What the program tells the door when a connection begins.

use std::path::PathBuf;

use parlor_vocab::{AgentId, ModelOption, PolicyMode};

/// The parameters of a connection.
#[derive(Clone, Debug)]
pub struct AcpParams {
    /// The folder that `"."` stands for; `None` where the client is not known to share the machine.
    pub folder: Option<PathBuf>,
    /// The models that a user can choose, the default first.
    pub models: Vec<ModelOption>,
    /// The configured agents, the default first.
    pub agents: Vec<AcpAgent>,
    /// The policy's mode of sessions that chose none.
    pub mode: PolicyMode,
    /// The providers that the settings know a login for.
    pub logins: Vec<String>,
    /// The services whose API keys can be stored.
    pub key_services: Vec<String>,
    /// Whether the user can see a browser of this machine.
    pub has_screen: bool,
    /// The folder of attached files; each file is named by its [`MediaId`](parlor_vocab::MediaId).
    pub media_folder: PathBuf,
    /// Whether to send `usage_update`. Clients that are older than this kind of update end when they get one.
    pub sends_usage: bool,
    /// Begins the key of every input of this connection; unique among connections.
    pub key_prefix: String,
}

/// A configured agent.
#[derive(Clone, Debug)]
pub struct AcpAgent {
    /// The configured name.
    pub id: AgentId,
    /// The name that people see.
    pub name: String,
    /// Whether a model answers, so that a reasoning effort can be chosen.
    pub uses_model: bool,
    /// The slash commands that the agent understands.
    pub commands: Vec<SlashCommand>,
}

/// A slash command of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// The name, without the slash.
    pub name: String,
    /// What the command does.
    pub description: String,
    /// What follows the name, if anything.
    pub hint: Option<String>,
}
