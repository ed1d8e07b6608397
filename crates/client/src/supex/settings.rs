//! Where a server is, who calls it, and how patient the caller is.
//!
//! Plain values. Who reads them from flags and variables is somebody else.

use std::fmt;
use std::time::Duration;

/// The port of the bridge, which has the tools.
pub const BRIDGE_PORT: u16 = 9876;
/// The port of the console.
pub const REPL_PORT: u16 = 4433;
/// How long a silence of the server may last, unless something else is set.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a console, where code may take its time.
pub const REPL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long connecting may take, however patient the caller is with answers.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// How many times more a call is tried, unless something else is set.
pub const RETRIES: u32 = 2;
/// How long a connection may be without a call before another one is opened instead.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest answer that is taken, newline included, unless something else is set.
pub const MAX_RESPONSE_BYTES: usize = parlor_doors::supex::MAX_REPLY_BYTES;

/// How to reach a server and what to expect of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupexSettings {
    /// A name or an address. `localhost` is `127.0.0.1`, where these servers are.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How long connecting, sending and each silence may last. An answer that arrives slowly but
    /// steadily has [`MAX_ANSWER_TIME`](super::MAX_ANSWER_TIME).
    pub timeout: Duration,
    /// How many times more a call is tried, at most [`MAX_RETRIES`](super::MAX_RETRIES), where trying
    /// again is safe.
    pub retries: u32,
    /// How long a connection may be without a call before another one is opened instead.
    pub idle_timeout: Duration,
    /// The longest answer that is taken, newline included.
    pub max_response: usize,
    /// Who calls.
    pub identity: Identity,
    /// What proves it, if the server wants proof.
    pub token: Option<SupexToken>,
}

impl SupexSettings {
    /// A bridge on this machine, at its usual port.
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
        }
    }

    /// A console on this machine, at its usual port. It has no limit for idle connections, because
    /// its server has none.
    pub fn repl() -> Self {
        Self { port: REPL_PORT, timeout: REPL_TIMEOUT, idle_timeout: Duration::MAX, ..Self::bridge() }
    }
}

/// Who calls, as `hello` says it.
///
/// A server that attaches repeated calls knows a caller by all of it, so it stays the same for the life
/// of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The program that speaks the protocol.
    pub name: String,
    /// Its version.
    pub version: String,
    /// On whose behalf.
    pub agent: String,
    /// The process.
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

/// A secret that is shown to nobody but the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl SupexToken {
    /// The token as the server knows it.
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
    fn a_token_is_not_shown() {
        let settings = SupexSettings { token: Some(SupexToken::new("s3cret")), ..SupexSettings::bridge() };
        let shown = format!("{settings:?}");
        assert!(shown.contains("Token(…)") && !shown.contains("s3cret"), "{shown}");
    }
}
