//! `parlor stdio synaps`: serves the synaps door, and replaces the program `synaps`.

mod config;
mod import;
mod models;
mod resume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use parlor_doors::ToolDescription;
use parlor_doors::synaps::{ChildParams, DOOR, SynapsMachine};
use parlor_engine::{SessionClient, Sessions};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_vocab::{AgentChoice, IdSource, NewSession, Seq, SessionCommand};

use self::import::SavedSessions;
use self::resume::Found;
use crate::environment::Environment;
use crate::hand_over;
use crate::home::{self, Home};
use crate::settings::{self, Config};

/// The folder of the program `synaps` in the user's home folder.
const BASE_FOLDER: &str = ".synaps-cli";

/// How long an idle thread for blocking work, such as file access, stays alive. Short, because a bridge keeps many of
/// these processes for hours.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The flags of `synaps rpc`.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Continue this session, named by its title, its id, or a part of its id that no other session has; without a name,
    /// the last one. A session that the program `synaps` saved is imported
    #[arg(long = "continue", value_name = "SESSION", num_args = 0..=1)]
    resume: Option<Option<String>>,
    /// Instructions that come before everything else: a text, or the path of a file with the text
    // A text may start with a dash, as a list does.
    #[arg(long, short, value_name = "TEXT_OR_FILE", allow_hyphen_values = true)]
    system: Option<String>,
    /// The model or agent that answers; overrides that of the session and of the configuration
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// Prefer the `model` of this profile's configuration [env: SYNAPS_PROFILE]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

/// The part of the command line of `synaps` that its clients use.
#[derive(Parser)]
#[command(name = "synaps", version, about = "synaps, served by parlor")]
struct Synaps {
    /// Prefer the `model` of this profile's configuration [env: SYNAPS_PROFILE]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    #[command(subcommand)]
    command: SynapsCommand,
}

#[derive(Subcommand)]
enum SynapsCommand {
    /// Serve the bridge on stdin and stdout, as `parlor stdio synaps` does
    Rpc(Options),
    /// Print the tools
    #[command(name = "tools_list")]
    ToolsList {
        /// Print a JSON array, which is the only format
        #[arg(long)]
        json: bool,
    },
}

/// Behaves as the program `synaps`.
pub(crate) fn serve_as_synaps(arguments: &[OsString], environment: &Environment) -> anyhow::Result<ExitCode> {
    let Synaps { profile, command } = Synaps::parse_from(arguments);
    match command {
        SynapsCommand::Rpc(options) => {
            let profile = options.profile.clone().or(profile);
            serve(Options { profile, ..options }, environment)
        }
        SynapsCommand::ToolsList { json: _ } => {
            let tools: Vec<_> = tools(environment).iter().map(parlor_doors::synaps::tool_to_json).collect();
            crate::json::write_line(&mut std::io::stdout(), &tools)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Serves the door until its client disconnects or the program is asked to end.
pub(crate) fn serve(options: Options, environment: &Environment) -> anyhow::Result<ExitCode> {
    // One thread: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()?;
    let done = runtime.block_on(async {
        let base = base_folder(environment);
        let data_folder = data_folder(environment, &base)?;
        let home = Home::at(environment, settings_folder(environment, &data_folder))?;
        let home = home.with_data_folder(data_folder)?;
        let usable = home.config().clone();
        // The parent may ask for a model of the settings though no agent has one.
        let home = home.with_all_providers();
        let sessions = home.shared_sessions(environment).await?;
        let child = open_session(&sessions, &usable, &home, &base, options, environment).await?;
        let on_disconnect = home.config().when_owner_leaves;
        let client = SessionClient::new(Arc::clone(&sessions), on_disconnect);
        let hand_over = hand_over::on_exit(on_disconnect)?;
        parlor_process::unmap_code();
        parlor_transport::serve_stdio(SynapsMachine::new(child), client).await?;
        hand_over(&sessions).await;
        sessions.close_log().await;
        Ok(ExitCode::SUCCESS)
    });
    // Do not wait for tasks that block on a disk.
    runtime.shutdown_background();
    done
}

/// The folder of the program `synaps`. It has the configuration, and may be the only folder that a service can write to.
struct BaseFolder {
    path: PathBuf,
    /// Whether parlor should keep its state in there: a variable names the folder, or it exists.
    is_used: bool,
}

fn base_folder(environment: &Environment) -> BaseFolder {
    if let Some(path) = &environment.synaps_base {
        return BaseFolder { path: path.into(), is_used: true };
    }
    match &environment.user_home {
        Some(home) => {
            let path = Path::new(home).join(BASE_FOLDER);
            BaseFolder { is_used: path.is_dir(), path }
        }
        None => BaseFolder { path: PathBuf::from(BASE_FOLDER), is_used: true },
    }
}

/// The folder of sessions: `$PARLOR_HOME`, else `parlor` in the folder of `synaps` if that is used, else the usual state
/// folder.
fn data_folder(environment: &Environment, base: &BaseFolder) -> anyhow::Result<PathBuf> {
    if base.is_used && !environment.has_parlor_home() {
        return Ok(std::path::absolute(base.path.join("parlor"))?);
    }
    environment.state_folder()
}

/// The folder of settings and keys: the usual state folder, as for all other doors. If only `data_folder` has settings, or
/// there is no home folder, it is `data_folder`.
fn settings_folder(environment: &Environment, data_folder: &Path) -> PathBuf {
    let has_settings = |folder: &Path| folder.join(settings::FILE).exists();
    match environment.state_folder() {
        Ok(usual) if has_settings(&usual) || !has_settings(data_folder) => usual,
        Ok(_) | Err(_) => data_folder.to_owned(),
    }
}

/// Creates or opens the session, and returns the initial state of the door. `usable` are the settings with the agents that
/// are configured or have a key.
async fn open_session(
    sessions: &Sessions,
    usable: &Config,
    home: &Home,
    base: &BaseFolder,
    options: Options,
    environment: &Environment,
) -> anyhow::Result<ChildParams> {
    let profile = options.profile.as_deref().or(environment.synaps_profile.as_deref());
    let profile = profile.filter(|name| config::is_profile_name(name));
    let configured = config::model(&base.path, profile);
    let mut child = ChildParams {
        session: parlor_vocab::SessionId::parse("")?,
        head: Seq::START,
        is_new: false,
        active: None,
        key_prefix: TimeOrderedIds::new(Arc::new(SystemClock)).next().to_string(),
        new_session: NewSession {
            title: None,
            door: DOOR.to_owned(),
            folder: std::env::current_dir().context("the working folder does not exist any more")?,
            choice: AgentChoice::default(),
            system: options.system.as_deref().map(text_or_file).transpose()?,
            forked_from: None,
        },
        default_model: usable.default_agent.clone(),
        models: models::available(usable),
        routes: models::routes(usable, home.config()),
        tools: tools(environment),
    };
    match &options.resume {
        None => {
            if let Some(model) = options.model.or(configured) {
                child.new_session.choice = child.choice(&model);
            }
            child.session = sessions.create(None, child.new_session.clone()).await?;
            child.head = Seq(1);
            child.is_new = true;
        }
        Some(wanted) => {
            let saved = SavedSessions::new(&base.path, profile);
            let found = match wanted {
                Some(wanted) => resume::find(sessions, &saved, wanted).await?,
                None => resume::find_latest(sessions, &saved).await?,
            };
            child.session = match found {
                Found::Recorded(session) => session,
                Found::Saved(file) => {
                    let template =
                        |model: &str| NewSession { choice: child.choice(model), ..child.new_session.clone() };
                    import::import(sessions, &saved, *file, template).await?
                }
            };
            if let Some(model) = options.model {
                let choice = child.choice(&model);
                sessions.execute(&child.session, SessionCommand::ChooseAgent(choice)).await?;
            }
            let session = sessions.view_without_history(&child.session).await?;
            child.head = session.head();
            child.active = session.active().cloned();
            child.new_session.choice = session.choice().clone();
            let resolved = sessions.resolve(session.choice(), &AgentChoice::default())?;
            if resolved.missing_agent.is_some() {
                // `ready` names what answers; the first turn tells the user.
                let model = resolved.model.or(Some(resolved.agent.to_string()));
                child.new_session.choice =
                    AgentChoice { agent: Some(resolved.agent), model, ..child.new_session.choice };
            }
        }
    }
    Ok(child)
}

fn tools(environment: &Environment) -> Vec<ToolDescription> {
    let tools = home::tools(environment);
    let tools = tools.iter().map(|tool| ToolDescription {
        name: tool.name().to_owned(),
        description: tool.description().to_owned(),
        schema: tool.schema(),
    });
    tools.collect()
}

/// The content of the file `text`, if such a file exists; else `text` itself.
fn text_or_file(text: &str) -> anyhow::Result<String> {
    let path = Path::new(text);
    // For a text that is too long for a path, `is_file` is false.
    if !path.is_file() {
        return Ok(text.to_owned());
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read the instructions in {text}"))
}
