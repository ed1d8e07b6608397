//! The MCP door with sessions in memory.

use std::sync::Arc;

use parlor_doors::mcp::{McpMachine, McpParams, McpTools, McpTransport};
use parlor_engine::policy::PolicySettings;
use parlor_engine::{ClientPolicy, OnDisconnect};
use parlor_frontend::{ClientTools, ToolClientBackend};
use parlor_testkit::Case;
use parlor_tools::{Policy, ShellTool, ToolContext, Toolbox};

use super::SessionsInMemory;

/// Returns the machine and the backend of a connection with the settings of `case`.
pub(crate) fn connection(
    case: &Case,
) -> Result<impl Future<Output = (McpMachine, ToolClientBackend)> + use<>, String> {
    let sessions = SessionsInMemory::for_case(case)?;
    let context = ToolContext::new(case.tmp.clone()).map_err(|failure| failure.message)?;
    let env = Arc::new([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    let tools = Toolbox::standard(ShellTool::default());
    let files = Policy::new([&case.tmp]).map_err(|failure| failure.message)?;
    let policy = ClientPolicy::of_rules(PolicySettings::default());
    let tools = Arc::new(ClientTools::new(tools, ToolContext { env, ..context }, files, policy));
    let params = McpParams {
        transport: McpTransport::Stdio,
        tools: Arc::new(McpTools::new(&tools.list())),
        folder: case.tmp.clone(),
        instructions: "memory".to_owned(),
        key_prefix: "memory".to_owned(),
    };
    // The backend needs a runtime.
    Ok(async move {
        let backend = ToolClientBackend::new(sessions.sessions, tools, OnDisconnect::Stop);
        (McpMachine::new(params), backend)
    })
}
