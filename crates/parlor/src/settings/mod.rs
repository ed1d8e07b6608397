//! `parlor.toml`: its text is read once and becomes a [`Config`] of checked values.
//!
//! [`table`] names every setting; reading, the errors and `docs/settings.md` all follow it. What a
//! setting does is decided by whoever is given the value.

mod page;
mod read;
pub(crate) mod show;
pub(crate) mod size;
pub(crate) mod supex;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;

use self::read::{Found, Value};
use self::supex::SupexConfig;
use self::table::SETTINGS_BYTES;

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
    /// What `parlor gc` keeps.
    pub(crate) retention: Retention,
    /// How the Supex doors are opened.
    pub(crate) supex: SupexConfig,
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
            retention: Retention { days: Some(90), max_size: Some(10 << 30) },
            supex: SupexConfig::default(),
        }
    }
}

impl Config {
    /// Reads `parlor.toml` in the state folder; without one, everything is as by default.
    pub(crate) fn load(home: &Path) -> anyhow::Result<Self> {
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
        let mut default_line = None;
        for Found { path, value, line } in read::read(text)? {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match (path.as_slice(), value) {
                (["default_agent"], Value::Text(agent)) => {
                    config.default_agent = agent;
                    default_line = Some(line);
                }
                (["agents", id, member], value) => {
                    agents.entry((*id).to_owned()).or_insert_with(|| Draft::at(line)).set(member, value);
                }
                (["channels", "supex", member], value) => config.supex.set(member, value),
                (["retention", _], Value::Days(days)) => config.retention.days = days,
                (["retention", _], Value::Size(size)) => config.retention.max_size = size,
                (path, _) => unreachable!("{path:?} is in the table of settings and nobody takes it"),
            }
        }
        for (id, draft) in agents {
            let agent = draft.finish(home, &id)?;
            config.agents.insert(id, agent);
        }
        if !config.agents.contains_key(&config.default_agent) {
            let known: Vec<&str> = config.agents.keys().map(String::as_str).collect();
            let (wanted, known) = (&config.default_agent, known.join(", "));
            let what = format!("default_agent is {wanted:?}, which is not configured; there are: {known}");
            return Err(Flaw { line: default_line, what });
        }
        Ok(config)
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
}

impl Draft {
    fn at(line: usize) -> Self {
        Self { line, kind: None, name: None, file: None }
    }

    fn set(&mut self, member: &str, value: Value) {
        match (member, value) {
            ("kind", Value::Text(kind)) => self.kind = Some(kind),
            ("name", Value::Text(name)) => self.name = Some(name),
            ("file", Value::File(file)) => self.file = Some(file),
            (member, _) => unreachable!("{member} is in the table of settings and nobody takes it"),
        }
    }

    fn finish(self, home: &Path, id: &str) -> Result<AgentConfig, Flaw> {
        let flaw = |what: &str| Flaw { line: Some(self.line), what: format!("agents.{id} {what}") };
        let kind = match (self.kind.as_deref(), self.file) {
            (Some("script"), Some(file)) => AgentKind::Script(home.join(file)),
            (Some("script"), None) => return Err(flaw("needs a file: add file = \"….toml\"")),
            (Some(_), None) => AgentKind::Local,
            (Some(_), Some(_)) => return Err(flaw("has a file, which is only for kind = \"script\"")),
            (None, _) => return Err(flaw("needs a kind: add kind = \"script\" or kind = \"local\"")),
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
    fn an_agent_has_a_kind_and_what_belongs_to_it() {
        assert_eq!(
            parse("\n[agents.a]\nname = \"x\"").unwrap_err(),
            "line 3: agents.a needs a kind: add kind = \"script\" or kind = \"local\""
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
