//! The configured servers as a source of tools.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use parlor_process::Sandbox;
use tokio::time::timeout;

use super::server::McpServer;
use super::tool::McpTool;
use super::{MCP_RUN_WAIT, McpLogin, McpServerConfig};
use crate::source::{OfferedTools, ToolServerStatus, ToolSource};
use crate::tool::Tool;

/// All configured servers.
pub struct McpServers {
    servers: Vec<Arc<McpServer>>,
}

impl McpServers {
    /// Servers that are not started yet.
    pub fn new(configs: Vec<McpServerConfig>) -> Self {
        Self::with_logins(configs, |_| None)
    }

    /// The same, with the logins of those servers for which `login` has one.
    pub fn with_logins(
        configs: Vec<McpServerConfig>,
        login: impl Fn(&str) -> Option<Arc<dyn McpLogin>>,
    ) -> Self {
        let servers = configs.into_iter().map(|config| {
            let login = login(&config.name);
            McpServer::new(config, login, None)
        });
        Self { servers: servers.collect() }
    }

    /// Servers whose programs and connections `sandbox` confines. They have no logins.
    pub(super) fn in_sandbox(configs: Vec<McpServerConfig>, sandbox: Option<&Arc<Sandbox>>) -> Self {
        let servers = configs.into_iter().map(|config| McpServer::new(config, None, sandbox.cloned()));
        Self { servers: servers.collect() }
    }

    /// The servers, in the order of the settings.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<McpServer>> {
        self.servers.iter()
    }
}

#[async_trait]
impl ToolSource for McpServers {
    /// Starts all servers that do not run, at the same time.
    async fn tools(&self, _: &Path) -> OfferedTools {
        let asked = self.servers.iter().map(|server| {
            let server = Arc::clone(server);
            // A task of its own: a run that is stopped meanwhile does not end a server that is starting.
            let listing = tokio::spawn(async move { server.tools().await });
            async move {
                match timeout(MCP_RUN_WAIT, listing).await {
                    Ok(Ok(listed)) => listed,
                    Ok(Err(_)) => Err("an internal error".to_owned()),
                    Err(_) => Err("it is still starting".to_owned()),
                }
            }
        });
        let listed = join_all(asked).await;
        let (mut tools, mut notices): (Vec<Arc<dyn Tool>>, Vec<String>) = (Vec::new(), Vec::new());
        for (server, listed) in self.servers.iter().zip(listed) {
            match listed {
                Ok(list) => {
                    tools.extend(
                        list.tools.iter().map(|tool| Arc::new(McpTool::new(server, tool)) as Arc<dyn Tool>),
                    );
                    let name = &server.config().name;
                    notices
                        .extend(list.omissions.iter().map(|notice| format!("MCP server {name:?}: {notice}")));
                }
                Err(reason) => {
                    let name = &server.config().name;
                    notices.push(format!("The tools of the MCP server {name:?} are missing: {reason}."));
                }
            }
        }
        OfferedTools { tools, notices }
    }

    fn servers(&self) -> Vec<ToolServerStatus> {
        let status = |server: &Arc<McpServer>| ToolServerStatus {
            name: server.config().name.clone(),
            origin: None,
            state: server.status(),
        };
        self.servers.iter().map(status).collect()
    }
}
