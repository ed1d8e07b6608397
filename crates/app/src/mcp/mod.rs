//! `parlor stdio mcp`: serves the MCP door to the client that started it. `parlor serve` serves it at `/mcp`.

mod login;
pub(crate) mod servers;

pub(crate) use login::server_login;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parlor_doors::mcp::{McpMachine, McpParams, McpTools, McpTransport};
use parlor_engine::{ClientPolicy, OnDisconnect, Sessions};
use parlor_frontend::{ClientTools, ToolClientBackend};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_tools::{Policy, Sandbox, ToolContext, Toolbox};
use parlor_transport::{serve_one_request, serve_stdio};
use parlor_vocab::{IdSource, PolicyMode};
use parlor_web::{McpCall, ServeMcp};

use crate::environment::Environment;
use crate::hand_over;
use crate::home::{Home, tools};
use crate::rules::ProjectRules;

/// How long an idle thread for blocking work, such as file access, stays alive.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What a client's model should know, on every transport.
const INSTRUCTIONS: &str = "Parlor runs agents in sessions. To delegate a task: session_start with a message, then session_wait \
                            until its status is completed, failed or stopped. Sessions are recorded: session_read and \
                            session_list show them at any time. The other tools work on this machine directly.";

/// Serves the door until its client disconnects or the program is asked to end.
pub(crate) fn serve(environment: &Environment) -> anyhow::Result<ExitCode> {
    // One thread: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()?;
    let done = runtime.block_on(async {
        let home = Home::open(environment)?;
        let sessions = home.shared_sessions(environment).await?;
        let folder = std::env::current_dir().context("the working folder does not exist any more")?;
        let policy = session_policy(&home, environment)?;
        let client_tools = Arc::new(client_tools(&home, environment, tools(environment), &folder, policy)?);
        let on_disconnect = home.config().when_owner_leaves;
        let leaving = match on_disconnect {
            OnDisconnect::Stop => "An agent that still works when this connection ends is stopped.",
            OnDisconnect::HandOver | OnDisconnect::Keep => {
                "An agent that others watch goes on when this connection ends."
            }
        };
        let params = McpParams {
            transport: McpTransport::Stdio,
            tools: Arc::new(McpTools::new(&client_tools.list())),
            folder,
            instructions: format!("{INSTRUCTIONS} {leaving}"),
            key_prefix: new_key(),
        };
        let backend = ToolClientBackend::new(Arc::clone(&sessions), Arc::clone(&client_tools), on_disconnect);
        let hand_over = hand_over::on_exit(on_disconnect)?;
        parlor_process::unmap_code();
        serve_stdio(McpMachine::new(params), backend).await?;
        client_tools.close().await;
        hand_over(&sessions).await;
        Ok(ExitCode::SUCCESS)
    });
    // Do not wait for tasks that block on a disk or a provider.
    runtime.shutdown_background();
    done
}

/// Serves requests over HTTP with `sessions`. The runs of clients go on when they disconnect. Closing the tools ends the
/// processes that clients left in the background.
pub(crate) fn serve_requests(
    home: &Home,
    environment: &Environment,
    sessions: Arc<Sessions>,
    folder: PathBuf,
) -> anyhow::Result<(ServeMcp, Arc<ClientTools>)> {
    let offered = offered_tools(&tools(environment), &home.config().mcp_tools)?;
    let user_home = environment.user_home.as_deref().map(Path::new);
    let settings = home.config().policy.settings(user_home).map_err(anyhow::Error::msg)?;
    // The settings choose the tools themselves, so only rules and no mode narrows them.
    let policy = ClientPolicy::of_rules(settings);
    let client_tools = Arc::new(client_tools(home, environment, offered, &folder, policy)?);
    let closing = Arc::clone(&client_tools);
    let params = McpParams {
        transport: McpTransport::Http,
        tools: Arc::new(McpTools::new(&client_tools.list())),
        folder,
        instructions: format!("{INSTRUCTIONS} Agents go on working when the connection ends."),
        key_prefix: String::new(),
    };
    let serve: ServeMcp = Arc::new(move |McpCall { frame, frames, cancel }: McpCall| {
        let params = McpParams { key_prefix: new_key(), ..params.clone() };
        let (sessions, tools) = (Arc::clone(&sessions), Arc::clone(&client_tools));
        Box::pin(async move {
            let backend = ToolClientBackend::new(sessions, tools, OnDisconnect::Keep);
            serve_one_request(McpMachine::new(params), backend, &frame, frames, cancel).await;
        })
    });
    Ok((serve, closing))
}

/// The tools that clients may call over HTTP: those that only read, and those that the settings name.
fn offered_tools(all: &Toolbox, named: &[String]) -> anyhow::Result<Toolbox> {
    if let Some(unknown) = named.iter().find(|name| all.find(name).is_err()) {
        let known: Vec<&str> = all.iter().map(|tool| tool.name()).collect();
        bail!("tools in [channels.mcp] has {unknown:?}, which is no tool; there are: {}", known.join(", "));
    }
    let is_offered = |name: &str, read_only: bool| read_only || named.iter().any(|named| named == name);
    let names: Vec<&str> = all
        .iter()
        .filter(|tool| is_offered(tool.name(), tool.annotations().read_only))
        .map(|tool| tool.name())
        .collect();
    all.only(&names).map_err(|failure| anyhow::anyhow!(failure.message))
}

/// The tools that a client calls without a session, in `folder`.
fn client_tools(
    home: &Home,
    environment: &Environment,
    toolbox: Toolbox,
    folder: &Path,
    policy: ClientPolicy,
) -> anyhow::Result<ClientTools> {
    let env = home.command_environment(environment);
    let files = || -> anyhow::Result<Policy> {
        let files = Policy::new([folder]).map_err(|failure| anyhow::anyhow!(failure.message))?;
        Ok(files.with_home_of(&env).without_state(home.path()))
    };
    let context = ToolContext::with_policy(folder.to_owned(), files()?);
    let user_home = environment.user_home.as_deref().map(Path::new);
    let secrets = Sandbox::new(PolicyMode::Workspace, folder, user_home).hidden;
    let confined_files = files()?.without_obeyed_changes().without_secrets(secrets);
    let context = ToolContext { env: env.into(), redact: Arc::new(home.redaction().clone()), ..context };
    Ok(ClientTools::new(toolbox, context, confined_files, policy))
}

/// The policy that sessions have too.
fn session_policy(home: &Home, environment: &Environment) -> anyhow::Result<ClientPolicy> {
    let user_home = environment.user_home.as_deref().map(Path::new);
    let settings = home.config().policy.settings(user_home).map_err(anyhow::Error::msg)?;
    let projects = Arc::new(ProjectRules::new(home.path(), user_home));
    Ok(ClientPolicy::of_sessions(settings, projects, user_home, &[home.path().to_owned()]))
}

fn new_key() -> String {
    TimeOrderedIds::new(Arc::new(SystemClock)).next().to_string()
}

#[cfg(test)]
mod tests {
    use parlor_tools::ShellTool;

    use super::*;

    #[test]
    fn clients_over_http_get_the_tools_that_read_and_those_that_the_settings_name() {
        let all = Toolbox::standard(ShellTool::default());
        let names = |named: &[&str]| -> Vec<String> {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            offered_tools(&all, &named).unwrap().iter().map(|tool| tool.name().to_owned()).collect()
        };
        assert_eq!(names(&[]), ["read_file", "list_dir", "grep_files"]);
        assert_eq!(names(&["shell"]), ["shell", "read_file", "list_dir", "grep_files"]);
        let error = offered_tools(&all, &["rm".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"rm\", which is no tool; there are: shell"), "{error}");
    }
}
