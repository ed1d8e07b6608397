//! The address, token and timeouts for the connection to a bridge: from flags, then environment variables, then the
//! `serve.json` of a running `parlor serve`.

use std::fs::metadata;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use parlor_client::supex::{Identity, PeerCheck, SupexSettings, SupexToken};
use parlor_transport::{PeerUser, accepting_user, listening_user};
use serde::Deserialize;

use crate::environment::{Environment, SupexVariables};
use crate::settings::Config;
use crate::state_folder_trust;
use crate::token;

/// The longest timeout that can be set.
const MAX_SECONDS: f64 = 24.0 * 60.0 * 60.0;

/// The largest response limit that can be set.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// At most this much of `serve.json` is read; it is one short line.
const MAX_SERVE_BYTES: u64 = 64 * 1024;

/// The flags that all subcommands share.
#[derive(Args, Default)]
pub(super) struct ConnectionOptions {
    /// The bridge's host [env: SUPEX_HOST] [default: that of a running `parlor serve`, else localhost]
    #[arg(long, value_name = "HOST", global = true)]
    host: Option<String>,
    /// The bridge's port [env: SUPEX_PORT] [default: that of a running `parlor serve`, else 9876]
    #[arg(long, value_name = "PORT", global = true)]
    port: Option<u16>,
    /// Give up after this many seconds without an answer [env: SUPEX_TIMEOUT] [default: 15]
    #[arg(long, value_name = "SECONDS", global = true)]
    timeout: Option<String>,
}

impl ConnectionOptions {
    /// Combines flags and environment variables into the settings of a driver.
    pub(super) fn settings(&self, environment: &Environment) -> anyhow::Result<SupexSettings> {
        let variables = &environment.supex;
        let defaults = SupexSettings::bridge();
        let (host, port) = self.address(variables, || environment.state_folder().ok())?;
        // A named host is a deliberate choice.
        let is_chosen = self.host.is_some() || variables.host.is_some();
        let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let check = (!is_chosen && is_local).then(|| server_check(&host, port, environment));
        let token = variables.token.clone().or_else(|| token_for(&host, port, environment));
        let timeout = match &self.timeout {
            Some(text) => seconds("--timeout", text)?,
            None => parse_variable(&variables.timeout, "SUPEX_TIMEOUT", seconds)?.unwrap_or(defaults.timeout),
        };
        let idle = parse_variable(&variables.idle_timeout, "SUPEX_IDLE_TIMEOUT", seconds)?;
        let agent = variables.agent.clone().unwrap_or_else(|| "user".to_owned());
        Ok(SupexSettings {
            host,
            port,
            timeout,
            retries: parse_variable(&variables.retries, "SUPEX_RETRIES", number)?.unwrap_or(defaults.retries),
            idle_timeout: idle.unwrap_or(defaults.idle_timeout),
            max_response: parse_variable(&variables.max_response, "SUPEX_MAX_RESPONSE", size)?
                .unwrap_or(defaults.max_response),
            identity: Identity { name: "parlor".to_owned(), agent, ..Identity::default() },
            token: token.map(SupexToken::new),
            check,
        })
    }

    fn address(
        &self,
        variables: &SupexVariables,
        home: impl FnOnce() -> Option<std::path::PathBuf>,
    ) -> anyhow::Result<(String, u16)> {
        let host = self.host.clone().or_else(|| variables.host.clone());
        let port = match self.port {
            Some(port) => Some(port),
            None => parse_variable(&variables.port, "SUPEX_PORT", number)?,
        };
        let defaults = SupexSettings::bridge();
        match (host, port) {
            (None, None) => Ok(match home().map(|home| served_address(&home)).transpose()?.flatten() {
                Some(address) => (address.ip().to_string(), address.port()),
                None => (defaults.host, defaults.port),
            }),
            (host, port) => Ok((host.unwrap_or(defaults.host), port.unwrap_or(defaults.port))),
        }
    }
}

/// Refuses a connection that a process of another user has accepted: it may have taken the port of a server that ended.
fn server_check(host: &str, port: u16, environment: &Environment) -> PeerCheck {
    let (host, home) = (host.to_owned(), environment.state_folder().ok());
    PeerCheck::new(move |stream| {
        let (host, home) = (host.clone(), home.clone());
        Box::pin(async move {
            let user = accepting_user(stream).await?;
            // Root may use the state folder of another user, and with it that user's server.
            let owns_state_folder =
                |user| home.is_some_and(|home| metadata(home).is_ok_and(|found| found.uid() == user));
            let whose = match user {
                PeerUser::Ours | PeerUser::Root => return Ok(()),
                PeerUser::Other(user) if owns_state_folder(user) => return Ok(()),
                PeerUser::Other(user) => format!("a process of user {user}, not yours, listens there"),
                PeerUser::Unknown(reason) => {
                    format!("whose process listens there cannot be found out: {reason}")
                }
            };
            let advice = format!(
                "nothing was sent, since {whose}; start parlor serve again, or add --host {host} --port {port} to use \
                 that bridge anyway"
            );
            Err(io::Error::new(io::ErrorKind::PermissionDenied, advice))
        })
    })
}

/// The token of the user's own server, if that server listens at the address. Another user, who may have taken the port
/// of a server that ended, must not get the token.
fn token_for(host: &str, port: u16, environment: &Environment) -> Option<String> {
    let home = environment.state_folder().ok()?;
    let address = SocketAddr::new(host.parse().ok()?, port);
    if served_address(&home).ok()? != Some(address) || !listening_user(address).is_owner() {
        return None;
    }
    // The token of the Supex door overrides the general one. If neither can be read, the bridge reports that one is missing.
    let own = Config::load(&home).ok()?.supex.token;
    own.or_else(|| token::existing(&home, environment).ok().flatten())
}

/// The address of the bridge of the server that runs on this state folder, from its `serve.json`.
fn served_address(home: &Path) -> anyhow::Result<Option<SocketAddr>> {
    state_folder_trust::check(home)?;
    #[derive(Deserialize)]
    struct Served {
        supex: Option<SocketAddr>,
    }
    let path = home.join("serve.json");
    let text = match std::fs::File::open(&path) {
        Ok(file) => std::io::read_to_string(std::io::Read::take(file, MAX_SERVE_BYTES)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error),
    };
    let hint = || format!("cannot read {}; choose the bridge with --host and --port", path.display());
    let Served { supex } = serde_json::from_str(&text.with_context(hint)?).with_context(hint)?;
    Ok(supex.map(|address| SocketAddr::new(connectable(address.ip()), address.port())))
}

/// The address to connect to: the loopback address for a server that listens on all addresses.
fn connectable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    }
}

/// Parses an environment variable if it is set.
fn parse_variable<T>(
    variable: &Option<String>,
    name: &str,
    read: impl FnOnce(&str, &str) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    variable.as_deref().map(|text| read(name, text)).transpose()
}

fn seconds(name: &str, text: &str) -> anyhow::Result<Duration> {
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= MAX_SECONDS);
    let Some(seconds) = seconds else {
        bail!("{name} is {text:?}; it takes a number of seconds, more than 0 and at most {MAX_SECONDS}");
    };
    Ok(Duration::from_secs_f64(seconds))
}

fn number<T: FromStr>(name: &str, text: &str) -> anyhow::Result<T> {
    let Ok(number) = text.trim().parse() else {
        bail!("{name} is {text:?}, which is not a valid number for it");
    };
    Ok(number)
}

fn size(name: &str, text: &str) -> anyhow::Result<usize> {
    let size: usize = number(name, text)?;
    if !(1..=MAX_ANSWER_BYTES).contains(&size) {
        bail!("{name} is {text:?}; it takes a number of bytes, at least 1 and at most {MAX_ANSWER_BYTES}");
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(
        options: &ConnectionOptions,
        variables: &SupexVariables,
        served: Option<&str>,
    ) -> anyhow::Result<String> {
        let home = tempfile::tempdir().unwrap();
        if let Some(text) = served {
            std::fs::write(home.path().join("serve.json"), text).unwrap();
        }
        let (host, port) = options.address(variables, || Some(home.path().to_owned()))?;
        Ok(format!("{host} {port}"))
    }

    #[test]
    fn flags_override_variables_and_both_override_serve_json() {
        let (none, unset) = (ConnectionOptions::default(), SupexVariables::default());
        let served = Some(r#"{"pid":1,"supex":"127.0.0.1:7","supex_repl":"127.0.0.1:8"}"#);
        assert_eq!(address(&none, &unset, None).unwrap(), "localhost 9876");
        assert_eq!(address(&none, &unset, served).unwrap(), "127.0.0.1 7");
        assert_eq!(address(&none, &unset, Some(r#"{"pid":1}"#)).unwrap(), "localhost 9876");
        assert_eq!(address(&none, &unset, Some(r#"{"supex":"0.0.0.0:7"}"#)).unwrap(), "127.0.0.1 7");
        assert_eq!(address(&none, &unset, Some(r#"{"supex":"[::]:7"}"#)).unwrap(), "::1 7");
        let port = SupexVariables { port: Some("5".into()), ..SupexVariables::default() };
        assert_eq!(address(&none, &port, served).unwrap(), "localhost 5");
        let flags = ConnectionOptions { host: Some("h".into()), port: Some(3), timeout: None };
        assert_eq!(address(&flags, &port, served).unwrap(), "h 3");
        let host = ConnectionOptions { host: Some("h".into()), ..ConnectionOptions::default() };
        assert_eq!(address(&host, &port, served).unwrap(), "h 5");
        assert_eq!(address(&host, &unset, served).unwrap(), "h 9876");
        let broken = format!("{:#}", address(&none, &unset, Some("{")).unwrap_err());
        assert!(broken.contains("serve.json; choose the bridge with --host and --port"), "{broken}");
        let wrong = SupexVariables { port: Some("x".into()), ..SupexVariables::default() };
        assert!(address(&none, &wrong, None).unwrap_err().to_string().contains("SUPEX_PORT is \"x\""));
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(seconds("t", " 1.5 ").unwrap(), Duration::from_millis(1500));
        for text in ["0", "-1", "inf", "NaN", "1e9", "x"] {
            assert!(seconds("t", text).is_err(), "{text}");
        }
        assert_eq!(size("s", "1073741824").unwrap(), MAX_ANSWER_BYTES);
        assert!(size("s", "1073741825").is_err() && size("s", "0").is_err());
    }
}
