//! `[channels.supr]`: the settings of the supr door and the HTTP server.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, bail};
use parlor_transport::Keepalive;
use parlor_web::{ProxyNetwork, Token};

use super::read::Value;
use crate::environment::SuprVariables;

const PING_INTERVAL: Duration = Duration::from_secs(30);
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONNECTIONS: usize = 100;

/// The settings of the supr door and the HTTP server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SuprConfig {
    /// Whether WebSocket clients may connect.
    pub(crate) is_enabled: bool,
    /// The address of the HTTP server, `HOST:PORT`.
    pub(crate) listen: Option<String>,
    /// The secret that clients must send; without one, parlor generates a token.
    pub(crate) token: Option<Token>,
    /// Whether clients may send the token in the query of the URL.
    pub(crate) allow_token_query: bool,
    /// The origins whose pages may open a socket and use the API; empty allows all to open a socket.
    pub(crate) allow_origins: Vec<String>,
    /// Host names of this server, beside its addresses and `localhost`.
    pub(crate) allow_hosts: Vec<String>,
    /// The proxies whose headers about the original request are believed.
    pub(crate) trusted_proxies: Vec<ProxyNetwork>,
    /// The senders whose messages are accepted; empty accepts all.
    pub(crate) allow_from: Vec<String>,
    /// Whether parlor may fetch files from this machine and from private networks.
    pub(crate) allow_private_urls: bool,
    /// Whether clients may start terminals.
    pub(crate) has_terminals: bool,
    /// The ping interval and timeouts of a connection.
    pub(crate) keepalive: Keepalive,
    /// The largest number of WebSocket clients and event streams at a time.
    pub(crate) max_connections: usize,
}

impl Default for SuprConfig {
    fn default() -> Self {
        Self {
            is_enabled: true,
            listen: None,
            token: None,
            allow_token_query: false,
            allow_origins: Vec::new(),
            allow_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            allow_from: Vec::new(),
            allow_private_urls: false,
            has_terminals: true,
            keepalive: Keepalive {
                ping_interval: PING_INTERVAL,
                read_timeout: READ_TIMEOUT,
                write_timeout: WRITE_TIMEOUT,
            },
            max_connections: MAX_CONNECTIONS,
        }
    }
}

/// Leaves out the secrets.
impl fmt::Debug for SuprConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuprConfig")
            .field("is_enabled", &self.is_enabled)
            .field("listen", &self.listen)
            .field("keepalive", &self.keepalive)
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

impl SuprConfig {
    /// The settings with the environment variables applied, which override the file.
    pub(crate) fn with(&self, variables: &SuprVariables) -> anyhow::Result<Self> {
        let mut config = self.clone();
        if let Some(text) = &variables.enabled {
            config.is_enabled = match text.to_ascii_lowercase().as_str() {
                "1" | "t" | "true" => true,
                "0" | "f" | "false" => false,
                _ => bail!("SUPRCLAW_CHANNELS_SUPR_ENABLED is {text:?}; it takes true or false"),
            };
        }
        if let Some(text) = &variables.token {
            config.token = Some(Token::parse(text).context("SUPRCLAW_CHANNELS_SUPR_TOKEN is not valid")?);
        }
        if let Some(text) = &variables.allow_from {
            // Also accept the full-width comma, which some keyboards produce.
            let senders = text.split([',', '\u{ff0c}']).map(str::trim).filter(|sender| !sender.is_empty());
            config.allow_from = senders.map(str::to_owned).collect();
        }
        Ok(config)
    }

    pub(super) fn set(&mut self, member: &str, value: Value) -> Result<(), String> {
        // An empty text counts as unset, as an empty environment variable does.
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let seconds = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
        match (member, value) {
            ("enabled", Value::Flag(enabled)) => self.is_enabled = enabled,
            ("terminals", Value::Flag(has_terminals)) => self.has_terminals = has_terminals,
            ("listen", Value::Text(address)) => self.listen = text(address),
            ("token", Value::Text(token)) => {
                let token = text(token).as_deref().map(Token::parse).transpose();
                self.token = token.map_err(|error| error.to_string())?;
            }
            ("allow_token_query", Value::Flag(allowed)) => self.allow_token_query = allowed,
            ("allow_origins", Value::List(origins)) => self.allow_origins = origins,
            ("allow_hosts", Value::List(hosts)) => self.allow_hosts = hosts,
            ("trusted_proxies", Value::List(proxies)) => {
                let proxies: Result<_, _> = proxies.iter().map(|text| ProxyNetwork::parse(text)).collect();
                self.trusted_proxies = proxies.map_err(|error| error.to_string())?;
            }
            ("allow_from", Value::List(senders)) => self.allow_from = senders,
            ("allow_private_urls", Value::Flag(allowed)) => self.allow_private_urls = allowed,
            ("ping_interval", Value::NumberOrDefault(given)) => {
                self.keepalive.ping_interval = seconds(given, PING_INTERVAL);
            }
            ("read_timeout", Value::NumberOrDefault(given)) => {
                self.keepalive.read_timeout = seconds(given, READ_TIMEOUT)
            }
            ("write_timeout", Value::NumberOrDefault(given)) => {
                self.keepalive.write_timeout = seconds(given, WRITE_TIMEOUT);
            }
            ("max_connections", Value::NumberOrDefault(given)) => {
                let given = given.and_then(|given| usize::try_from(given).ok());
                self.max_connections = given.unwrap_or(MAX_CONNECTIONS);
            }
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
        Ok(())
    }

    /// The value of a setting, as TOML. `None` for secrets and settings that are not set.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        let seconds = |duration: Duration| Some(duration.as_secs().to_string());
        match member {
            "enabled" => Some(self.is_enabled.to_string()),
            "terminals" => Some(self.has_terminals.to_string()),
            "listen" => self.listen.as_ref().map(|address| format!("{address:?}")),
            "allow_token_query" => Some(self.allow_token_query.to_string()),
            "allow_origins" => Some(format!("{:?}", self.allow_origins)),
            "allow_hosts" => Some(format!("{:?}", self.allow_hosts)),
            "trusted_proxies" => {
                let proxies = self.trusted_proxies.iter().map(ToString::to_string);
                Some(format!("{:?}", proxies.collect::<Vec<_>>()))
            }
            "allow_from" => Some(format!("{:?}", self.allow_from)),
            "allow_private_urls" => Some(self.allow_private_urls.to_string()),
            "ping_interval" => seconds(self.keepalive.ping_interval),
            "read_timeout" => seconds(self.keepalive.read_timeout),
            "write_timeout" => seconds(self.keepalive.write_timeout),
            "max_connections" => Some(self.max_connections.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<SuprConfig, String> {
        let config = Config::parse(std::path::Path::new("/"), &format!("[channels.supr]\n{text}"));
        config.map(|config| config.supr).map_err(|error| error.to_string())
    }

    #[test]
    fn zero_and_negative_numbers_mean_the_default() {
        let text = "ping_interval = 0\nread_timeout = -5\nwrite_timeout = 0\nmax_connections = 0";
        assert_eq!(parse(text), Ok(SuprConfig::default()));
        let config = parse("ping_interval = 1\nread_timeout = 3\nmax_connections = 7").unwrap();
        assert_eq!(config.keepalive.ping_interval, Duration::from_secs(1));
        assert_eq!((config.keepalive.read_timeout, config.max_connections), (Duration::from_secs(3), 7));
    }

    #[test]
    fn environment_variables_override_the_file() {
        let variables = SuprVariables {
            enabled: Some("False".to_owned()),
            token: Some("other".to_owned()),
            allow_from: Some("a, b\u{ff0c}c,".to_owned()),
            ..SuprVariables::default()
        };
        let config = parse("token = \"mine\"\nallow_from = [\"x\"]").unwrap().with(&variables).unwrap();
        assert_eq!(config.token.unwrap().reveal(), "other");
        assert_eq!(config.allow_from, ["a", "b", "c"]);
        assert!(!config.is_enabled);
        let wrong = |variables: SuprVariables| SuprConfig::default().with(&variables).unwrap_err();
        let message = wrong(SuprVariables { enabled: Some("maybe".to_owned()), ..Default::default() });
        assert!(message.to_string().contains("true or false"));
        let message =
            format!("{:#}", wrong(SuprVariables { token: Some("a b".to_owned()), ..Default::default() }));
        assert!(message.contains("SUPR_TOKEN") && !message.contains("a b"), "{message}");
    }

    #[test]
    fn trusted_proxies_are_addresses_and_networks() {
        let config = parse("trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\", \"::1\"]").unwrap();
        let shown = config.value("trusted_proxies").unwrap();
        assert_eq!(shown, r#"["127.0.0.1", "10.0.0.0/8", "::1"]"#);
        let error = parse("trusted_proxies = [\"127.0.0.1\", \"proxy.lan\"]").unwrap_err();
        assert_eq!(
            error,
            "line 2: channels.supr.trusted_proxies: \"proxy.lan\" is neither an address such as \"127.0.0.1\" \
             nor a network such as \"10.0.0.0/8\""
        );
    }

    #[test]
    fn a_token_is_checked_and_never_printed() {
        let config = parse("token = \"s3cret\"").unwrap();
        assert_eq!(config.token.as_ref().unwrap().reveal(), "s3cret");
        assert!(!format!("{config:?}").contains("s3cret") && config.value("token").is_none());
        let error = parse("token = \"a b\"").unwrap_err();
        assert!(
            error.starts_with("line 2: channels.supr.token: ") && error.contains("letters, digits"),
            "{error}"
        );
        assert_eq!(parse("token = \"\""), Ok(SuprConfig::default()));
    }
}
