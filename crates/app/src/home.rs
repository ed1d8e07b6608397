//! The state folder: its settings, keys, and the session registry over its log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{Announcement, EventLog, OPEN_CHECK_WAIT, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, LocalAgent, ScriptAgent};
use parlor_process::set_child_limits;
use parlor_tools::{RubyTool, ShellTool, Toolbox};
use parlor_vocab::AgentId;

use crate::environment::Environment;
use crate::event_log;
use crate::models::{Builder, Keys};
use crate::peer_door::{self, PeerDoor};
use crate::redaction::Redaction;
use crate::settings::{AgentConfig, AgentKind, Config};
use crate::state_folder_trust;

/// How long a server checks its database for damage when it starts. With the file in the page cache that is enough for
/// about 700 MiB; `parlor doctor` checks for longer.
const SERVE_CHECK_WAIT: Duration = Duration::from_secs(1);

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
    /// Finds the state folder and reads its settings. The folder need not exist.
    pub(crate) fn open(environment: &Environment) -> anyhow::Result<Self> {
        Self::at(environment, environment.state_folder()?)
    }

    /// Reads the settings of the state folder at `path`, which need not exist.
    pub(crate) fn at(environment: &Environment, path: PathBuf) -> anyhow::Result<Self> {
        let config = Config::load(&path)?;
        set_child_limits(config.tools.limits);
        let keys = Keys::open(&path, &config, environment)?;
        let redaction = Redaction::new(&path, &config, environment, keys.redactor());
        let is_set = |name: &str| environment.model_keys.contains(&name);
        let config = config.with_keys(|provider| {
            provider.key_variable().is_some_and(is_set) || keys.has_credential(provider)
        });
        Ok(Self { path, data_folder: None, config, keys, redaction, skill_folder: None })
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
        let sessions =
            self.open_sessions(environment, OPEN_CHECK_WAIT, Announcement::default(), |log| log).await?;
        let sessions = sessions.leaving_queued_inputs();
        Ok(Arc::new(peer_door::connect(self.data_folder(), self.config.joins_sessions, sessions)))
    }

    /// Like [`sessions`](Self::sessions), for a process that stays: others reach its sessions too.
    pub(crate) async fn shared_sessions(&self, environment: &Environment) -> anyhow::Result<Arc<Sessions>> {
        let door = PeerDoor::open(self.data_folder(), self.config.joins_sessions);
        let sessions =
            self.open_sessions(environment, OPEN_CHECK_WAIT, door.announcement(), |log| log).await?;
        let sessions = Arc::new(door.connect(sessions));
        door.serve(&sessions);
        Ok(sessions)
    }

    /// Opens the session registry for a server that `door` serves: `wrap` may put a layer around the log, and the database
    /// check is short.
    pub(crate) async fn sessions_for_server(
        &self,
        environment: &Environment,
        door: &PeerDoor,
        wrap: impl FnOnce(Arc<dyn EventLog>) -> Arc<dyn EventLog>,
    ) -> anyhow::Result<Sessions> {
        let sessions = self.open_sessions(environment, SERVE_CHECK_WAIT, door.announcement(), wrap).await?;
        Ok(door.connect(sessions))
    }

    /// The folder of the SQLite log and of attached files.
    fn data_folder(&self) -> &Path {
        self.data_folder.as_deref().unwrap_or(&self.path)
    }

    async fn open_sessions(
        &self,
        environment: &Environment,
        check_wait: Duration,
        announcement: Announcement,
        wrap: impl FnOnce(Arc<dyn EventLog>) -> Arc<dyn EventLog>,
    ) -> anyhow::Result<Sessions> {
        let clock = Arc::new(SystemClock);
        let agents = agents(self, environment)?;
        let folder = self.data_folder();
        let log = event_log::open(&self.config, folder, announcement, check_wait).await?;
        let sessions = Sessions::new(SessionDeps {
            log: wrap(log),
            agents,
            media: MediaStore::open(folder)?,
            tools: tools(environment),
            env: self.command_environment(environment).into(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        });
        let own_folders = std::iter::once(&self.path).chain(&self.data_folder);
        let sessions = own_folders.fold(sessions, |sessions, folder| sessions.with_state_folder(folder));
        Ok(sessions.with_redaction(Arc::new(self.redaction.clone())))
    }
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
            AgentKind::Local => Arc::new(LocalAgent::new(config.name.clone())),
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
