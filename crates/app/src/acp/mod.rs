//! `parlor stdio acp`: serves the ACP door to the editor that started it. `parlor serve` serves it at `/acp`.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser};
use parlor_doors::acp::{AcpAgent, AcpMachine, AcpParams, SlashCommand};
use parlor_engine::{OnDisconnect, Sessions};
use parlor_frontend::{Accounts, FrontendBackend};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_transport::serve_socket;
use parlor_vocab::{AgentId, IdSource, ModelLists};
use parlor_web::{AcpConnection, ServeAcp};

use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::loaf::{HomeAccounts, shutdown_signal};
use crate::settings::{AgentKind, Config};
use crate::{hand_over, login};

/// The folder of attached files in the state folder.
const MEDIA: &str = "media";

/// How long an idle thread for blocking work, such as file access, stays alive.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The arguments of `parlor stdio acp`.
#[derive(Args)]
pub(crate) struct Options {
    /// Log in to this provider instead, as `parlor login` does: editors start this in a terminal
    #[arg(long, value_name = "PROVIDER")]
    login: Option<String>,
    /// With --login: store an API key of PROVIDER
    #[arg(long, requires = "login")]
    key: bool,
}

/// Speak the Agent Client Protocol on standard input and output.
#[derive(Parser)]
#[command(name = "parlor-acp", version)]
struct Program {
    #[command(flatten)]
    options: Options,
}

/// Behaves as the program `parlor-acp`.
pub(crate) fn serve_as_acp(arguments: &[OsString], environment: &Environment) -> anyhow::Result<ExitCode> {
    serve(&Program::parse_from(arguments).options, environment)
}

/// Serves the door until its client disconnects or the program is asked to end; or logs in.
pub(crate) fn serve(options: &Options, environment: &Environment) -> anyhow::Result<ExitCode> {
    if let Some(provider) = &options.login {
        let console = Console::detect(environment);
        let options = login::LoginOptions::new(provider.clone(), options.key);
        return login::login(environment, &options, console, &mut stdout());
    }
    if stdin().is_terminal() {
        eprintln!("{HINT}");
    }
    // One thread: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()?;
    let done = runtime.block_on(async {
        let home = Home::open(environment)?;
        let sessions = home.shared_sessions(environment).await?;
        let folder = std::env::current_dir().context("the working folder does not exist any more")?;
        let accounts = Arc::new(HomeAccounts::new(&home, environment, folder.clone()));
        let params = params(&home, &*accounts, environment, folder).await;
        let shutdown = shutdown_signal()?;
        let on_disconnect = home.config().when_owner_leaves;
        let backend = FrontendBackend::new(Arc::clone(&sessions), accounts, on_disconnect);
        let backend = backend.with_shutdown(shutdown);
        let hand_over = hand_over::on_exit(on_disconnect)?;
        parlor_process::unmap_code();
        parlor_transport::serve_stdio(AcpMachine::new(params), backend).await?;
        hand_over(&sessions).await;
        Ok(ExitCode::SUCCESS)
    });
    // Do not wait for tasks that block on a disk or a provider.
    runtime.shutdown_background();
    done
}

/// Serves clients on WebSockets with `sessions`. Their runs go on when they disconnect. Clients may be on other machines,
/// so they name absolute folders, and log in elsewhere.
pub(crate) fn serve_sockets(
    home: &Home,
    environment: &Environment,
    sessions: Arc<Sessions>,
    folder: PathBuf,
) -> ServeAcp {
    let accounts = Arc::new(HomeAccounts::new(home, environment, folder));
    let params = static_params(home);
    Arc::new(move |connection: AcpConnection| {
        let (accounts, sessions, params) = (Arc::clone(&accounts), Arc::clone(&sessions), params.clone());
        Box::pin(async move {
            let params = AcpParams {
                models: accounts.models(ModelLists::Cached).await,
                key_prefix: new_key(),
                ..params
            };
            let backend = FrontendBackend::new(sessions, accounts, OnDisconnect::Keep);
            let AcpConnection { socket, keepalive, count_frame, stop } = connection;
            serve_socket(AcpMachine::new(params), backend, socket, keepalive, count_frame, stop).await;
        })
    })
}

/// The parameters of the connection on stdio.
async fn params(
    home: &Home,
    accounts: &dyn Accounts,
    environment: &Environment,
    folder: PathBuf,
) -> AcpParams {
    let config = home.config();
    AcpParams {
        folder: Some(folder),
        models: accounts.models(ModelLists::Cached).await,
        logins: config.auth.keys().cloned().collect(),
        key_services: login::known_services(config).into_iter().map(str::to_owned).collect(),
        has_screen: !login::is_headless(&environment.for_desktop()),
        key_prefix: new_key(),
        ..static_params(home)
    }
}

/// What all connections have in common.
fn static_params(home: &Home) -> AcpParams {
    AcpParams {
        folder: None,
        models: Vec::new(),
        agents: agents(home.config()),
        mode: home.config().policy.mode,
        logins: Vec::new(),
        key_services: Vec::new(),
        has_screen: false,
        media_folder: home.path().join(MEDIA),
        sends_usage: home.config().sends_acp_usage,
        key_prefix: String::new(),
    }
}

fn new_key() -> String {
    TimeOrderedIds::new(Arc::new(SystemClock)).next().to_string()
}

/// The configured agents, the default first.
fn agents(config: &Config) -> Vec<AcpAgent> {
    let mut agents: Vec<_> = config.agents.iter().collect();
    agents.sort_by_key(|(id, _)| **id != config.default_agent);
    let agent = |(id, agent): (&String, &crate::settings::AgentConfig)| {
        let is_local = matches!(agent.kind, AgentKind::Local { .. });
        Some(AcpAgent {
            id: AgentId::parse(id).ok()?,
            name: agent.name.clone(),
            uses_model: matches!(agent.kind, AgentKind::Model(_)),
            commands: if is_local { LocalAgent::commands().map(command).collect() } else { Vec::new() },
        })
    };
    agents.into_iter().filter_map(agent).collect()
}

fn command((usage, description): (&str, &str)) -> SlashCommand {
    let (name, hint) = usage.split_once(' ').unwrap_or((usage, ""));
    SlashCommand {
        name: name.trim_start_matches('/').to_owned(),
        description: description.to_owned(),
        hint: Some(hint.to_owned()).filter(|hint| !hint.is_empty()),
    }
}

/// Printed if stdin is a terminal: a person started the door by hand. Programs have a pipe on stdin and never see it.
const HINT: &str = r#"parlor: the ACP door is open. It reads one JSON-RPC message a line; Ctrl-D ends it. Editors start it themselves:
docs/protocols/acp.md. Try these lines, with the sessionId that the second one answers:
  {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
  {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":".","mcpServers":[]}}
  {"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"…","prompt":[{"type":"text","text":"!uname -a"}]}}"#;
