//! `[mcp.NAME]`: the MCP servers whose tools agents may call.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use parlor_tools::{MAX_SERVER_NAME, MCP_CALL_TIMEOUT, McpLaunch, McpServerConfig, is_server_name};

use super::SettingsError;
use super::models::is_http_address;
use super::read::Value;

/// The settings of one server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct McpSettings {
    is_disabled: bool,
    command: Option<String>,
    args: Vec<String>,
    /// Variables with their values, which may be secrets.
    env: BTreeMap<String, String>,
    /// Variables of parlor's own environment that the server gets.
    env_from: Vec<String>,
    cwd: Option<String>,
    url: Option<String>,
    /// Headers with their values, which may be secrets.
    headers: BTreeMap<String, String>,
    tools: Option<Vec<String>>,
    timeout: Option<Duration>,
}

/// Leaves out what may be a secret.
impl fmt::Debug for McpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpSettings").field("command", &self.command).finish_non_exhaustive()
    }
}

/// The settings of servers while the file is being read, each with the line of its first setting.
#[derive(Default)]
pub(super) struct McpDrafts(BTreeMap<String, (usize, McpSettings)>);

impl McpDrafts {
    /// Sets a setting of `[mcp.NAME]`.
    pub(super) fn set(&mut self, name: &str, member: &[&str], value: Value, line: usize) {
        let (_, server) = self.0.entry(name.to_owned()).or_insert_with(|| (line, McpSettings::default()));
        match (member, value) {
            (["enabled"], Value::Flag(is_enabled)) => server.is_disabled = !is_enabled,
            (["command"], Value::Text(text)) => server.command = Some(text),
            (["args"], Value::List(args)) => server.args = args,
            (["env", name], Value::Text(text)) => drop(server.env.insert((*name).to_owned(), text)),
            (["env_from"], Value::List(names)) => server.env_from = names,
            (["cwd"], Value::Text(text)) => server.cwd = Some(text),
            (["url"], Value::Text(text)) => server.url = Some(text),
            (["headers", name], Value::Text(text)) => drop(server.headers.insert((*name).to_owned(), text)),
            (["tools"], Value::List(tools)) => server.tools = Some(tools),
            (["timeout"], Value::Seconds(seconds)) => server.timeout = Some(Duration::from_secs(seconds)),
            (member, _) => unreachable!("no code handles the setting {member:?}"),
        }
    }

    /// Checks each server as a whole.
    pub(super) fn finish(self) -> Result<BTreeMap<String, McpSettings>, SettingsError> {
        for (name, (line, server)) in &self.0 {
            server.check(name).map_err(|reason| SettingsError::at(*line, format!("mcp.{name} {reason}")))?;
        }
        Ok(self.0.into_iter().map(|(name, (_, server))| (name, server)).collect())
    }
}

impl McpSettings {
    fn check(&self, name: &str) -> Result<(), String> {
        if !is_server_name(name) {
            return Err(format!("must have a name of 1 to {MAX_SERVER_NAME} letters, digits, - and _"));
        }
        match (&self.command, &self.url) {
            (None, None) => Err("needs command or url".to_owned()),
            (Some(_), Some(_)) => Err("has both command and url; a server has one of them".to_owned()),
            (None, Some(url)) if !is_http_address(url) => {
                Err("has a url that does not begin with http:// or https://".to_owned())
            }
            (Some(_), None) if !self.headers.is_empty() => {
                Err("has headers, which only a url can have".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The server as agents use it; `None` if it is disabled. `env` is what commands of agents get, `all` has all variables
    /// of parlor, and `folder` is the working folder if the settings name none.
    pub(crate) fn config(
        &self,
        name: &str,
        env: &[(String, String)],
        all: impl Fn(&str) -> Option<String>,
        folder: &Path,
    ) -> Option<McpServerConfig> {
        let launch = match (&self.command, &self.url) {
            _ if self.is_disabled => return None,
            (Some(program), _) => {
                let mut env = env.to_vec();
                let named = self.env_from.iter().filter_map(|name| Some((name.clone(), all(name)?)));
                let own = self.env.iter().map(|(name, value)| (name.clone(), value.clone()));
                for (name, value) in named.chain(own) {
                    env.retain(|(other, _)| *other != name);
                    env.push((name, value));
                }
                let folder = self.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
                McpLaunch::Command { program: program.clone(), args: self.args.clone(), env, folder }
            }
            (None, Some(url)) => McpLaunch::Url { url: url.clone(), headers: self.headers.clone() },
            (None, None) => return None,
        };
        let timeout = self.timeout.unwrap_or(MCP_CALL_TIMEOUT);
        Some(McpServerConfig { name: name.to_owned(), launch, tools: self.tools.clone(), timeout })
    }

    /// The address and the headers of a web service whose settings have no token.
    pub(crate) fn login_target(&self) -> Option<(&str, &BTreeMap<String, String>)> {
        let has_token = self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        self.url.as_deref().filter(|_| !has_token).map(|url| (url, &self.headers))
    }

    /// The values that must not be shown, those of variables in `all` too: values of variables and headers, the part of a
    /// header after its scheme, and the user, the password and the query of the address.
    pub(crate) fn secrets(&self, all: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let headers = self.headers.values();
        let tokens = headers.clone().filter_map(|value| Some(value.split_once(' ')?.1.trim().to_owned()));
        let mut secrets: Vec<String> = self.env.values().chain(headers.clone()).cloned().collect();
        secrets.extend(tokens);
        secrets.extend(self.env_from.iter().filter_map(|name| all(name)));
        if let Some(url) = &self.url {
            secrets.extend(parlor_model::provider::secret_in_url(url));
            // As it is written, and as a server reads it.
            let query = url.split_once('?').map_or("", |(_, query)| query);
            let query = query.split('#').next().unwrap_or_default();
            secrets.extend(
                query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value).to_owned()),
            );
            if let Ok(parsed) = url::Url::parse(url) {
                secrets.extend(parsed.query_pairs().map(|(_, value)| value.into_owned()));
            }
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets
    }

    /// The address for people: without user, password, query and fragment.
    fn shown_url(&self) -> Option<String> {
        let url = parlor_model::provider::redacted_url(self.url.as_deref()?);
        Some(url.split(['?', '#']).next().unwrap_or_default().to_owned())
    }

    /// Whether its program gets arguments.
    pub(crate) fn has_args(&self) -> bool {
        !self.args.is_empty()
    }

    /// Whether agents get its tools.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.is_disabled
    }

    /// How the server is reached, for people. The query of an address may be a secret.
    pub(crate) fn summary(&self) -> String {
        match (&self.command, &self.url) {
            (Some(command), _) => {
                std::iter::once(command).chain(&self.args).cloned().collect::<Vec<_>>().join(" ")
            }
            (None, _) => self.shown_url().unwrap_or_default(),
        }
    }

    /// The value of a setting as TOML. Values that may be secrets have none.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        match member {
            "enabled" => Some((!self.is_disabled).to_string()),
            "command" => self.command.as_ref().map(|text| format!("{text:?}")),
            "args" => Some(format!("{:?}", self.args)),
            "env_from" => Some(format!("{:?}", self.env_from)),
            "cwd" => self.cwd.as_ref().map(|text| format!("{text:?}")),
            "url" => self.shown_url().map(|url| format!("{url:?}")),
            "tools" => self.tools.as_ref().map(|tools| format!("{tools:?}")),
            "timeout" => Some(self.timeout.unwrap_or(MCP_CALL_TIMEOUT).as_secs().to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Config, SettingsError> {
        Config::parse(Path::new("/"), text)
    }

    #[test]
    fn a_server_is_a_command_or_an_address() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("[mcp.x]\nargs = [\"a\"]").contains("mcp.x needs command or url"));
        assert!(error("[mcp.x]\ncommand = \"a\"\nurl = \"http://h\"").contains("both command and url"));
        assert!(error("[mcp.x]\nurl = \"ftp://h\"").contains("http://"));
        assert!(error("[mcp.\"a b\"]\ncommand = \"a\"").contains("letters, digits"));
        assert!(error("[mcp.x]\ncommand = \"a\"\n[mcp.x.headers]\nA = \"b\"").contains("headers"));
    }

    #[test]
    fn the_environment_is_that_of_commands_with_what_the_settings_add() {
        let text = "[mcp.x]\ncommand = \"run\"\nenv_from = [\"KEY\", \"NONE\"]\ncwd = \"sub\"\n[mcp.x.env]\nPATH = \"/mine\"";
        let config = parse(text).unwrap();
        let env = [("PATH".to_owned(), "/bin".to_owned()), ("HOME".to_owned(), "/h".to_owned())];
        let all = |name: &str| (name == "KEY").then(|| "s3cret".to_owned());
        let server = config.mcp["x"].config("x", &env, all, Path::new("/project")).unwrap();
        let McpLaunch::Command { env, folder, .. } = server.launch else { panic!() };
        let env: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["HOME=/h", "KEY=s3cret", "PATH=/mine"]);
        assert_eq!(folder, Path::new("/project/sub"));
        assert!(!format!("{config:?}").contains("/mine"));
    }

    #[test]
    fn a_disabled_server_gives_no_tools() {
        let config = parse("[mcp.x]\ncommand = \"run\"\nenabled = false").unwrap();
        assert!(config.mcp["x"].config("x", &[], |_| None, Path::new("/")).is_none());
    }

    #[test]
    fn an_address_is_shown_without_its_query_and_all_secrets_are_known() {
        let text = "[mcp.x]\nurl = \"http://me:pa55@h/mcp?key=s3cret%2Bkey&x=1\"\n[mcp.x.headers]\nAuthorization = \"Bearer t0ken\"";
        let config = parse(text).unwrap();
        let server = &config.mcp["x"];
        assert_eq!(server.summary(), "http://h/mcp");
        assert_eq!(server.value("url").unwrap(), "\"http://h/mcp\"");
        let secrets = server.secrets(|_| None);
        for secret in ["Bearer t0ken", "t0ken", "pa55", "s3cret%2Bkey", "s3cret+key"] {
            assert!(secrets.iter().any(|known| known == secret), "{secret}: {secrets:?}");
        }
        let config = parse("[mcp.x]\ncommand = \"run\"\nenv_from = [\"KEY\"]").unwrap();
        assert_eq!(config.mcp["x"].secrets(|name| Some(format!("{name}-value"))), ["KEY-value"]);
    }
}
