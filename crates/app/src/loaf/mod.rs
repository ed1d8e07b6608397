//! `parlor stdio loaf`, and the program `loaf rpc` that it stands in for.

mod clerk;
mod kept;
mod offers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_doors::loaf::{LoafMachine, Server, Tool};
use parlor_engine::OnDisconnect;
use parlor_frontend::{Accounts, FrontendBackend};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_vocab::ShutdownSignal;
use tokio::signal::unix::{SignalKind, signal};

use self::clerk::HomeAccounts;
use crate::environment::Environment;
use crate::home::{self, Home};

/// The file that all chats are in, in the state folder.
const CHATS: &str = "parlor.db";

/// Where users of loaf keep skills, in their home folder.
const SKILLS: &str = ".loaf/skills";

/// How long a thread that read a file stays for the next one.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The exit status of a command line that is none.
const WRONG_USAGE: u8 = 1;

/// Behaves as `loaf`, of which only the server is here.
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

/// Opens the door and serves it to its end.
pub(crate) fn serve(environment: &Environment) -> anyhow::Result<ExitCode> {
    // One thread: children get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()?;
    let done = runtime.block_on(async {
        // Keys may come through the door, so there are agents for all of them.
        let skills = environment.user_home.as_ref().map(|home| PathBuf::from(home).join(SKILLS));
        let home = Home::open(environment)?.with_all_providers().with_skills(skills);
        let sessions = Arc::new(home.sessions(environment)?);
        let folder = std::env::current_dir().context("the working folder is gone")?;
        let clerk = Arc::new(HomeAccounts::new(&home, environment, folder.clone()));
        let server = server(&home, &clerk, environment, folder).await;
        let ending = ending()?;
        let backend = FrontendBackend::new(sessions, clerk, OnDisconnect::Stop).with_shutdown(ending);
        parlor_process::give_back_startup_code();
        parlor_transport::serve_stdio(LoafMachine::new(server), backend).await?;
        Ok(ExitCode::SUCCESS)
    });
    // What still waits for a disk or a provider is not waited for.
    runtime.shutdown_background();
    done
}

/// Is ready once the program was told to end, with how.
fn ending() -> std::io::Result<impl Future<Output = ShutdownSignal>> {
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

/// What the server begins with.
async fn server(home: &Home, clerk: &HomeAccounts, environment: &Environment, folder: PathBuf) -> Server {
    let clock = Arc::new(SystemClock);
    let skills = clerk.skills().await;
    let tools = home::tools(environment);
    let tools = tools.iter().map(|tool| Tool {
        name: tool.name().to_owned(),
        description: tool.description().to_owned(),
        schema: tool.schema(),
    });
    Server {
        folder,
        user_home: environment.user_home.as_ref().map(PathBuf::from),
        chats: home.path().join(CHATS),
        kept: kept::read(home.path()),
        offers: clerk.models().await,
        logins: clerk.credentials().await,
        skills: skills.skills.len(),
        skill_folders: skills.folders,
        tools: tools.collect(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    }
}
