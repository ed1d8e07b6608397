//! Where to listen, and whether that is allowed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail};
use parlor_web::{STRONG_TOKEN_CHARS, Token};

/// Reads `HOST:PORT`, `:PORT` or `PORT`.
pub(super) fn parse(text: &str) -> anyhow::Result<SocketAddr> {
    let hint = || format!("{text:?} is no address; write HOST:PORT, such as 127.0.0.1:9876");
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port.parse().with_context(hint)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(SocketAddr::new(ip(host).with_context(hint)?, port))
}

/// The address of a host and a port that stand in two variables, or of the one that is not set.
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

/// `localhost` is an IPv4 address here: clients have no other.
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

/// Refuses to listen where strangers are, unless that is wanted and they need a token.
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

/// Why it matters that `taken` is in use, to who asked for another address.
pub(super) fn why_it_matters(taken: SocketAddr, asked: SocketAddr) -> &'static str {
    match taken.ip() == asked.ip() {
        true => "",
        false => ", and whoever listens there is sent what clients mean for localhost",
    }
}

/// Refuses to let strangers guess a weak token.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
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
    fn a_variable_alone_changes_its_half() {
        let default: SocketAddr = "127.0.0.1:9876".parse().unwrap();
        assert_eq!(join(None, Some("1"), default).unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(join(Some("::1"), None, default).unwrap().to_string(), "[::1]:9876");
        assert!(join(None, Some("x"), default).is_err());
    }

    #[test]
    fn nothing_listens_for_strangers_without_a_word_and_a_token() {
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert!(check(near, false, false).is_ok() && check("[::1]:1".parse().unwrap(), false, false).is_ok());
        assert!(check(far, false, true).is_err() && check(far, true, false).is_err());
        assert!(check(far, true, true).is_ok());
    }

    #[test]
    fn strangers_need_a_strong_token() {
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let (weak, strong) = (Token::parse("secret").unwrap(), Token::parse(&"x".repeat(22)).unwrap());
        assert!(check_token(near, &weak).is_ok() && check_token(far, &strong).is_ok());
        assert!(check_token(far, &weak).unwrap_err().to_string().contains("22 random characters"));
    }
}
