//! `parlor stdio loaf`: serves the loaf door, and replaces the program `loaf rpc`.

mod accounts;
mod model_options;
mod preferences;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_doors::ToolDescription;
use parlor_doors::loaf::{LoafMachine, ServerParams};
use parlor_frontend::{Accounts, FrontendBackend};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_vocab::{AgentId, ModelLists, ShutdownSignal};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::accounts::HomeAccounts;
use crate::environment::Environment;
use crate::hand_over;
use crate::home::{self, Home};
use crate::settings::{AgentKind, Config};

/// The database in the state folder, which the door reports as the file of all chats.
const CHATS: &str = "parlor.db";

/// The folder of loaf's skills in the user's home folder.
const SKILLS: &str = ".loaf/skills";

/// How long an idle thread for blocking work, such as file access, stays alive.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The exit status after wrong arguments.
const WRONG_USAGE: u8 = 1;

/// Behaves as the program `loaf`, of which parlor has only the RPC mode.
pub(crate) fn serve_as_loaf(arguments: &[OsString], environment: &Environment) -> anyhow::Result<ExitCode> {
    let command = arguments.get(1).map(|command| command.to_string_lossy().trim().to_lowercase());
    if command.as_deref() == Some("rpc") {
        return serve(environment);
    }
    eprintln!(
        "usage: loaf rpc\n\nThis is parlor, which serves the RPC mode of loaf on stdin and stdout and nothing else."
    );
    Ok(ExitCode::from(WRONG_USAGE))
}

/// Serves the door until its client disconnects or the program is asked to end.
pub(crate) fn serve(environment: &Environment) -> anyhow::Result<ExitCode> {
    // One thread: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()?;
    let done = runtime.block_on(async {
        // A client may set keys through the door, so there is an agent for each provider.
        let skills = environment.user_home.as_ref().map(|home| PathBuf::from(home).join(SKILLS));
        let home = Home::open(environment)?.with_all_providers().with_skill_folder(skills);
        let sessions = home.shared_sessions(environment).await?;
        let folder = std::env::current_dir().context("the working folder does not exist any more")?;
        let accounts = Arc::new(HomeAccounts::new(&home, environment, folder.clone()));
        let server = server(&home, &accounts, environment, folder).await;
        let shutdown = shutdown_signal()?;
        let on_disconnect = home.config().when_owner_leaves;
        let backend = FrontendBackend::new(Arc::clone(&sessions), accounts, on_disconnect);
        let backend = backend.with_shutdown(shutdown);
        let hand_over = hand_over::on_exit(on_disconnect)?;
        parlor_process::unmap_code();
        parlor_transport::serve_stdio(LoafMachine::new(server), backend).await?;
        hand_over(&sessions).await;
        sessions.close_log().await;
        Ok(ExitCode::SUCCESS)
    });
    // Do not wait for tasks that block on a disk or a provider.
    runtime.shutdown_background();
    done
}

/// The initial state of the door in `folder`, for a machine that no client talks to.
pub(crate) async fn server_params(
    environment: &Environment,
    folder: PathBuf,
) -> anyhow::Result<ServerParams> {
    let home = Home::open(environment)?.with_all_providers();
    let accounts = HomeAccounts::new(&home, environment, folder.clone());
    Ok(server(&home, &accounts, environment, folder).await)
}

/// Completes when a signal asks the program to end.
pub(crate) fn shutdown_signal() -> std::io::Result<impl Future<Output = ShutdownSignal>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => ShutdownSignal::Terminate,
            _ = interrupt.recv() => ShutdownSignal::Interrupt,
        }
    })
}

/// The initial state of the door.
async fn server(
    home: &Home,
    accounts: &HomeAccounts,
    environment: &Environment,
    folder: PathBuf,
) -> ServerParams {
    let clock = Arc::new(SystemClock);
    let skills = accounts.skills().await;
    let tools = home::tools(environment);
    let tools = tools.iter().map(|tool| ToolDescription {
        name: tool.name().to_owned(),
        description: tool.description().to_owned(),
        schema: tool.schema(),
    });
    ServerParams {
        folder,
        user_home: environment.user_home.as_ref().map(PathBuf::from),
        chats_path: home.path().join(CHATS),
        preferences: preferences::read(home.path()),
        models: accounts.models(ModelLists::Cached).await,
        credentials: accounts.credentials().await,
        skill_count: skills.skills.len(),
        skill_folders: skills.folders,
        agent_commands: agent_commands(home.config()),
        tools: tools.collect(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    }
}

/// The commands of each agent that has some of its own: the local ones.
fn agent_commands(config: &Config) -> HashMap<AgentId, Vec<String>> {
    let local = config.agents.iter().filter(|(_, agent)| matches!(agent.kind, AgentKind::Local { .. }));
    let commands = || LocalAgent::command_names().map(str::to_owned).collect();
    local.filter_map(|(id, _)| Some((AgentId::parse(id).ok()?, commands()))).collect()
}
