//! `parlor.toml`: its text is read once and becomes a [`Config`] of checked values.
//!
//! [`table`] names every setting; reading, the errors and `docs/settings.md` all follow it. What a
//! setting does is decided by whoever is given the value.

pub(crate) mod auth;
mod kind;
pub(crate) mod models;
mod page;
mod read;
pub(crate) mod show;
pub(crate) mod size;
pub(crate) mod supex;
pub(crate) mod supr;
pub(crate) mod table;
mod tools;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use parlor_model::provider::ProviderKind;
use parlor_transport::AllowLocal;

use self::auth::{Drafts, LoginConfig};
use self::models::{BUILT_IN, ModelAgentConfig, ModelConfig, Spending};
use self::read::{Found, Value};
use self::supex::SupexConfig;
use self::supr::SuprConfig;
use self::table::SETTINGS_BYTES;
use self::tools::ToolsConfig;
use crate::ownership;

/// The agent that is always there.
pub(crate) const LOCAL: &str = "local";

/// The file's name in the state folder.
pub(crate) const FILE: &str = "parlor.toml";

/// What is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Who answers where nobody is asked for. One of `agents`.
    pub(crate) default_agent: String,
    /// All agents by name, with the one that is always there.
    pub(crate) agents: BTreeMap<String, AgentConfig>,
    /// All models by name, with those that need no setting.
    pub(crate) models: BTreeMap<String, ModelConfig>,
    /// What may be spent.
    pub(crate) spending: Spending,
    /// Whether somebody chose the default agent.
    is_default_chosen: bool,
    /// Whether the file has agents with models.
    are_minds_given: bool,
    /// Where one can log in to, by name.
    pub(crate) auth: BTreeMap<String, LoginConfig>,
    /// What `parlor gc` keeps.
    pub(crate) retention: Retention,
    /// Whether secrets are kept in the system's keyring where there is one.
    pub(crate) keyring: bool,
    /// Who needs no token for the doors of a server.
    pub(crate) allow_local: AllowLocal,
    /// How many bytes of large frames connections hold in all; no limit if there is none.
    pub(crate) max_frame_memory: Option<u64>,
    /// How the Supex doors are opened.
    pub(crate) supex: SupexConfig,
    /// How the web side is opened.
    pub(crate) supr: SuprConfig,
    /// What processes of agents and clients are given.
    pub(crate) tools: ToolsConfig,
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentConfig {
    /// What people call it.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: AgentKind,
}

/// What an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentKind {
    /// The built-in one.
    Local,
    /// One that performs a file.
    Script(PathBuf),
    /// One with a model.
    Model(Box<ModelAgentConfig>),
}

/// What `parlor gc` keeps. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention {
    /// For how many days after its last use.
    pub(crate) days: Option<u64>,
    /// How much in all.
    pub(crate) max_size: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        let local = AgentConfig { name: "Local".to_owned(), kind: AgentKind::Local };
        Self {
            default_agent: LOCAL.to_owned(),
            agents: BTreeMap::from([(LOCAL.to_owned(), local)]),
            models: BUILT_IN
                .into_iter()
                .map(|(provider, model)| (provider.name().to_owned(), ModelConfig::new(provider, model)))
                .collect(),
            spending: Spending::default(),
            is_default_chosen: false,
            are_minds_given: false,
            auth: BTreeMap::new(),
            retention: Retention { days: Some(90), max_size: Some(10 << 30) },
            keyring: true,
            allow_local: AllowLocal::default(),
            max_frame_memory: Some(parlor_transport::DEFAULT_FRAME_MEMORY as u64),
            supex: SupexConfig::default(),
            supr: SuprConfig::default(),
            tools: ToolsConfig::default(),
        }
    }
}

impl Config {
    /// Reads `parlor.toml` in the state folder; without one, everything is as by default. A folder that others could
    /// have written to is refused.
    pub(crate) fn load(home: &Path) -> anyhow::Result<Self> {
        ownership::check(home)?;
        let file = home.join(FILE);
        let text = match text_of(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        Self::parse(home, &text).with_context(|| format!("{} is not right", file.display()))
    }

    fn parse(home: &Path, text: &str) -> Result<Self, Flaw> {
        let mut config = Self::default();
        let mut agents: BTreeMap<String, Draft> = BTreeMap::new();
        let mut logins = Drafts::default();
        let mut models = models::Drafts::default();
        let mut default_line = None;
        for Found { path, value, line } in read::read(text)? {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match (path.as_slice(), value) {
                (["default_agent"], Value::Text(agent)) => {
                    config.default_agent = agent;
                    config.is_default_chosen = true;
                    default_line = Some(line);
                }
                (["agents", id, member], value) => {
                    agents.entry((*id).to_owned()).or_insert_with(|| Draft::at(line)).set(member, value);
                }
                (["models", name, member @ ..], value) => models.set(name, member, value, line),
                (["default_models", provider], Value::Text(model)) => {
                    if let Some(known) = config.models.get_mut(*provider) {
                        known.model = model;
                    }
                }
                (["spending", "session"], Value::Money(micros)) => config.spending.session = micros,
                (["spending", "day"], Value::Money(micros)) => config.spending.day = micros,
                (["auth", name, member @ ..], value) => logins.set(name, member, value, line),
                (["channels", "supex", member], value) => config.supex.set(member, value),
                (["channels", "supr", member], value) => config.supr.set(member, value).map_err(|why| {
                    Flaw { line: Some(line), what: format!("channels.supr.{member}: {why}") }
                })?,
                (["tools", member], value) => config
                    .tools
                    .set(member, value)
                    .map_err(|why| Flaw { line: Some(line), what: format!("tools.{member}: {why}") })?,
                (["retention", _], Value::Days(days)) => config.retention.days = days,
                (["retention", _], Value::Size(size)) => config.retention.max_size = size,
                (["serve", "max_frame_memory"], Value::Size(size)) => config.max_frame_memory = size,
                (["secrets", "keyring"], Value::Flag(is_used)) => config.keyring = is_used,
                (["serve", "allow_local"], Value::Text(word)) => {
                    config.allow_local = if word == "token" { AllowLocal::Token } else { AllowLocal::User };
                }
                (path, _) => unreachable!("{path:?} is in the table of settings and nobody takes it"),
            }
        }
        config.auth = logins.finish()?;
        config.models.extend(models.finish()?);
        let mut agents: Vec<(String, Draft)> = agents.into_iter().collect();
        agents.sort_by_key(|(_, draft)| draft.line);
        for (id, draft) in agents {
            let agent = draft.finish(home, &id, &config.models)?;
            if matches!(agent.kind, AgentKind::Model(_)) && !config.has_minds() && !config.is_default_chosen {
                config.default_agent.clone_from(&id);
            }
            config.agents.insert(id, agent);
        }
        if !config.agents.contains_key(&config.default_agent) {
            let known: Vec<&str> = config.agents.keys().map(String::as_str).collect();
            let (wanted, known) = (&config.default_agent, known.join(", "));
            let what = format!("default_agent is {wanted:?}, which is not configured; there are: {known}");
            return Err(Flaw { line: default_line, what });
        }
        config.are_minds_given = config.has_minds();
        Ok(config)
    }

    /// The same with an agent for each provider that `has_key`, if no agent with a model is configured. The
    /// first of them answers where nobody is asked for.
    pub(crate) fn with_keys(mut self, has_key: impl Fn(ProviderKind) -> bool) -> Self {
        if self.are_minds_given {
            return self;
        }
        for (provider, _) in BUILT_IN {
            if !has_key(provider) || self.agents.contains_key(provider.name()) {
                continue;
            }
            if !self.has_minds() && !self.is_default_chosen {
                self.default_agent = provider.name().to_owned();
            }
            self.add_mind(provider);
        }
        self
    }

    /// The same with an agent for each provider, since keys may come later, if no agent with a model is
    /// configured. Who answers where nobody is asked for stays.
    pub(crate) fn with_all_providers(mut self) -> Self {
        if !self.are_minds_given {
            BUILT_IN.into_iter().for_each(|(provider, _)| self.add_mind(provider));
        }
        self
    }

    fn add_mind(&mut self, provider: ProviderKind) {
        let name = provider.name().to_owned();
        let kind = AgentKind::Model(Box::new(ModelAgentConfig::new(&name)));
        self.agents.entry(name.clone()).or_insert(AgentConfig { name, kind });
    }

    /// Whether agents with models are configured, and not only there because of a key.
    pub(crate) fn are_minds_given(&self) -> bool {
        self.are_minds_given
    }

    /// Whether there is an agent with a model.
    fn has_minds(&self) -> bool {
        self.agents.values().any(|agent| matches!(agent.kind, AgentKind::Model(_)))
    }
}

/// Something that is wrong in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Flaw {}

/// An agent of which not everything is read yet.
struct Draft {
    line: usize,
    kind: Option<String>,
    name: Option<String>,
    file: Option<PathBuf>,
    mind: ModelAgentConfig,
    /// A setting that only an agent with a model has.
    of_mind: Option<String>,
}

impl Draft {
    fn at(line: usize) -> Self {
        Self { line, kind: None, name: None, file: None, mind: ModelAgentConfig::new(""), of_mind: None }
    }

    fn set(&mut self, member: &str, value: Value) {
        match (member, value) {
            ("kind", Value::Text(kind)) => self.kind = Some(kind),
            ("name", Value::Text(name)) => self.name = Some(name),
            ("file", Value::File(file)) => self.file = Some(file),
            (member, value) if self.mind.set(member, value.clone()) => self.of_mind = Some(member.to_owned()),
            (member, _) => unreachable!("{member} is in the table of settings and nobody takes it"),
        }
    }

    fn finish(
        self,
        home: &Path,
        id: &str,
        models: &BTreeMap<String, ModelConfig>,
    ) -> Result<AgentConfig, Flaw> {
        let flaw = |what: &str| Flaw { line: Some(self.line), what: format!("agents.{id} {what}") };
        if let (Some("local" | "script"), Some(member)) = (self.kind.as_deref(), &self.of_mind) {
            return Err(flaw(&format!("has {member}, which is only for kind = \"model\"")));
        }
        let kind = match (self.kind.as_deref(), self.file) {
            (Some("script"), Some(file)) => AgentKind::Script(home.join(file)),
            (Some("script"), None) => return Err(flaw("needs a file: add file = \"….toml\"")),
            (Some("model"), None) => {
                if self.mind.model.is_empty() {
                    return Err(flaw("needs a model: add model = \"openai\" or one of [models]"));
                }
                let wanted = std::iter::once(&self.mind.model).chain(&self.mind.fallback);
                if let Some(unknown) = wanted.into_iter().find(|name| !models.contains_key(*name)) {
                    let known: Vec<&str> = models.keys().map(String::as_str).collect();
                    let known = known.join(", ");
                    return Err(flaw(&format!("wants {unknown:?}, which is no model; there are: {known}")));
                }
                AgentKind::Model(Box::new(self.mind))
            }
            (Some(_), None) => AgentKind::Local,
            (Some(_), Some(_)) => return Err(flaw("has a file, which is only for kind = \"script\"")),
            (None, _) => {
                return Err(flaw(
                    "needs a kind: add kind = \"script\", kind = \"model\" or kind = \"local\"",
                ));
            }
        };
        Ok(AgentConfig { name: self.name.unwrap_or_else(|| id.to_owned()), kind })
    }
}

fn text_of(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(SETTINGS_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SETTINGS_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {SETTINGS_BYTES} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/home"), text).map_err(|flaw| flaw.to_string())
    }

    #[test]
    fn nothing_configured_is_the_default() {
        assert_eq!(parse(""), Ok(Config::default()));
    }

    #[test]
    fn agents_and_retention_are_taken() {
        let config = parse(
            "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n\
             [agents.local]\nkind = \"local\"\nname = \"Mine\"\n[retention]\ndays = \"never\"\nmax_size = \"1MiB\"",
        )
        .unwrap();
        let demo = AgentKind::Script("/home/demo.toml".into());
        assert_eq!(config.agents["demo"], AgentConfig { name: "demo".to_owned(), kind: demo });
        assert_eq!(config.agents["local"].name, "Mine");
        assert_eq!(config.default_agent, "demo");
        assert_eq!(config.retention, Retention { days: None, max_size: Some(1 << 20) });
    }

    #[test]
    fn who_needs_no_token_is_one_of_two_words() {
        assert_eq!(parse("").unwrap().allow_local, AllowLocal::User);
        assert_eq!(parse("[serve]\nallow_local = \"user\"").unwrap().allow_local, AllowLocal::User);
        assert_eq!(parse("[serve]\nallow_local = \"token\"").unwrap().allow_local, AllowLocal::Token);
        for wrong in ["\"all\"", "\"\"", "true", "\"Token\""] {
            assert!(parse(&format!("[serve]\nallow_local = {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_agent_has_a_kind_and_what_belongs_to_it() {
        assert_eq!(
            parse("\n[agents.a]\nname = \"x\"").unwrap_err(),
            "line 3: agents.a needs a kind: add kind = \"script\", kind = \"model\" or kind = \"local\""
        );
        assert!(parse("[agents.a]\nkind = \"script\"").unwrap_err().contains("needs a file"));
        assert!(parse("[agents.a]\nkind = \"local\"\nfile = \"x\"").unwrap_err().contains("only for"));
    }

    #[test]
    fn the_default_agent_is_one_that_exists() {
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
