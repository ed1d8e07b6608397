//! The MCP servers that a client brings for its sessions. They start when the client opens the session, serve the runs of that
//! session only, and end when the client leaves it and no run uses them any more.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::{SessionOwner, SessionToolSource, Sessions};
use parlor_tools::{MCP_CALL_TIMEOUT, McpLaunch, McpServerConfig, McpServers, ToolSource};
use parlor_vocab::{ClientMcpServer, ClientMcpTransport, SecretText, SessionId};
use tokio::time::timeout;

/// How many servers the sessions of one connection may have together.
pub const MAX_CLIENT_MCP_SERVERS: usize = 128;

/// How long the opening of a session waits for its servers. Those that take longer go on starting.
pub const CLIENT_MCP_WAIT: Duration = Duration::from_secs(10);

/// A value of the environment or of a header counts as a secret from this length on.
const MIN_SECRET_BYTES: usize = 8;

/// The servers of a connection, by session.
#[derive(Default)]
pub(super) struct SessionServers(HashMap<SessionId, UsedServers>);

struct UsedServers {
    count: usize,
    _source: SessionToolSource,
}

/// The servers of a session that the backend has to start.
pub(super) struct StartingServers {
    session: SessionId,
    source: Arc<McpServers>,
    folder: std::path::PathBuf,
    /// How many servers were left out.
    excess: usize,
}

impl SessionServers {
    /// Replaces the servers of `session`.
    pub(super) fn replace(
        &mut self,
        sessions: &Sessions,
        session: SessionId,
        folder: &Path,
        mut servers: Vec<ClientMcpServer>,
    ) -> StartingServers {
        self.0.remove(&session);
        let used: usize = self.0.values().map(|used| used.count).sum();
        let excess = servers.split_off(servers.len().min(MAX_CLIENT_MCP_SERVERS - used)).len();
        let count = servers.len();
        let config = |server| config(server, sessions.command_environment(), folder);
        let source = Arc::new(McpServers::new(servers.into_iter().map(config).collect()));
        if count > 0 {
            let shared = Arc::clone(&source) as Arc<dyn ToolSource>;
            let used = UsedServers { count, _source: sessions.add_tool_source(&session, shared) };
            self.0.insert(session.clone(), used);
        }
        StartingServers { session, source, folder: folder.to_owned(), excess }
    }

    /// Ends the servers of `session`.
    pub(super) fn remove(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    /// Ends all servers.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl StartingServers {
    /// Starts the servers at the same time. Returns what people have to know of them.
    pub(super) async fn start(self, sessions: &Sessions) -> Vec<String> {
        if self.source.iter().next().is_none() && self.excess == 0 {
            return Vec::new();
        }
        let owner = sessions.owner(&self.session).await;
        if matches!(owner, Ok(SessionOwner::Peer | SessionOwner::OtherProcess)) {
            return vec![
                "The MCP servers of the editor are not used, because another process runs this session."
                    .to_owned(),
            ];
        }
        let mut notices = match timeout(CLIENT_MCP_WAIT, self.source.tools(&self.folder)).await {
            Ok(offered) => offered.notices.iter().map(|notice| sessions.redacted(notice)).collect(),
            Err(_) => Vec::new(),
        };
        if self.excess > 0 {
            notices.push(format!(
                "{} MCP servers of the editor are not used: the sessions of a connection have at most {MAX_CLIENT_MCP_SERVERS}.",
                self.excess
            ));
        }
        notices
    }
}

/// The values of a server that no text may show.
pub(super) fn secrets(server: &ClientMcpServer) -> impl Iterator<Item = SecretText> {
    let values = match &server.transport {
        ClientMcpTransport::Program { env, .. } => env,
        ClientMcpTransport::Http { headers, .. } => headers,
    };
    let parts = values.iter().flat_map(|(_, value)| {
        // The scheme of `Authorization` is no part of the secret.
        [Some(value.as_str()), value.split_once(' ').map(|(_, rest)| rest)].into_iter().flatten()
    });
    parts.filter(|value| value.len() >= MIN_SECRET_BYTES).map(|value| SecretText(value.to_owned()))
}

fn config(server: ClientMcpServer, environment: &[(String, String)], folder: &Path) -> McpServerConfig {
    let launch = match server.transport {
        ClientMcpTransport::Program { command, args, env } => {
            let kept = environment.iter().filter(|(name, _)| env.iter().all(|(own, _)| own != name)).cloned();
            let env = kept.chain(env.iter().cloned()).collect();
            McpLaunch::Command { program: command, args, env, folder: folder.to_owned() }
        }
        ClientMcpTransport::Http { url, headers } => {
            McpLaunch::Url { url, headers: headers.into_iter().collect() }
        }
    };
    McpServerConfig { name: server.name, launch, tools: None, timeout: MCP_CALL_TIMEOUT }
}
