//! The state folder: its settings, keys, and the session registry over its log.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_auth::Redactor;
use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{Announcement, EventLog, OPEN_CHECK_WAIT, SystemClock, TimeOrderedIds};
use parlor_model::provider::ProviderKind;
use parlor_model::{Agent, LocalAgent, ScriptAgent};
use parlor_process::set_child_limits;
use parlor_tools::{McpLogin, McpServers, ProjectMcpServers, RubyTool, ShellTool, Toolbox};
use parlor_undo::UndoStore;
use parlor_vocab::AgentId;

use crate::environment::Environment;
use crate::event_log::OpenLog;
use crate::mcp;
use crate::models::{Builder, Keys};
use crate::peer_door::{PeerDoor, Reachable};
use crate::redaction::Redaction;
use crate::rules::ProjectRules;
use crate::settings::{self, AgentConfig, AgentKind, Config};
use crate::state_folder_trust;

/// How long a server checks its database for damage when it starts. With the file in the page cache that is enough for
/// about 700 MiB; `parlor doctor` checks for longer.
const SERVE_CHECK_WAIT: Duration = Duration::from_secs(1);

/// What a process opened together with its sessions.
pub(crate) struct OpenedHome {
    /// To be served by a process that others reach.
    pub(crate) door: PeerDoor,
    pub(crate) log: OpenLog,
}

/// The state folder with its settings and keys.
pub(crate) struct Home {
    path: PathBuf,
    /// The folder of the log and of attached files, if it is not `path`.
    data_folder: Option<PathBuf>,
    config: Config,
    keys: Keys,
    redaction: Redaction,
    /// A further folder with skills for agents with models.
    skill_folder: Option<PathBuf>,
}

impl Home {
    /// Finds the state folder and reads its settings. The folder need not exist. Names settings that this version does not
    /// know on stderr.
    pub(crate) fn open(environment: &Environment) -> anyhow::Result<Self> {
        let home = Self::find(environment)?;
        for unknown in &home.config.unknown_settings {
            // If nobody reads stderr, the command still works.
            let _ = writeln!(stderr(), "Warning: a part of {} is ignored: {unknown}", settings::FILE);
        }
        Ok(home)
    }

    /// Like [`open`](Self::open), and prints nothing.
    pub(crate) fn find(environment: &Environment) -> anyhow::Result<Self> {
        Self::at(environment, environment.state_folder()?)
    }

    /// Reads the settings of the state folder at `path`, which need not exist.
    pub(crate) fn at(environment: &Environment, path: PathBuf) -> anyhow::Result<Self> {
        let (config, keys) = read_settings(environment, &path, Redactor::new())?;
        set_child_limits(config.tools.limits);
        let redaction = Redaction::new(&path, &config, environment, keys.redactor());
        Ok(Self { path, data_folder: None, config, keys, redaction, skill_folder: None })
    }

    /// This state folder with the settings that are in its file now, and an agent for each provider. The secrets of both
    /// the old and the new settings stay out of texts.
    pub(crate) fn reload(&self, environment: &Environment) -> anyhow::Result<Self> {
        let (config, keys) = read_settings(environment, &self.path, self.keys.redactor().clone())?;
        let redaction = self.redaction.clone();
        redaction.learn_settings(&config, environment);
        let (path, data_folder) = (self.path.clone(), self.data_folder.clone());
        let skill_folder = self.skill_folder.clone();
        Ok(Self { path, data_folder, config, keys, redaction, skill_folder }.with_all_providers())
    }

    /// Keeps the log and attached files in `folder`; settings and keys stay where they are. Fails if other users could have
    /// written to the folder.
    pub(crate) fn with_data_folder(self, folder: PathBuf) -> anyhow::Result<Self> {
        state_folder_trust::check(&folder)?;
        Ok(Self { data_folder: Some(folder).filter(|folder| *folder != self.path), ..self })
    }

    /// Uses the log at `url` instead of the one that the settings name, if it is given.
    pub(crate) fn with_log_url(mut self, url: Option<&str>) -> anyhow::Result<Self> {
        let log =
            self.config.log.with_url(url).map_err(|error| anyhow::anyhow!("the address of --log {error}"))?;
        log.password_in_url().iter().for_each(|password| self.redaction.learner()(password));
        self.config.log = log;
        Ok(self)
    }

    /// Adds an agent for each provider, for a process that may get keys while it runs.
    pub(crate) fn with_all_providers(self) -> Self {
        Self { config: self.config.with_all_providers(), ..self }
    }

    /// Adds a folder with skills for agents with models.
    pub(crate) fn with_skill_folder(self, folder: Option<PathBuf>) -> Self {
        Self { skill_folder: folder, ..self }
    }

    /// The folder that [`with_skill_folder`](Self::with_skill_folder) added.
    pub(crate) fn skill_folder(&self) -> Option<&Path> {
        self.skill_folder.as_deref()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The settings, with the agents that exist because a key is there.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The keys and logins of model providers.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Removes all secrets of this state folder from texts.
    pub(crate) fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// The environment variables that commands of agents get.
    pub(crate) fn command_environment(&self, environment: &Environment) -> Vec<(String, String)> {
        environment.for_commands(&self.config.tools.environment)
    }

    /// Opens the session registry over the log, for a command that ends soon: it reaches sessions that other
    /// processes have open, but they do not reach its own. Must be called within a tokio runtime.
    pub(crate) async fn sessions(&self, environment: &Environment) -> anyhow::Result<Arc<Sessions>> {
        let (sessions, _) =
            self.open_sessions(environment, OPEN_CHECK_WAIT, Reachable::No, |log| log).await?;
        Ok(Arc::new(sessions.leaving_queued_inputs()))
    }

    /// Like [`sessions`](Self::sessions), for a process that stays: others reach its sessions too.
    pub(crate) async fn shared_sessions(&self, environment: &Environment) -> anyhow::Result<Arc<Sessions>> {
        let (sessions, opened) =
            self.open_sessions(environment, OPEN_CHECK_WAIT, Reachable::BesideServer, |log| log).await?;
        let sessions = Arc::new(sessions);
        opened.door.serve(&sessions);
        Ok(sessions)
    }

    /// Opens the session registry for a server, which then serves the returned door: `wrap` may put a layer around the log,
    /// and the database check is short.
    pub(crate) async fn sessions_for_server(
        &self,
        environment: &Environment,
        wrap: impl FnOnce(Arc<dyn EventLog>) -> Arc<dyn EventLog>,
    ) -> anyhow::Result<(Sessions, OpenedHome)> {
        self.open_sessions(environment, SERVE_CHECK_WAIT, Reachable::AsServer, wrap).await
    }

    /// The configured MCP servers, which are not started yet.
    pub(crate) fn mcp_servers(&self, environment: &Environment) -> anyhow::Result<McpServers> {
        let folder = std::env::current_dir().context("the working folder is gone")?;
        let env = self.command_environment(environment);
        let variable = |name: &str| environment.variable(name);
        let configs = self.config.mcp.iter();
        let configs = configs.filter_map(|(name, server)| server.config(name, &env, variable, &folder));
        let login = |name: &str| mcp::server_login(self, name).map(|login| login as Arc<dyn McpLogin>);
        Ok(McpServers::with_logins(configs.collect(), login))
    }

    /// The MCP servers that projects bring. They get the environment of agents' commands and nothing else of parlor's.
    pub(crate) fn project_mcp_servers(&self, environment: &Environment) -> ProjectMcpServers {
        let taken = self.config.mcp.keys().cloned();
        ProjectMcpServers::new(taken, self.command_environment(environment), self.redaction.new_learner())
    }

    /// The folder of the SQLite log and of attached files.
    fn data_folder(&self) -> &Path {
        self.data_folder.as_deref().unwrap_or(&self.path)
    }

    async fn open_sessions(
        &self,
        environment: &Environment,
        check_wait: Duration,
        reachable: Reachable,
        wrap: impl FnOnce(Arc<dyn EventLog>) -> Arc<dyn EventLog>,
    ) -> anyhow::Result<(Sessions, OpenedHome)> {
        let clock = Arc::new(SystemClock);
        let agents = agents(self, environment)?;
        let folder = self.data_folder();
        let log = OpenLog::open(&self.config, folder, check_wait).await?;
        let door = PeerDoor::open(folder, &self.config, &log, reachable).await?;
        // Others find no process by its address that they cannot use.
        let announcement =
            if reachable == Reachable::No { Announcement::default() } else { door.announcement() };
        log.announce(announcement).await?;
        let sessions = Sessions::new(SessionDeps {
            log: wrap(log.as_log()),
            agents,
            media: MediaStore::open(folder)?.with_shared(log.shared_media()),
            tools: tools(environment),
            env: self.command_environment(environment).into(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        });
        let sessions = match self.config.mcp.is_empty() {
            true => sessions,
            false => sessions.with_tool_source(Arc::new(self.mcp_servers(environment)?)),
        };
        let sessions = sessions.with_project_servers(Arc::new(self.project_mcp_servers(environment)));
        let own_folders = std::iter::once(&self.path).chain(&self.data_folder);
        let sessions = own_folders.fold(sessions, |sessions, folder| sessions.with_state_folder(folder));
        let user_home = environment.user_home.as_deref().map(Path::new);
        let policy = self.config.policy.settings(user_home).map_err(anyhow::Error::msg)?;
        let projects = ProjectRules::new(&self.path, user_home);
        let sessions = sessions.with_policy(policy, Arc::new(projects));
        let sessions = sessions.with_undo(UndoStore::new(folder));
        let sessions = door.connect(sessions.with_redaction(Arc::new(self.redaction.clone())));
        Ok((sessions, OpenedHome { door, log }))
    }
}

/// Reads the settings and opens the keys. `redactor` learns the keys.
fn read_settings(
    environment: &Environment,
    path: &Path,
    redactor: Redactor,
) -> anyhow::Result<(Config, Keys)> {
    let config = Config::load(path)?;
    let keys = Keys::open(path, &config, environment, redactor)?;
    let is_set = |name: &str| environment.model_keys.contains(&name);
    let has_key =
        |provider: ProviderKind| provider.key_variable().is_some_and(is_set) || keys.has_credential(provider);
    Ok((config.with_keys(has_key), keys))
}

/// The tools that agents can use.
pub(crate) fn tools(environment: &Environment) -> Toolbox {
    let ruby = environment.ruby.as_ref().and_then(|ruby| ruby.to_str()).unwrap_or("ruby");
    Toolbox::standard(ShellTool::default()).with(RubyTool::new(ruby))
}

/// Builds the configured agents.
pub(crate) fn agents(home: &Home, environment: &Environment) -> anyhow::Result<Agents> {
    let config = home.config();
    let id = |id: &str| {
        AgentId::parse(id).with_context(|| format!("the agent name in agents.{id:.40} is too long"))
    };
    let builder = Builder::new(home, environment);
    let agent = |name: &str, config: &AgentConfig| -> anyhow::Result<Arc<dyn Agent>> {
        Ok(match &config.kind {
            AgentKind::Local { runs_commands } => {
                let agent = LocalAgent::new(config.name.clone());
                Arc::new(if *runs_commands { agent } else { agent.without_commands() })
            }
            AgentKind::Script(file) => Arc::new(ScriptAgent::load(file, config.name.clone())?),
            AgentKind::Model(model_agent) => {
                let agent = builder.agent(&config.name, model_agent);
                Arc::new(agent.with_context(|| format!("agents.{name} cannot be used"))?)
            }
        })
    };
    let default = &config.default_agent;
    let first = config.agents.get(default).context("the default agent is one of the agents")?;
    let mut agents = Agents::new(id(default)?, agent(default, first)?);
    for (name, other) in config.agents.iter().filter(|(name, _)| *name != default) {
        agents = agents.with(id(name)?, agent(name, other)?);
    }
    Ok(agents)
}
