//! One configured server: started when it is needed, restarted when it died, left alone after failures, ended when idle.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parlor_process::{Sandbox, SandboxNetwork};
use parlor_vocab::{Failure, FailureCode};
use rmcp::model::{CallToolResult, JsonObject};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Connection, Opening};
use super::http::WANTS_LOGIN;
use super::listing::ToolList;
use super::message_budget::{Flood, MessageBudget};
use super::naming::harmless;
use super::{
    MCP_FIRST_BACKOFF, MCP_IDLE_TIME, MCP_MAX_BACKOFF, MCP_START_WAIT, MCP_STDERR_BYTES, McpLaunch, McpLogin,
    McpServerConfig,
};
use crate::failure::failure;
use crate::source::ToolServerState;
use crate::tool::ToolContext;

/// A server that all sessions share.
pub struct McpServer {
    config: McpServerConfig,
    login: Option<Arc<dyn McpLogin>>,
    /// Confines the program, and the hosts that are connected to.
    sandbox: Option<Arc<Sandbox>>,
    /// Locked while the server starts, so that callers at the same time start it once.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    up: Option<Up>,
    /// Whether the server is known not to survive a question about its versions.
    needs_initialize: bool,
    failures: u32,
    /// When the last attempt failed, and why.
    failed: Option<(Instant, String)>,
}

impl State {
    /// The server, if it runs.
    fn open(&self) -> Option<Up> {
        let up = self.up.clone().filter(|up| up.connection.is_open())?;
        up.connection.touch();
        Some(up)
    }

    fn fail(&mut self, reason: String) {
        self.failures = self.failures.saturating_add(1);
        self.failed = Some((Instant::now(), reason));
    }
}

/// A server that runs.
#[derive(Clone)]
struct Up {
    connection: Arc<Connection>,
    list: Arc<ToolList>,
}

/// What is known about a server, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpServerState {
    /// It runs.
    Up {
        /// Its name and version, and the version of the protocol.
        description: String,
        /// The names of its tools.
        tools: Vec<String>,
    },
    /// It cannot be used, for this reason.
    Failed(String),
}

impl McpServer {
    /// A server that is not started yet. `login` is that of a web service.
    pub(super) fn new(
        config: McpServerConfig,
        login: Option<Arc<dyn McpLogin>>,
        sandbox: Option<Arc<Sandbox>>,
    ) -> Arc<Self> {
        Arc::new(Self { config, login, sandbox, state: Mutex::default() })
    }

    /// The server as it is configured.
    pub fn config(&self) -> &McpServerConfig {
        &self.config
    }

    /// Starts the server if it does not run, and tells how it is.
    pub async fn check(self: &Arc<Self>) -> McpServerState {
        match self.up().await {
            Ok(up) => McpServerState::Up {
                description: harmless(&up.connection.description(), 200),
                tools: up.list.tools.iter().map(|tool| harmless(&tool.name, 128)).collect(),
            },
            Err(reason) => McpServerState::Failed(reason),
        }
    }

    /// How the server is now, without starting it.
    pub(super) fn status(&self) -> ToolServerState {
        let Ok(state) = self.state.try_lock() else { return ToolServerState::Starting };
        match (&state.up, &state.failed) {
            (Some(up), _) if up.connection.is_open() => ToolServerState::Running {
                description: harmless(&up.connection.description(), 200),
                tools: up.list.tools.len(),
            },
            (_, Some((_, reason))) => ToolServerState::Failed(reason.clone()),
            (_, None) => ToolServerState::NotStarted,
        }
    }

    /// The tools of the server, which is started if it does not run. Asks again if the server said that they changed.
    pub(super) async fn tools(self: &Arc<Self>) -> Result<Arc<ToolList>, String> {
        let up = self.up().await?;
        if !up.connection.take_has_new_tools() {
            return Ok(up.list);
        }
        // Not locked meanwhile: the server may take its time, and calls go on.
        let listing = up.connection.list_tools(self.config.tools.as_deref());
        let Ok(Ok(list)) = timeout(MCP_START_WAIT, listing).await else { return Ok(up.list) };
        let list = Arc::new(list);
        let mut state = self.state.lock().await;
        if let Some(current) = &mut state.up
            && Arc::ptr_eq(&current.connection, &up.connection)
        {
            current.list = Arc::clone(&list);
        }
        Ok(list)
    }

    /// Calls a tool, on a server that is started again if it died.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: JsonObject,
        context: &ToolContext,
    ) -> Result<CallToolResult, Failure> {
        let server = Arc::clone(self);
        // A task of its own: a call that is stopped meanwhile does not end a server that is starting for others too.
        let starting = async move {
            match server.running() {
                Some(up) => Ok(up),
                None => tokio::spawn(async move { server.up().await })
                    .await
                    .unwrap_or_else(|_| Err("an internal error".to_owned())),
            }
        };
        let up = tokio::select! {
            up = starting => up,
            () = context.cancel.cancelled() => return Err(crate::failure::cancelled()),
        };
        let name = &self.config.name;
        let up = up.map_err(|reason| {
            failure(FailureCode::ToolError, format!("the MCP server {name:?} cannot be used: {reason}"))
        })?;
        let result = up.connection.call(tool, arguments, self.config.timeout, context).await;
        // The state may be locked for as long as the server starts, and the call may be stopped: it does not wait for that.
        up.connection.touch();
        result.map_err(|failure| Failure {
            message: format!("{name}: {}", harmless(&failure.message, 2 * MCP_STDERR_BYTES)),
            ..failure
        })
    }

    /// Ends the server. The next call starts it again.
    pub async fn stop(&self) {
        self.state.lock().await.up = None;
    }

    /// The server, if it runs and nobody is changing that now.
    fn running(&self) -> Option<Up> {
        self.state.try_lock().ok()?.open()
    }

    async fn up(self: &Arc<Self>) -> Result<Up, String> {
        let mut state = self.state.lock().await;
        if let Some(up) = state.open() {
            return Ok(up);
        }
        match state.up.take() {
            Some(up) if up.connection.budget().is_exceeded() => state.fail(Flood.to_string()),
            // A server that worked is started again at once.
            Some(_) => (state.failures, state.failed) = (0, None),
            None => {}
        }
        let backoff = MCP_FIRST_BACKOFF.saturating_mul(1 << state.failures.min(16)).min(MCP_MAX_BACKOFF);
        if let Some((at, reason)) = &state.failed
            && at.elapsed() < backoff
        {
            let wait = (backoff - at.elapsed()).as_secs() + 1;
            return Err(format!("{reason} (the next attempt is possible in {wait} s)"));
        }
        match self.start(&mut state.needs_initialize).await {
            Ok(up) => {
                (state.failures, state.failed) = (0, None);
                state.up = Some(up.clone());
                let (connection, budget) = (Arc::downgrade(&up.connection), up.connection.budget());
                tokio::spawn(end_when_idle(Arc::downgrade(self), connection, budget));
                Ok(up)
            }
            Err(reason) => {
                let reason = harmless(&reason, 2 * MCP_STDERR_BYTES);
                state.fail(reason.clone());
                Err(reason)
            }
        }
    }

    async fn start(&self, needs_initialize: &mut bool) -> Result<Up, String> {
        let mut last = String::new();
        for opening in [Opening::Discover, Opening::Initialize] {
            if *needs_initialize && opening == Opening::Discover {
                continue;
            }
            match timeout(MCP_START_WAIT, self.connect(opening)).await {
                Ok(Ok(up)) => {
                    *needs_initialize = opening == Opening::Initialize;
                    return Ok(up);
                }
                Ok(Err(reason)) => last = reason,
                Err(_) => return Err(format!("it did not start within {} s", MCP_START_WAIT.as_secs())),
            }
            // A server of a later version says so; it would not understand `initialize` either. One that sends too much or wants
            // a login is not asked twice.
            let is_final = ["no compatible protocol version", WANTS_LOGIN, &Flood.to_string()];
            if is_final.iter().any(|text| last.contains(text)) {
                break;
            }
        }
        Err(last)
    }

    async fn connect(&self, opening: Opening) -> Result<Up, String> {
        let (budget, sandbox) = (Arc::new(MessageBudget::new()), self.sandbox.as_deref());
        let connecting = async {
            check_host(&self.config.launch, sandbox).await?;
            let connection =
                Connection::open(&self.config.launch, self.login.clone(), sandbox, opening, &budget).await?;
            let list = connection.list_tools(self.config.tools.as_deref()).await.map_err(|error| {
                let words = connection.last_words();
                if words.is_empty() { error } else { format!("{error}; {words}") }
            })?;
            Ok(Up { connection: Arc::new(connection), list: Arc::new(list) })
        };
        tokio::select! {
            up = connecting => up,
            () = budget.exceeded() => Err(Flood.to_string()),
        }
    }
}

/// Fails if the sandbox does not let its processes connect to the host of a web service: parlor does not do it for them.
async fn check_host(launch: &McpLaunch, sandbox: Option<&Sandbox>) -> Result<(), String> {
    let (McpLaunch::Url { url, .. }, Some(sandbox)) = (launch, sandbox) else { return Ok(()) };
    let url = reqwest::Url::parse(url).map_err(|_| "its url cannot be read".to_owned())?;
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let is_allowed = match &sandbox.network {
        SandboxNetwork::Open => true,
        SandboxNetwork::None => false,
        SandboxNetwork::Proxy(rules) => rules.allows(&host, url.port_or_known_default().unwrap_or(0)).await,
    };
    let advice = format!(
        "the policy allows no connection to {host}; this rule would: allow = [{{ host = {host:?} }}]"
    );
    if is_allowed { Ok(()) } else { Err(advice) }
}

/// Ends a server that nobody has used for a while, or that sends too much. Keeps neither the server nor the connection alive.
async fn end_when_idle(server: Weak<McpServer>, connection: Weak<Connection>, budget: Arc<MessageBudget>) {
    let mut at = Instant::now() + MCP_IDLE_TIME;
    loop {
        tokio::select! {
            () = sleep_until(at) => {}
            () = budget.exceeded() => {}
        }
        let Some(server) = server.upgrade() else { return };
        let mut state = server.state.lock().await;
        let is_same = |up: &&Up| Weak::ptr_eq(&Arc::downgrade(&up.connection), &connection);
        let Some(up) = state.up.as_ref().filter(is_same) else { return };
        let last_used = up.connection.last_used();
        // Every call that runs has a reference too.
        let is_idle = last_used.elapsed() >= MCP_IDLE_TIME && connection.strong_count() == 1;
        if budget.is_exceeded() {
            state.fail(Flood.to_string());
        }
        if is_idle || budget.is_exceeded() {
            state.up = None;
            return;
        }
        at = (last_used + MCP_IDLE_TIME).max(Instant::now() + Duration::from_secs(1));
    }
}
