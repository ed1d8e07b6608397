//! The state folder, and the house of sessions that is kept in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{EventLog, OPEN_CHECK_WAIT, SqliteLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, LocalAgent, ScriptAgent};
use parlor_process::limit_children;
use parlor_tools::{RubyTool, ShellTool, Toolbox};
use parlor_vocab::AgentId;

use crate::environment::Environment;
use crate::models::{Builder, Keys};
use crate::redaction::Redaction;
use crate::settings::{AgentConfig, AgentKind, Config};

/// How long a server looks for damage in its database when it starts. With the file in memory that is enough for
/// some 700 MiB; `parlor doctor` looks for longer.
const SERVE_CHECK_WAIT: Duration = Duration::from_secs(1);

/// The state folder with what is configured there.
pub(crate) struct Home {
    path: PathBuf,
    config: Config,
    keys: Keys,
    redaction: Redaction,
    /// Where else the user keeps skills.
    skills: Option<PathBuf>,
}

impl Home {
    /// Finds the folder, which need not exist, and reads its settings.
    pub(crate) fn open(environment: &Environment) -> anyhow::Result<Self> {
        Self::at(environment, environment.state_folder()?)
    }

    /// The folder at `path`, which need not exist, with its settings.
    pub(crate) fn at(environment: &Environment, path: PathBuf) -> anyhow::Result<Self> {
        let config = Config::load(&path)?;
        limit_children(config.tools.limits);
        let keys = Keys::open(&path, &config, environment)?;
        let redaction = Redaction::new(&path, &config, environment, keys.redactor());
        let is_set = |name: &str| environment.model_keys.contains(&name);
        let config =
            config.with_keys(|provider| provider.key_variable().is_some_and(is_set) || keys.has(provider));
        Ok(Self { path, config, keys, redaction, skills: None })
    }

    /// The same with an agent for each provider, for whoever gives keys while it runs.
    pub(crate) fn with_all_providers(self) -> Self {
        Self { config: self.config.with_all_providers(), ..self }
    }

    /// The same with the skills in another folder, for agents with models.
    pub(crate) fn with_skills(self, folder: Option<PathBuf>) -> Self {
        Self { skills: folder, ..self }
    }

    /// Where else the user keeps skills.
    pub(crate) fn skills(&self) -> Option<&Path> {
        self.skills.as_deref()
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is configured.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Its keys and logins.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What takes its secrets out of texts.
    pub(crate) fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// What commands get of the environment.
    pub(crate) fn command_environment(&self, environment: &Environment) -> Vec<(String, String)> {
        environment.for_commands(&self.config.tools.environment)
    }

    /// Everything that sessions need, with the log in this folder.
    pub(crate) fn sessions(&self, environment: &Environment) -> anyhow::Result<Sessions> {
        self.house_with(environment, OPEN_CHECK_WAIT, |log| log)
    }

    /// The same for a server, with the log that `wrap` makes of it.
    pub(crate) fn sessions_over(
        &self,
        environment: &Environment,
        wrap: impl FnOnce(Arc<dyn EventLog>) -> Arc<dyn EventLog>,
    ) -> anyhow::Result<Sessions> {
        self.house_with(environment, SERVE_CHECK_WAIT, wrap)
    }

    fn house_with(
        &self,
        environment: &Environment,
        check_wait: Duration,
        wrap: impl FnOnce(Arc<dyn EventLog>) -> Arc<dyn EventLog>,
    ) -> anyhow::Result<Sessions> {
        let clock = Arc::new(SystemClock);
        let agents = agents(self, environment)?;
        let log = SqliteLog::open_checked(&self.path, Arc::clone(&clock) as _, check_wait)
            .with_context(|| format!("cannot keep state in {}", self.path.display()))?;
        let sessions = Sessions::new(SessionDeps {
            log: wrap(Arc::new(log)),
            agents,
            media: MediaStore::open(&self.path)?,
            tools: tools(environment),
            env: self.command_environment(environment).into(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        });
        let sessions = sessions.with_state_folder(&self.path);
        Ok(sessions.with_redaction(Arc::new(self.redaction.clone())))
    }
}

/// The tools that agents have.
pub(crate) fn tools(environment: &Environment) -> Toolbox {
    let ruby = environment.ruby.as_ref().and_then(|ruby| ruby.to_str()).unwrap_or("ruby");
    Toolbox::standard(ShellTool::default()).with(RubyTool::new(ruby))
}

/// The agents that are configured, ready to answer.
pub(crate) fn agents(home: &Home, environment: &Environment) -> anyhow::Result<Agents> {
    let config = home.config();
    let id = |id: &str| AgentId::parse(id).with_context(|| format!("agents.{id:.40} has too long a name"));
    let builder = Builder::new(home, environment);
    let agent = |name: &str, config: &AgentConfig| -> anyhow::Result<Arc<dyn Agent>> {
        Ok(match &config.kind {
            AgentKind::Local => Arc::new(LocalAgent::new(config.name.clone())),
            AgentKind::Script(file) => Arc::new(ScriptAgent::load(file, config.name.clone())?),
            AgentKind::Model(mind) => {
                let agent = builder.agent(&config.name, mind);
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
