//! `parlor stdio synaps`, and the program `synaps` that it stands in for.

mod config;
mod resume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use parlor_doors::synaps::{Child, Model, SynapsMachine, Tool};
use parlor_engine::{OnDisconnect, SessionClient, Sessions};
use parlor_vocab::{AgentChoice, NewSession, Seq, SessionCommand};

use crate::environment::Environment;
use crate::home::{self, Home};

/// The door's name in session lists.
const DOOR: &str = "synaps";

/// The folder of the other program, in the user's home folder.
const BASE: &str = ".synaps-cli";

/// How long a thread that read a file stays for the next one. Short, because a parent keeps many
/// children for hours.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The flags of `synaps rpc`.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Go on with this session: its title, its id, or a part of its id that no other has
    #[arg(long = "continue", value_name = "SESSION")]
    resume: Option<String>,
    /// Instructions that come before everything else: a text, or a file that holds it
    // A text may begin with a dash, as a list does.
    #[arg(long, short, value_name = "TEXT_OR_FILE", allow_hyphen_values = true)]
    system: Option<String>,
    /// The model, or the agent, that answers; beats that of the session and of the configuration
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// Read `model` from the configuration of this profile first [env: SYNAPS_PROFILE]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

/// The command line of `synaps`, as far as its clients use it.
#[derive(Parser)]
#[command(name = "synaps", version, about = "synaps, served by parlor")]
struct Synaps {
    /// Read `model` from the configuration of this profile first [env: SYNAPS_PROFILE]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    #[command(subcommand)]
    command: SynapsCommand,
}

#[derive(Subcommand)]
enum SynapsCommand {
    /// Serve the parent on stdin and stdout, as `parlor stdio synaps` does
    Rpc(Options),
    /// Print the tools
    #[command(name = "tools_list")]
    ToolsList {
        /// As a JSON array, which is the only way there is
        #[arg(long)]
        json: bool,
    },
}

/// Behaves as `synaps`.
pub(crate) fn serve_as_synaps(arguments: &[OsString], environment: &Environment) -> anyhow::Result<ExitCode> {
    let Synaps { profile, command } = Synaps::parse_from(arguments);
    match command {
        SynapsCommand::Rpc(options) => {
            let profile = options.profile.clone().or(profile);
            serve(Options { profile, ..options }, environment)
        }
        SynapsCommand::ToolsList { json: _ } => {
            let tools: Vec<_> = tools(environment).iter().map(Tool::to_json).collect();
            crate::json::write_line(&mut std::io::stdout(), &tools)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Opens the door and serves it to its end.
pub(crate) fn serve(options: Options, environment: &Environment) -> anyhow::Result<ExitCode> {
    // One thread: children get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()?;
    let done = runtime.block_on(async {
        let base = base(environment);
        let home = Home::at(environment, state_folder(environment, &base)?)?;
        let sessions = Arc::new(home.sessions(environment)?);
        let child = begin(&sessions, &home, &base, options, environment).await?;
        let client = SessionClient::new(sessions, OnDisconnect::Stop);
        parlor_process::give_back_startup_code();
        parlor_transport::serve_stdio(SynapsMachine::new(child), client).await?;
        Ok(ExitCode::SUCCESS)
    });
    // What still waits for a disk is not waited for.
    runtime.shutdown_background();
    done
}

/// The other program's folder: it has the configuration, and may be all that a service can write to.
struct Base {
    path: PathBuf,
    /// Whether there is reason to think that it is the place for state too.
    is_used: bool,
}

fn base(environment: &Environment) -> Base {
    if let Some(path) = &environment.synaps_base {
        return Base { path: path.into(), is_used: true };
    }
    match &environment.user_home {
        Some(home) => {
            let path = Path::new(home).join(BASE);
            Base { is_used: path.is_dir(), path }
        }
        None => Base { path: PathBuf::from(BASE), is_used: true },
    }
}

/// Where state is kept: `$PARLOR_HOME`, else `parlor` in the other program's folder if that is in use,
/// else where parlor always keeps it.
fn state_folder(environment: &Environment, base: &Base) -> anyhow::Result<PathBuf> {
    if base.is_used && !environment.has_state_folder() {
        return Ok(std::path::absolute(base.path.join("parlor"))?);
    }
    environment.state_folder()
}

/// Creates or opens the session, and says what the child begins with.
async fn begin(
    sessions: &Sessions,
    home: &Home,
    base: &Base,
    options: Options,
    environment: &Environment,
) -> anyhow::Result<Child> {
    let config = home.config();
    let models = config.agents.iter().map(|(id, agent)| {
        let agent_id = parlor_vocab::AgentId::parse(id).ok();
        Model { provider: "parlor".to_owned(), id: id.clone(), name: agent.name.clone(), agent: agent_id }
    });
    let profile = options.profile.as_deref().or(environment.synaps_profile.as_deref());
    let configured = config::model(&base.path, profile);
    let mut child = Child {
        session: parlor_vocab::SessionId::parse("")?,
        head: Seq::START,
        new_session: NewSession {
            title: None,
            door: DOOR.to_owned(),
            folder: std::env::current_dir().context("the working folder is gone")?,
            choice: AgentChoice::default(),
            system: options.system.as_deref().map(text_or_file).transpose()?,
            forked_from: None,
        },
        default_model: config.default_agent.clone(),
        models: models.collect(),
        tools: tools(environment),
    };
    match &options.resume {
        None => {
            if let Some(model) = options.model.or(configured) {
                child.new_session.choice = child.choice(&model);
            }
            child.session = sessions.create(None, child.new_session.clone()).await?;
            child.head = Seq(1);
        }
        Some(wanted) => {
            child.session = resume::find(sessions, wanted).await?;
            if let Some(model) = options.model {
                let choice = child.choice(&model);
                sessions.ask(&child.session, SessionCommand::Choose(choice)).await?;
            }
            let session = sessions.view(&child.session).await?;
            child.head = session.head();
            child.new_session.choice = session.choice().clone();
        }
    }
    Ok(child)
}

fn tools(environment: &Environment) -> Vec<Tool> {
    let tools = home::tools(environment);
    let tools = tools.iter().map(|tool| Tool {
        name: tool.name().to_owned(),
        description: tool.description().to_owned(),
        schema: tool.schema(),
    });
    tools.collect()
}

/// What the file `text` holds, if there is such a file; else `text` itself.
fn text_or_file(text: &str) -> anyhow::Result<String> {
    let path = Path::new(text);
    // A long text is no path, and asking for one fails.
    if !path.is_file() {
        return Ok(text.to_owned());
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read the instructions in {text}"))
}
