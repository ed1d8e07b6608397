//! `[channels.supex]`: the settings of the Supex bridge and REPL.

use std::fmt;
use std::time::Duration;

use super::read::Value;
use super::size;

/// The settings of the Supex bridge and REPL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SupexConfig {
    /// The address of the bridge, `HOST:PORT`.
    pub(crate) listen: Option<String>,
    /// The address of the REPL, `HOST:PORT`.
    pub(crate) repl_listen: Option<String>,
    /// The secret that clients must send.
    pub(crate) token: Option<String>,
    /// The folders whose files clients may name, separated by colons.
    pub(crate) allowed_roots: Option<String>,
    /// How long one evaluation may take.
    pub(crate) eval_timeout: Duration,
    /// How many bytes of memory Ruby may use; `None` means no limit.
    pub(crate) memory_limit: Option<u64>,
    /// The address of a SketchUp runtime, `HOST:PORT`, that gets the calls that need SketchUp.
    pub(crate) upstream: Option<String>,
    /// The secret for that runtime.
    pub(crate) upstream_token: Option<String>,
    /// Whether Ruby code is evaluated in that runtime instead of parlor's own Ruby.
    pub(crate) evaluates_upstream: bool,
}

impl Default for SupexConfig {
    fn default() -> Self {
        Self {
            listen: None,
            repl_listen: None,
            token: None,
            allowed_roots: None,
            eval_timeout: parlor_ruby::TIME_LIMIT,
            memory_limit: Some(parlor_ruby::MEMORY_LIMIT),
            upstream: None,
            upstream_token: None,
            evaluates_upstream: true,
        }
    }
}

/// Leaves out the secrets.
impl fmt::Debug for SupexConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupexConfig")
            .field("listen", &self.listen)
            .field("repl_listen", &self.repl_listen)
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

impl SupexConfig {
    pub(super) fn set(&mut self, member: &str, value: Value) {
        // An empty text counts as unset, as an empty environment variable does.
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        match (member, value) {
            ("listen", Value::Text(address)) => self.listen = text(address),
            ("repl_listen", Value::Text(address)) => self.repl_listen = text(address),
            ("token", Value::Text(token)) => self.token = text(token),
            ("allowed_roots", Value::Text(roots)) => self.allowed_roots = text(roots),
            ("eval_timeout", Value::Seconds(seconds)) => self.eval_timeout = Duration::from_secs(seconds),
            ("memory_limit", Value::Size(limit)) => self.memory_limit = limit,
            ("upstream", Value::Text(address)) => self.upstream = text(address),
            ("upstream_token", Value::Text(token)) => self.upstream_token = text(token),
            ("eval", Value::Text(target)) => self.evaluates_upstream = target == "upstream",
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
    }

    /// The value of a setting, as TOML. `None` for secrets and settings that are not set.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        let quoted = |text: &Option<String>| text.as_ref().map(|text| format!("{text:?}"));
        match member {
            "listen" => quoted(&self.listen),
            "repl_listen" => quoted(&self.repl_listen),
            "allowed_roots" => quoted(&self.allowed_roots),
            "eval_timeout" => Some(self.eval_timeout.as_secs().to_string()),
            "memory_limit" => Some(format!(
                "{:?}",
                self.memory_limit.map_or(super::table::UNLIMITED.to_owned(), size::exact)
            )),
            "upstream" => quoted(&self.upstream),
            "eval" => Some(if self.evaluates_upstream { "\"upstream\"" } else { "\"here\"" }.to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn secrets_are_read_and_never_printed() {
        let text = "[channels.supex]\ntoken = \"s3cret\"\nupstream_token = \"s3cret\"\neval = \"here\"\nlisten = \"\"";
        let config = Config::parse(std::path::Path::new("/"), text).unwrap().supex;
        assert_eq!(config.token.as_deref(), Some("s3cret"));
        assert_eq!((config.listen.as_deref(), config.evaluates_upstream), (None, false));
        assert!(!format!("{config:?}").contains("s3cret"));
        assert_eq!(config.value("token"), None);
    }
}
