//! The settings of a supex client. The caller reads flags and environment variables itself.

use std::fmt;
use std::time::Duration;

use super::dial::PeerCheck;

/// The usual port of the bridge, which has the tools.
pub const BRIDGE_PORT: u16 = 9876;
/// The usual port of the console.
pub const REPL_PORT: u16 = 4433;
/// The default of [`SupexSettings::timeout`] for a bridge.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// The default of [`SupexSettings::timeout`] for a console, where code may run for long.
pub const REPL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long connecting may take, even if [`SupexSettings::timeout`] is longer.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// The default of [`SupexSettings::retries`].
pub const RETRIES: u32 = 2;
/// The default of [`SupexSettings::idle_timeout`] for a bridge.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The default of [`SupexSettings::max_response`].
pub const MAX_RESPONSE_BYTES: usize = parlor_doors::supex::MAX_REPLY_BYTES;

/// Where the server is, who the caller is, and which limits apply.
#[derive(Clone, Debug)]
pub struct SupexSettings {
    /// A host name or an IP address. `localhost` means `127.0.0.1`, where these servers listen.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// How long connecting, each write and each silence of the server may last. An answer that arrives slowly but steadily
    /// may take up to [`MAX_ANSWER_TIME`](super::MAX_ANSWER_TIME).
    pub timeout: Duration,
    /// How often a call is retried where that is safe; at most [`MAX_RETRIES`](super::MAX_RETRIES).
    pub retries: u32,
    /// How long a connection may be idle before the client opens a new one for the next call.
    pub idle_timeout: Duration,
    /// The longest answer that the client accepts, in bytes, newline included.
    pub max_response: usize,
    /// Who the caller is.
    pub identity: Identity,
    /// The token, if the server requires one.
    pub token: Option<SupexToken>,
    /// Decides for each new connection whether to use it. Without it, every server at the address is trusted.
    pub check: Option<PeerCheck>,
}

impl SupexSettings {
    /// The settings for a bridge on this machine, at its usual port.
    pub fn bridge() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: BRIDGE_PORT,
            timeout: TIMEOUT,
            retries: RETRIES,
            idle_timeout: IDLE_TIMEOUT,
            max_response: MAX_RESPONSE_BYTES,
            identity: Identity::default(),
            token: None,
            check: None,
        }
    }

    /// The settings for a console on this machine, at its usual port. Idle connections have no time limit, because the
    /// server has none.
    pub fn repl() -> Self {
        Self { port: REPL_PORT, timeout: REPL_TIMEOUT, idle_timeout: Duration::MAX, ..Self::bridge() }
    }
}

/// Who the caller is, as `hello` says it.
///
/// A server that attaches repeated calls recognizes a caller by all these fields, so they stay the same for the life of a
/// client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the client program.
    pub name: String,
    /// The version of the client program.
    pub version: String,
    /// The agent that the program works for, such as a model's name.
    pub agent: String,
    /// The process id of the client program.
    pub pid: u32,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            name: "parlor-client".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: "unknown".to_owned(),
            pid: std::process::id(),
        }
    }
}

/// The secret token of a server. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SupexToken(String);

impl SupexToken {
    /// Wraps a token, exactly as the server has it.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SupexToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_token() {
        let settings = SupexSettings { token: Some(SupexToken::new("s3cret")), ..SupexSettings::bridge() };
        let shown = format!("{settings:?}");
        assert!(shown.contains("Token(…)") && !shown.contains("s3cret"), "{shown}");
    }
}
