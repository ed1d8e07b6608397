//! Reads `parlor.toml` into a [`Config`] of checked values.
//!
//! [`table`] lists every setting; the reader, the error messages and `docs/settings.md` are all derived from it. This
//! module only checks values; the modules that get a value decide what it does.

pub(crate) mod auth;
pub(crate) mod check;
pub(crate) mod cluster;
mod kind;
pub(crate) mod log;
mod lookup;
pub(crate) mod mcp;
pub(crate) mod models;
mod page;
pub(crate) mod policy;
mod read;
pub(crate) mod show;
pub(crate) mod size;
pub(crate) mod supex;
pub(crate) mod supr;
pub(crate) mod table;
mod tools;
pub(crate) mod without_secrets;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use parlor_engine::OnDisconnect;
use parlor_model::provider::ProviderKind;
use parlor_transport::AllowLocal;

use self::auth::{LoginConfig, LoginDrafts};
use self::cluster::ClusterConfig;
use self::log::LogConfig;
use self::mcp::{McpDrafts, McpSettings};
use self::models::{BUILT_IN, ModelAgentConfig, ModelConfig, ModelDrafts, SpendingConfig};
use self::policy::PolicyConfig;
use self::read::{Assignment, FileSettings, Value};
use self::supex::SupexConfig;
use self::supr::SuprConfig;
use self::table::SETTINGS_BYTES;
use self::tools::ToolsConfig;
use crate::state_folder_trust;

/// The id of the built-in agent, which always exists.
pub(crate) const LOCAL: &str = "local";

/// The file's name in the state folder.
pub(crate) const FILE: &str = "parlor.toml";

/// The settings of a state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The id of the agent that answers if none is chosen. One of `agents`.
    pub(crate) default_agent: String,
    /// All agents by id, including the built-in one.
    pub(crate) agents: BTreeMap<String, AgentConfig>,
    /// All models by name, including [`BUILT_IN`].
    pub(crate) models: BTreeMap<String, ModelConfig>,
    /// The limits of cost.
    pub(crate) spending: SpendingConfig,
    /// What the file has and this version does not know.
    pub(crate) unknown_settings: Vec<SettingsError>,
    /// Whether the file sets `default_agent`.
    is_default_chosen: bool,
    /// Whether the file itself configures agents with models.
    has_configured_model_agents: bool,
    /// The providers that one can log in to, by name.
    pub(crate) auth: BTreeMap<String, LoginConfig>,
    /// Whether clients of the exec door may make HTTP requests to this machine and to private networks.
    pub(crate) exec_allows_private_urls: bool,
    /// Where the events of sessions are kept.
    pub(crate) log: LogConfig,
    /// `[cluster]`.
    pub(crate) cluster: ClusterConfig,
    /// What agents may do.
    pub(crate) policy: PolicyConfig,
    /// The limits of `parlor gc`.
    pub(crate) retention: RetentionConfig,
    /// Whether to store secrets in the system's keyring if there is one.
    pub(crate) keyring: bool,
    /// Which local users need no token for the doors of a server.
    pub(crate) allow_local: AllowLocal,
    /// Whether the ACP door tells its clients how many tokens a turn used.
    pub(crate) sends_acp_usage: bool,
    /// Whether processes join each other's sessions.
    pub(crate) joins_sessions: bool,
    /// What a stdio door does with the sessions of its process when its client leaves.
    pub(crate) when_owner_leaves: OnDisconnect,
    /// How many bytes of large frames all connections together may hold; `None` means no limit.
    pub(crate) max_frame_memory: Option<u64>,
    /// The MCP servers whose tools agents may call.
    pub(crate) mcp: BTreeMap<String, McpSettings>,
    /// The tools that clients of the MCP door may call over HTTP, beside those that only read.
    pub(crate) mcp_tools: Vec<String>,
    /// The settings of the Supex doors.
    pub(crate) supex: SupexConfig,
    /// The settings of the supr door and the web page.
    pub(crate) supr: SuprConfig,
    /// The variables and limits of processes that parlor starts for agents and clients.
    pub(crate) tools: ToolsConfig,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentConfig {
    /// The name that people see.
    pub(crate) name: String,
    pub(crate) kind: AgentKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentKind {
    /// The built-in agent, which needs no model.
    Local {
        /// Whether it runs commands and Ruby.
        runs_commands: bool,
    },
    /// An agent that plays back the script in this file.
    Script(PathBuf),
    /// An agent with a model.
    Model(Box<ModelAgentConfig>),
}

/// The limits of `parlor gc`. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetentionConfig {
    /// Whether a server deletes what exceeds the limits by itself.
    pub(crate) is_automatic: bool,
    /// A session is deleted this many days after its last use.
    pub(crate) days: Option<u64>,
    /// The largest size of all sessions together, in bytes.
    pub(crate) max_size: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        let local = AgentConfig { name: "Local".to_owned(), kind: AgentKind::Local { runs_commands: true } };
        Self {
            default_agent: LOCAL.to_owned(),
            agents: BTreeMap::from([(LOCAL.to_owned(), local)]),
            models: BUILT_IN
                .into_iter()
                .map(|(provider, model)| (provider.name().to_owned(), ModelConfig::new(provider, model)))
                .collect(),
            spending: SpendingConfig::default(),
            unknown_settings: Vec::new(),
            is_default_chosen: false,
            has_configured_model_agents: false,
            auth: BTreeMap::new(),
            exec_allows_private_urls: false,
            log: LogConfig::default(),
            cluster: ClusterConfig::default(),
            policy: PolicyConfig::default(),
            retention: RetentionConfig { is_automatic: false, days: Some(90), max_size: Some(10 << 30) },
            keyring: true,
            allow_local: AllowLocal::default(),
            sends_acp_usage: true,
            joins_sessions: true,
            when_owner_leaves: OnDisconnect::Stop,
            max_frame_memory: Some(parlor_transport::DEFAULT_FRAME_MEMORY as u64),
            mcp: BTreeMap::new(),
            mcp_tools: Vec::new(),
            supex: SupexConfig::default(),
            supr: SuprConfig::default(),
            tools: ToolsConfig::default(),
        }
    }
}

impl Config {
    /// Reads `parlor.toml` in the state folder; without the file, all settings have their defaults. Fails if other users
    /// could have written to the folder.
    pub(crate) fn load(home: &Path) -> anyhow::Result<Self> {
        state_folder_trust::check(home)?;
        let file = home.join(FILE);
        let text = match read_text(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        Self::parse(home, &text).with_context(|| format!("{} is not valid", file.display()))
    }

    /// Whether the settings themselves have a token or a password.
    pub(crate) fn has_secret(&self) -> bool {
        self.supr.token.is_some()
            || self.supex.token.is_some()
            || self.supex.upstream_token.is_some()
            || self.log.password_in_url().is_some()
            || self.mcp.values().any(|server| !server.secrets(|_| None).is_empty())
    }

    /// Checks the text of a settings file in the state folder `home`.
    pub(crate) fn check_text(home: &Path, text: &str) -> anyhow::Result<()> {
        Ok(Self::parse(home, text).map(drop)?)
    }

    fn parse(home: &Path, text: &str) -> Result<Self, SettingsError> {
        let FileSettings { assignments, problems, unknown } = read::read(text)?;
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(Self { unknown_settings: unknown, ..Self::from_assignments(home, assignments)? }),
        }
    }

    fn from_assignments(home: &Path, assignments: Vec<Assignment>) -> Result<Self, SettingsError> {
        let mut config = Self::default();
        let mut agents: BTreeMap<String, AgentDraft> = BTreeMap::new();
        let mut logins = LoginDrafts::default();
        let mut models = ModelDrafts::default();
        let mut servers = McpDrafts::default();
        let mut default_line = None;
        for Assignment { path, value, line } in assignments {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match (path.as_slice(), value) {
                (["default_agent"], Value::Text(agent)) => {
                    config.default_agent = agent;
                    config.is_default_chosen = true;
                    default_line = Some(line);
                }
                (["agents", id, member], value) => {
                    agents
                        .entry((*id).to_owned())
                        .or_insert_with(|| AgentDraft::new(line))
                        .set(member, value);
                }
                (["mcp", name, member @ ..], value) => servers.set(name, member, value, line),
                (["models", name, member @ ..], value) => models.set(name, member, value, line),
                (["default_models", provider], Value::Text(model)) => {
                    if let Some(known) = config.models.get_mut(*provider) {
                        known.model = model;
                    }
                }
                (["spending", "session"], Value::Money(micros)) => config.spending.session = micros,
                (["spending", "day"], Value::Money(micros)) => config.spending.day = micros,
                (["auth", name, member @ ..], value) => logins.set(name, member, value, line),
                (["channels", "mcp", "tools"], Value::List(tools)) => config.mcp_tools = tools,
                (["channels", "supex", member], value) => config.supex.set(member, value),
                (["channels", "supr", member], value) => config
                    .supr
                    .set(member, value)
                    .map_err(|error| SettingsError::at(line, format!("channels.supr.{member}: {error}")))?,
                (["tools", member], value) => config
                    .tools
                    .set(member, value)
                    .map_err(|error| SettingsError::at(line, format!("tools.{member}: {error}")))?,
                (["exec", "allow_private_urls"], Value::Flag(allowed)) => {
                    config.exec_allows_private_urls = allowed;
                }
                (["cluster", member], value) => config
                    .cluster
                    .set(home, member, value)
                    .map_err(|error| SettingsError::at(line, format!("cluster.{member}: {error}")))?,
                (["log", member], value) => config
                    .log
                    .set(home, member, value)
                    .map_err(|error| SettingsError::at(line, format!("log.{member}: {error}")))?,
                (["policy", member], value) => config
                    .policy
                    .set(member, value)
                    .map_err(|error| SettingsError::at(line, format!("policy.{member}: {error}")))?,
                (["retention", _], Value::Flag(is_automatic)) => config.retention.is_automatic = is_automatic,
                (["retention", _], Value::Days(days)) => config.retention.days = days,
                (["retention", _], Value::Size(size)) => config.retention.max_size = size,
                (["serve", "max_frame_memory"], Value::Size(size)) => config.max_frame_memory = size,
                (["secrets", "keyring"], Value::Flag(is_used)) => config.keyring = is_used,
                (["serve", "allow_local"], Value::Text(word)) => {
                    config.allow_local = if word == "token" { AllowLocal::Token } else { AllowLocal::User };
                }
                (["acp", "usage_updates"], Value::Flag(sends)) => config.sends_acp_usage = sends,
                (["sessions", "join"], Value::Flag(joins)) => config.joins_sessions = joins,
                (["sessions", "when_owner_leaves"], Value::Text(word)) => {
                    let hands_over = word == "hand-over";
                    config.when_owner_leaves =
                        if hands_over { OnDisconnect::HandOver } else { OnDisconnect::Stop };
                }
                (path, _) => unreachable!("no code handles the setting {path:?}"),
            }
        }
        config.auth = logins.finish()?;
        config.mcp = servers.finish()?;
        config.models.extend(models.finish()?);
        let mut agents: Vec<(String, AgentDraft)> = agents.into_iter().collect();
        agents.sort_by_key(|(_, draft)| draft.line);
        for (id, draft) in agents {
            let agent = draft.finish(home, &id, &config.models)?;
            if matches!(agent.kind, AgentKind::Model(_))
                && !config.has_model_agent()
                && !config.is_default_chosen
            {
                config.default_agent.clone_from(&id);
            }
            config.agents.insert(id, agent);
        }
        if !config.agents.contains_key(&config.default_agent) {
            let known: Vec<&str> = config.agents.keys().map(String::as_str).collect();
            let (default_agent, known) = (&config.default_agent, known.join(", "));
            let message =
                format!("default_agent is {default_agent:?}, which is not configured; there are: {known}");
            return Err(SettingsError { line: default_line, message });
        }
        config.has_configured_model_agents = config.has_model_agent();
        Ok(config)
    }

    /// Unless the file configures agents with models, adds an agent for each provider that `has_key` accepts. The first
    /// of them becomes the default agent.
    pub(crate) fn with_keys(mut self, has_key: impl Fn(ProviderKind) -> bool) -> Self {
        if self.has_configured_model_agents {
            return self;
        }
        for (provider, _) in BUILT_IN {
            if !has_key(provider) || self.agents.contains_key(provider.name()) {
                continue;
            }
            if !self.has_model_agent() && !self.is_default_chosen {
                self.default_agent = provider.name().to_owned();
            }
            self.add_model_agent(provider);
        }
        self
    }

    /// Unless the file configures agents with models, adds an agent for every provider, because keys may come later. The
    /// default agent stays the same.
    pub(crate) fn with_all_providers(mut self) -> Self {
        if !self.has_configured_model_agents {
            BUILT_IN.into_iter().for_each(|(provider, _)| self.add_model_agent(provider));
        }
        self
    }

    fn add_model_agent(&mut self, provider: ProviderKind) {
        let name = provider.name().to_owned();
        let kind = AgentKind::Model(Box::new(ModelAgentConfig::new(&name)));
        self.agents.entry(name.clone()).or_insert(AgentConfig { name, kind });
    }

    /// Whether the file configures agents with models. Otherwise those that exist come from keys.
    pub(crate) fn has_configured_model_agents(&self) -> bool {
        self.has_configured_model_agents
    }

    fn has_model_agent(&self) -> bool {
        self.agents.values().any(|agent| matches!(agent.kind, AgentKind::Model(_)))
    }
}

/// An error in `parlor.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingsError {
    /// Counted from 1; `None` if the error has no line.
    line: Option<usize>,
    message: String,
}

impl SettingsError {
    fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for SettingsError {}

/// The settings of an agent while the file is being read.
struct AgentDraft {
    /// The line of its first setting.
    line: usize,
    kind: Option<String>,
    name: Option<String>,
    file: Option<PathBuf>,
    commands: Option<bool>,
    model_agent: ModelAgentConfig,
    /// The last setting in the file that only an agent with a model may have.
    model_setting: Option<String>,
}

impl AgentDraft {
    fn new(line: usize) -> Self {
        let model_agent = ModelAgentConfig::new("");
        Self { line, kind: None, name: None, file: None, commands: None, model_agent, model_setting: None }
    }

    fn set(&mut self, member: &str, value: Value) {
        match (member, value) {
            ("kind", Value::Text(kind)) => self.kind = Some(kind),
            ("name", Value::Text(name)) => self.name = Some(name),
            ("file", Value::File(file)) => self.file = Some(file),
            ("commands", Value::Flag(runs)) => self.commands = Some(runs),
            (member, value) if self.model_agent.set(member, value.clone()) => {
                self.model_setting = Some(member.to_owned());
            }
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
    }

    fn finish(
        self,
        home: &Path,
        id: &str,
        models: &BTreeMap<String, ModelConfig>,
    ) -> Result<AgentConfig, SettingsError> {
        let error = |message: &str| SettingsError::at(self.line, format!("agents.{id} {message}"));
        if let (Some("local" | "script"), Some(member)) = (self.kind.as_deref(), &self.model_setting) {
            return Err(error(&format!("has {member}, which is only for kind = \"model\"")));
        }
        let kind = self.kind.as_deref().or((id == LOCAL).then_some("local"));
        if self.commands.is_some() && kind != Some("local") {
            return Err(error("has commands, which is only for kind = \"local\""));
        }
        let kind = match (kind, self.file) {
            (Some("script"), Some(file)) => AgentKind::Script(home.join(file)),
            (Some("script"), None) => return Err(error("needs a file: add file = \"….toml\"")),
            (Some("model"), None) => {
                if self.model_agent.model.is_empty() {
                    return Err(error(
                        "needs a model: add model = \"openai\" or the name of one in [models]",
                    ));
                }
                let used = std::iter::once(&self.model_agent.model).chain(&self.model_agent.fallback);
                if let Some(unknown) = used.into_iter().find(|name| !models.contains_key(*name)) {
                    let known: Vec<&str> = models.keys().map(String::as_str).collect();
                    let known = known.join(", ");
                    return Err(error(&format!(
                        "uses {unknown:?}, which is not a model; there are: {known}"
                    )));
                }
                AgentKind::Model(Box::new(self.model_agent))
            }
            (Some(_), None) => AgentKind::Local { runs_commands: self.commands.unwrap_or(true) },
            (Some(_), Some(_)) => return Err(error("has a file, which is only for kind = \"script\"")),
            (None, _) => {
                return Err(error(
                    "needs a kind: add kind = \"script\", kind = \"model\" or kind = \"local\"",
                ));
            }
        };
        Ok(AgentConfig { name: self.name.unwrap_or_else(|| id.to_owned()), kind })
    }
}

fn read_text(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    // Opening a FIFO would wait for somebody who writes to it.
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    std::fs::File::open(file)?.take(SETTINGS_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SETTINGS_BYTES {
        return Err(std::io::Error::other(format!("the file is larger than {SETTINGS_BYTES} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/home"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(parse(""), Ok(Config::default()));
    }

    #[test]
    fn agents_and_retention_are_read() {
        let config = parse(
            "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n\
             [agents.local]\nkind = \"local\"\nname = \"Mine\"\n[retention]\nautomatic = true\ndays = \"never\"\nmax_size = \"1MiB\"",
        )
        .unwrap();
        let demo = AgentKind::Script("/home/demo.toml".into());
        assert_eq!(config.agents["demo"], AgentConfig { name: "demo".to_owned(), kind: demo });
        assert_eq!(config.agents["local"].name, "Mine");
        assert_eq!(config.default_agent, "demo");
        assert_eq!(
            config.retention,
            RetentionConfig { is_automatic: true, days: None, max_size: Some(1 << 20) }
        );
    }

    #[test]
    fn allow_local_is_user_or_token() {
        assert_eq!(parse("").unwrap().allow_local, AllowLocal::User);
        assert_eq!(parse("[serve]\nallow_local = \"user\"").unwrap().allow_local, AllowLocal::User);
        assert_eq!(parse("[serve]\nallow_local = \"token\"").unwrap().allow_local, AllowLocal::Token);
        for wrong in ["\"all\"", "\"\"", "true", "\"Token\""] {
            assert!(parse(&format!("[serve]\nallow_local = {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_agent_needs_a_kind_and_only_the_settings_of_that_kind() {
        assert_eq!(
            parse("\n[agents.a]\nname = \"x\"").unwrap_err(),
            "line 3: agents.a needs a kind: add kind = \"script\", kind = \"model\" or kind = \"local\""
        );
        assert!(parse("[agents.a]\nkind = \"script\"").unwrap_err().contains("needs a file"));
        assert!(parse("[agents.a]\nkind = \"local\"\nfile = \"x\"").unwrap_err().contains("only for"));
    }

    #[test]
    fn the_default_agent_must_exist() {
        assert_eq!(
            parse("default_agent = \"x\"").unwrap_err(),
            "line 1: default_agent is \"x\", which is not configured; there are: local"
        );
    }

    #[test]
    fn a_file_of_the_largest_size_is_read_and_one_byte_more_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let most = usize::try_from(SETTINGS_BYTES).unwrap();
        std::fs::write(&file, "#".repeat(most)).unwrap();
        assert_eq!(Config::load(folder.path()).unwrap(), Config::default());
        std::fs::write(&file, "#".repeat(most + 1)).unwrap();
        assert!(
            format!("{:#}", Config::load(folder.path()).unwrap_err()).contains("larger than 1048576 bytes")
        );
    }
}
