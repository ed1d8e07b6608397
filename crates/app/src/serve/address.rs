//! The addresses that doors listen at: parsing them, and refusing those that other machines could abuse.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail};
use parlor_web::{STRONG_TOKEN_CHARS, Token};

/// Parses `HOST:PORT`, `:PORT` or `PORT`. The default host is 127.0.0.1.
pub(super) fn parse(text: &str) -> anyhow::Result<SocketAddr> {
    let hint = || format!("{text:?} is no address; write HOST:PORT, such as 127.0.0.1:9876");
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port.parse().with_context(hint)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(SocketAddr::new(ip(host).with_context(hint)?, port))
}

/// The address of a host and a port from two variables. `default` has the part that is not set.
pub(super) fn join(
    host: Option<&str>,
    port: Option<&str>,
    default: SocketAddr,
) -> anyhow::Result<SocketAddr> {
    let ip = host.map_or(Ok(default.ip()), ip)?;
    let port = match port {
        Some(port) => port.trim().parse().with_context(|| format!("{port:?} is no port"))?,
        None => default.port(),
    };
    Ok(SocketAddr::new(ip, port))
}

/// The IP address of a host. `localhost` is 127.0.0.1, since Supex clients connect there.
fn ip(host: &str) -> anyhow::Result<IpAddr> {
    if host.is_empty() || host == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    if let Ok(ip) = host.parse() {
        return Ok(ip);
    }
    let mut found = (host, 0).to_socket_addrs().with_context(|| format!("no host {host:?}"))?;
    Ok(found.next().with_context(|| format!("the host {host:?} has no address"))?.ip())
}

/// Refuses to listen where other machines can connect, unless the user allows that and clients need a token.
pub(super) fn check(address: SocketAddr, allow_remote: bool, has_token: bool) -> anyhow::Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if !allow_remote {
        bail!(
            "{address} can be reached from other machines, and whoever connects can run code here; \
             use 127.0.0.1, or set SUPEX_ALLOW_REMOTE=1 and SUPEX_AUTH_TOKEN"
        );
    }
    if !has_token {
        bail!(
            "{address} can be reached from other machines: set SUPEX_AUTH_TOKEN, so that clients need a secret"
        );
    }
    Ok(())
}

/// Why it matters that `taken` is in use, if the user asked for the other address `asked`. The end of an error message.
pub(super) fn why_it_matters(taken: SocketAddr, asked: SocketAddr) -> &'static str {
    match taken.ip() == asked.ip() {
        true => "",
        false => ", and whoever listens there is sent what clients mean for localhost",
    }
}

/// Refuses a weak token where other machines can connect, since their users could guess it.
pub(super) fn check_token(address: SocketAddr, token: &Token) -> anyhow::Result<()> {
    if !address.ip().is_loopback() && !token.is_strong() {
        bail!(
            "{address} can be reached from other machines, and the token is too short to keep strangers out: \
             use 127.0.0.1, or a token of at least {STRONG_TOKEN_CHARS} random characters, or none at all in \
             parlor.toml, to have one made"
        );
    }
    Ok(())
}

/// Warns of a token that can be guessed: other users of this machine, and web pages in its browsers, can try many.
pub(super) fn warn_of_weak_token(token: &str, setting: &str) {
    if token.len() < STRONG_TOKEN_CHARS {
        tracing::warn!(
            "the token in {setting} can be guessed; choose one of at least {STRONG_TOKEN_CHARS} random characters, or \
             remove it to have one made"
        );
    }
}

/// Checks that a proxy, which lets other machines in, does not do so with a token that can be guessed.
pub(super) fn check_proxied_token(has_proxies: bool, token: &Token) -> anyhow::Result<()> {
    if has_proxies && !token.is_strong() {
        bail!(
            "trusted_proxies in [channels.supr] lets other machines in, and the token is too short to keep strangers \
             out: use a token of at least {STRONG_TOKEN_CHARS} random characters, or none at all in parlor.toml, to \
             have one made"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, address) in [
            ("127.0.0.1:9876", "127.0.0.1:9876"),
            ("localhost:0", "127.0.0.1:0"),
            (":7", "127.0.0.1:7"),
            ("9000", "127.0.0.1:9000"),
            ("[::1]:5", "[::1]:5"),
            ("0.0.0.0:1", "0.0.0.0:1"),
        ] {
            assert_eq!(parse(text).unwrap(), address.parse().unwrap(), "{text}");
        }
        for text in ["", "localhost", "127.0.0.1:", "127.0.0.1:99999", "a b:1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_single_variable_changes_only_its_part() {
        let default: SocketAddr = "127.0.0.1:9876".parse().unwrap();
        assert_eq!(join(None, Some("1"), default).unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(join(Some("::1"), None, default).unwrap().to_string(), "[::1]:9876");
        assert!(join(None, Some("x"), default).is_err());
    }

    #[test]
    fn other_machines_can_connect_only_with_permission_and_a_token() {
        let (local, remote) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert!(
            check(local, false, false).is_ok() && check("[::1]:1".parse().unwrap(), false, false).is_ok()
        );
        assert!(check(remote, false, true).is_err() && check(remote, true, false).is_err());
        assert!(check(remote, true, true).is_ok());
    }

    #[test]
    fn a_server_for_other_machines_needs_a_strong_token() {
        let (local, remote) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let (weak, strong) = (Token::parse("secret").unwrap(), Token::parse(&"x".repeat(22)).unwrap());
        assert!(check_token(local, &weak).is_ok() && check_token(remote, &strong).is_ok());
        assert!(check_token(remote, &weak).unwrap_err().to_string().contains("22 random characters"));
        assert!(check_proxied_token(false, &weak).is_ok() && check_proxied_token(true, &strong).is_ok());
        let error = check_proxied_token(true, &weak).unwrap_err().to_string();
        assert!(error.contains("trusted_proxies") && error.contains("22 random characters"), "{error}");
    }
}
