//! Where parlor keeps its state, and what is configured there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use parlor_engine::{Agents, House, Means};
use parlor_log::{SqliteLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, LocalAgent, ScriptAgent};
use parlor_tools::{Shell, Toolbox};
use parlor_vocab::AgentId;
use serde::Deserialize;

/// Names of environment variables that commands do not get, wherever one of these stands in it.
const SECRET_NAMES: [&str; 4] = ["KEY", "SECRET", "TOKEN", "PASSWORD"];

/// The agent that is always there.
const LOCAL: &str = "local";

/// The state folder.
pub(crate) struct Home {
    path: PathBuf,
}

/// `parlor.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    default_agent: Option<String>,
    #[serde(default)]
    agents: BTreeMap<String, AgentSettings>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum AgentSettings {
    Script { name: Option<String>, file: PathBuf },
    Local { name: Option<String> },
}

impl Home {
    /// `$PARLOR_HOME`, or `.parlor` in the user's home folder.
    #[expect(clippy::disallowed_methods, reason = "settings are read here and passed down")]
    pub(crate) fn find() -> anyhow::Result<Self> {
        let path = match (std::env::var_os("PARLOR_HOME"), std::env::var_os("HOME")) {
            (Some(path), _) if !path.is_empty() => PathBuf::from(path),
            (_, Some(home)) if !home.is_empty() => Path::new(&home).join(".parlor"),
            _ => {
                bail!("neither PARLOR_HOME nor HOME is set: say where to keep state with PARLOR_HOME=FOLDER")
            }
        };
        Ok(Self { path: std::path::absolute(&path)? })
    }

    /// Everything that sessions need, with the log in this folder.
    pub(crate) fn house(&self) -> anyhow::Result<House> {
        let clock = Arc::new(SystemClock);
        let log = SqliteLog::open(&self.path, Arc::clone(&clock) as _)
            .with_context(|| format!("cannot keep state in {}", self.path.display()))?;
        Ok(House::new(Means {
            log: Arc::new(log),
            agents: self.agents()?,
            tools: Toolbox::standard(Shell::default()),
            env: environment().into(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        }))
    }

    fn agents(&self) -> anyhow::Result<Agents> {
        let settings = self.settings()?;
        let mut agents: BTreeMap<String, Arc<dyn Agent>> = BTreeMap::new();
        agents.insert(LOCAL.to_owned(), Arc::new(LocalAgent::new("Local")));
        for (id, agent) in settings.agents {
            let agent: Arc<dyn Agent> = match agent {
                AgentSettings::Local { name } => {
                    Arc::new(LocalAgent::new(name.unwrap_or_else(|| id.clone())))
                }
                AgentSettings::Script { name, file } => {
                    let name = name.unwrap_or_else(|| id.clone());
                    Arc::new(ScriptAgent::load(&self.path.join(file), name)?)
                }
            };
            agents.insert(id, agent);
        }
        let default = settings.default_agent.unwrap_or_else(|| LOCAL.to_owned());
        let Some(first) = agents.remove(&default) else {
            let known: Vec<&str> = agents.keys().map(String::as_str).collect();
            bail!("default_agent is {default:?}, which is not configured; there are: {}", known.join(", "));
        };
        let agents = agents
            .into_iter()
            .try_fold(Agents::new(AgentId::parse(&default)?, first), |all, (id, agent)| {
                anyhow::Ok(all.with(AgentId::parse(&id)?, agent))
            })?;
        Ok(agents)
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let file = self.path.join("parlor.toml");
        match std::fs::read_to_string(&file) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("{} is not right", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Settings::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }
}

/// The environment of commands: ours, without what looks like a secret.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| {
            let name = name.to_ascii_uppercase();
            !SECRET_NAMES.iter().any(|secret| name.contains(secret))
        })
        .collect()
}
