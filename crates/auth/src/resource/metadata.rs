//! The documents in which a server and its authorization server describe themselves, and which addresses in them are used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use url::{Host, Url};

/// How many bytes the scopes of a login have at most, together.
pub const MAX_SCOPE_BYTES: usize = 4 << 10;

/// The metadata of a protected resource (RFC 9728).
#[derive(Debug, Deserialize)]
pub(super) struct ResourceMetadata {
    pub(super) resource: String,
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
}

/// The metadata of an authorization server (RFC 8414, OpenID Connect Discovery).
#[derive(Debug, Deserialize)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// Whether tokens for `resource` are for the server: the same origin, and the same path or one above it.
pub(super) fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let (above, below) = (resource.path().trim_end_matches('/'), server.path());
    let is_above = below.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == server.origin() && is_above && resource.fragment().is_none()
}

/// Where the metadata of a server can be if the server does not say: with its path, then without.
pub(super) fn resource_metadata_urls(server: &Url) -> Vec<Url> {
    well_known(server, "oauth-protected-resource").collect()
}

/// Where the metadata of the authorization server `issuer` can be.
pub(super) fn server_metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut urls: Vec<Url> = ["oauth-authorization-server", "openid-configuration"]
        .into_iter()
        .filter_map(|name| well_known(issuer, name).next())
        .collect();
    if !path.is_empty() {
        let mut appended = issuer.clone();
        appended.set_path(&format!("{path}/.well-known/openid-configuration"));
        urls.push(appended);
    }
    urls
}

/// The address of a well-known document with the path of `base` behind it, then without the path.
fn well_known(base: &Url, name: &str) -> impl Iterator<Item = Url> {
    let at = |path: String| {
        let mut url = base.clone();
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        url
    };
    let path = base.path().trim_end_matches('/');
    let inserted = (!path.is_empty()).then(|| at(format!("/.well-known/{name}{path}")));
    inserted.into_iter().chain([at(format!("/.well-known/{name}"))])
}

/// An address that the server at `server` gave, if parlor may use it: `https`, and none of this machine or of a private
/// network, unless the server itself is there.
pub(super) fn usable(address: &str, server: &Url) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| format!("names no valid address: {error}"))?;
    let is_same_host = url.host() == server.host();
    let is_loopback = |url: &Url| crate::provider::is_loopback(url);
    let is_safe = match url.scheme() {
        "http" => is_loopback(&url) && is_loopback(server),
        "https" => !is_private(&url) || is_same_host || (is_loopback(&url) && is_loopback(server)),
        _ => false,
    };
    if !is_safe {
        return Err(
            "names an address that is neither https nor on this machine, or of a private network".to_owned()
        );
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("names an address with a user, a password or a #".to_owned());
    }
    Ok(url)
}

/// Whether an address is written as one of this machine or of a private network.
fn is_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => is_private_v4(address),
        Some(Host::Ipv6(address)) => is_private_v6(address),
        None => true,
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    IpAddr::V4(address).is_loopback()
        || address.is_private()
        || address.is_link_local()
        || first == 0
        || first >= 224
        || (first == 100 && (64..128).contains(&second))
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    let mapped = address.to_ipv4_mapped().is_some_and(is_private_v4);
    address.is_loopback()
        || address.is_unspecified()
        || mapped
        || (first & 0xfe00) == 0xfc00
        || (first & 0xffc0) == 0xfe80
        || (first & 0xff00) == 0xff00
}

/// The scopes to ask for, each once. Names that OAuth does not allow are left out.
pub(super) fn scopes(wanted: impl IntoIterator<Item = String>) -> Result<Vec<String>, String> {
    let is_scope = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'))
    };
    let (mut scopes, mut bytes) = (Vec::new(), 0);
    for scope in wanted.into_iter().filter(|scope| is_scope(scope)) {
        if scopes.contains(&scope) {
            continue;
        }
        bytes += scope.len() + 1;
        if bytes > MAX_SCOPE_BYTES {
            return Err(format!("wants scopes of more than {MAX_SCOPE_BYTES} bytes"));
        }
        scopes.push(scope);
    }
    Ok(scopes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_resource_is_the_server_or_a_path_above_it() {
        let server = url("https://h/a/mcp?x=1");
        for resource in ["https://h/a/mcp", "https://h/a/mcp/", "https://h/a", "https://h", "https://h:443/"]
        {
            assert!(covers(resource, &server), "{resource}");
        }
        for resource in [
            "https://h/a/mcp2",
            "https://h/a/m",
            "http://h/a/mcp",
            "https://other/a/mcp",
            "h",
            "https://h/#x",
        ] {
            assert!(!covers(resource, &server), "{resource}");
        }
    }

    #[test]
    fn metadata_is_looked_for_in_the_order_of_the_standards() {
        let texts = |urls: Vec<Url>| urls.iter().map(Url::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts(resource_metadata_urls(&url("https://h/mcp?x=1"))),
            [
                "https://h/.well-known/oauth-protected-resource/mcp",
                "https://h/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            texts(server_metadata_urls(&url("https://h/t1/"))),
            [
                "https://h/.well-known/oauth-authorization-server/t1",
                "https://h/.well-known/openid-configuration/t1",
                "https://h/t1/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            texts(server_metadata_urls(&url("https://h"))),
            [
                "https://h/.well-known/oauth-authorization-server",
                "https://h/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn addresses_of_a_server_do_not_lead_into_private_networks() {
        let remote = url("https://mcp.example/mcp");
        assert!(usable("https://login.example/x", &remote).is_ok());
        for bad in [
            "http://login.example/x",
            "http://127.0.0.1:1/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://a.localhost/",
            "https://10.1.2.3/",
            "https://169.254.169.254/latest",
            "https://100.64.0.1/",
            "https://0.0.0.0/",
            "https://[::1]/",
            "https://[::ffff:192.168.0.1]/",
            "https://[fd00::1]/",
            "https://[fe80::1]/",
            "https://2130706433/",
            "file:///etc/passwd",
            "https://u:p@login.example/",
            "login.example",
        ] {
            assert!(usable(bad, &remote).is_err(), "{bad}");
        }
        let local = url("http://127.0.0.1:80/mcp");
        assert!(usable("http://localhost:9/x", &local).is_ok());
        assert!(usable("http://10.0.0.1/x", &local).is_err());
        assert!(usable("https://10.0.0.1/x", &url("https://10.0.0.1:8443/mcp")).is_ok());
    }

    #[test]
    fn scopes_are_asked_for_once_and_within_a_limit() {
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(scopes(words("a,b c,a,,d\"e,f:g")).unwrap(), ["a", "f:g"]);
        assert!(scopes([String::from("x").repeat(MAX_SCOPE_BYTES)]).is_err());
    }
}
