//! Which bridge, and with how much patience: flags first, then variables, then what `parlor serve` left.

use std::fs::metadata;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use parlor_client::supex::{Identity, Settings, Token};
use parlor_transport::{PeerUser, listening_user};
use serde::Deserialize;

use crate::environment::{Environment, SupexVariables};
use crate::ownership;
use crate::settings::Config;
use crate::token;

/// The longest time that can be asked for.
const MAX_SECONDS: f64 = 24.0 * 60.0 * 60.0;

/// The most bytes of an answer that can be asked for.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// How much of `serve.json` is read; it is one short line.
const MAX_SERVE_BYTES: u64 = 64 * 1024;

/// Flags that all tasks have.
#[derive(Args, Default)]
pub(super) struct ServerAddress {
    /// The bridge's host [env: SUPEX_HOST] [default: where `parlor serve` is, else localhost]
    #[arg(long, value_name = "HOST", global = true)]
    host: Option<String>,
    /// The bridge's port [env: SUPEX_PORT] [default: where `parlor serve` is, else 9876]
    #[arg(long, value_name = "PORT", global = true)]
    port: Option<u16>,
    /// How many seconds of silence to bear [env: SUPEX_TIMEOUT] [default: 15]
    #[arg(long, value_name = "SECONDS", global = true)]
    timeout: Option<String>,
}

impl ServerAddress {
    /// All that a driver needs to know.
    pub(super) fn settings(&self, environment: &Environment) -> anyhow::Result<Settings> {
        let variables = &environment.supex;
        let usual = Settings::bridge();
        let (host, port) = self.address(variables, || environment.state_folder().ok())?;
        if self.host.is_none() && variables.host.is_none() {
            check_listener(&host, port, environment)?;
        }
        let token = variables.token.clone().or_else(|| token_for(&host, port, environment));
        let timeout = match &self.timeout {
            Some(text) => seconds("--timeout", text)?,
            None => of(&variables.timeout, "SUPEX_TIMEOUT", seconds)?.unwrap_or(usual.timeout),
        };
        let idle = of(&variables.idle_timeout, "SUPEX_IDLE_TIMEOUT", seconds)?;
        let agent = variables.agent.clone().unwrap_or_else(|| "user".to_owned());
        Ok(Settings {
            host,
            port,
            timeout,
            retries: of(&variables.retries, "SUPEX_RETRIES", number)?.unwrap_or(usual.retries),
            idle_timeout: idle.unwrap_or(usual.idle_timeout),
            max_response: of(&variables.max_response, "SUPEX_MAX_RESPONSE", size)?
                .unwrap_or(usual.max_response),
            identity: Identity { name: "parlor".to_owned(), agent, ..Identity::default() },
            token: token.map(Token::new),
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
            None => of(&variables.port, "SUPEX_PORT", number)?,
        };
        let usual = Settings::bridge();
        match (host, port) {
            (None, None) => Ok(match home().map(|home| served(&home)).transpose()?.flatten() {
                Some(address) => (address.ip().to_string(), address.port()),
                None => (usual.host, usual.port),
            }),
            (host, port) => Ok((host.unwrap_or(usual.host), port.unwrap_or(usual.port))),
        }
    }
}

/// Refuses to send anything to another user, who may have taken the port of a server that is gone. Whoever names the host
/// has chosen it.
fn check_listener(host: &str, port: u16, environment: &Environment) -> anyhow::Result<()> {
    // So the driver takes it, too.
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let Ok(ip) = host.parse() else { return Ok(()) };
    let address = SocketAddr::new(ip, port);
    let PeerUser::Other(user) = listening_user(address) else { return Ok(()) };
    // Root may use the state folder of another user, and that user's server with it.
    let is_of_folder = |home: PathBuf| metadata(home).is_ok_and(|found| found.uid() == user);
    if environment.state_folder().is_ok_and(is_of_folder) {
        return Ok(());
    }
    bail!(
        "user {user} listens at {address}, not you, so nothing was sent there; start parlor serve again, or name that \
         bridge with --host {host} --port {port} if you mean it"
    )
}

/// The token of the user's own server, if that is who listens there. Nobody else gets to see it, whoever has taken the
/// port of a server that is gone.
fn token_for(host: &str, port: u16, environment: &Environment) -> Option<String> {
    let home = environment.state_folder().ok()?;
    let address = SocketAddr::new(host.parse().ok()?, port);
    if served(&home).ok()? != Some(address) || !listening_user(address).is_owner() {
        return None;
    }
    // The door may have a token of its own, which goes before. What cannot be read is missed where it is needed.
    let own = Config::load(&home).ok()?.supex.token;
    own.or_else(|| token::of_home(&home, environment).ok().flatten())
}

/// Where the server of the state folder has its bridge.
fn served(home: &Path) -> anyhow::Result<Option<SocketAddr>> {
    ownership::check(home)?;
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
    let hint = || format!("cannot read {}; name the bridge with --host and --port", path.display());
    let Served { supex } = serde_json::from_str(&text.with_context(hint)?).with_context(hint)?;
    Ok(supex.map(|address| SocketAddr::new(near(address.ip()), address.port())))
}

/// A server that listens everywhere is found here.
fn near(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    }
}

fn of<T>(
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
        bail!("{name} is {text:?}, which is not a number that it can be");
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
        reach: &ServerAddress,
        variables: &SupexVariables,
        served: Option<&str>,
    ) -> anyhow::Result<String> {
        let home = tempfile::tempdir().unwrap();
        if let Some(text) = served {
            std::fs::write(home.path().join("serve.json"), text).unwrap();
        }
        let (host, port) = reach.address(variables, || Some(home.path().to_owned()))?;
        Ok(format!("{host} {port}"))
    }

    #[test]
    fn flags_come_before_variables_and_both_before_what_is_served() {
        let (none, unset) = (ServerAddress::default(), SupexVariables::default());
        let served = Some(r#"{"pid":1,"supex":"127.0.0.1:7","supex_repl":"127.0.0.1:8"}"#);
        assert_eq!(address(&none, &unset, None).unwrap(), "localhost 9876");
        assert_eq!(address(&none, &unset, served).unwrap(), "127.0.0.1 7");
        assert_eq!(address(&none, &unset, Some(r#"{"pid":1}"#)).unwrap(), "localhost 9876");
        assert_eq!(address(&none, &unset, Some(r#"{"supex":"0.0.0.0:7"}"#)).unwrap(), "127.0.0.1 7");
        assert_eq!(address(&none, &unset, Some(r#"{"supex":"[::]:7"}"#)).unwrap(), "::1 7");
        let port = SupexVariables { port: Some("5".into()), ..SupexVariables::default() };
        assert_eq!(address(&none, &port, served).unwrap(), "localhost 5");
        let flags = ServerAddress { host: Some("h".into()), port: Some(3), timeout: None };
        assert_eq!(address(&flags, &port, served).unwrap(), "h 3");
        let host = ServerAddress { host: Some("h".into()), ..ServerAddress::default() };
        assert_eq!(address(&host, &port, served).unwrap(), "h 5");
        assert_eq!(address(&host, &unset, served).unwrap(), "h 9876");
        let broken = format!("{:#}", address(&none, &unset, Some("{")).unwrap_err());
        assert!(broken.contains("serve.json; name the bridge with --host and --port"), "{broken}");
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
