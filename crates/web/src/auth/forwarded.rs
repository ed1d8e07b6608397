//! Proxies in front of the server: which ones the settings trust, and what a trusted one says about the original request.
//!
//! Any client can write the headers of a proxy, so they count only if the connection itself comes from a trusted address.
//! A request through a proxy is never one of the user of this machine: it needs the token or a cookie in any case.

use std::fmt;
use std::net::IpAddr;

use axum::http::header::HeaderMap;
use axum::http::request::Parts;
use parlor_transport::{ConnectedPeer, PeerGroup};

use super::request_source::{ConnectionEnds, is_proxied};

/// An address, or all addresses that begin with the same bits: `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyNetwork {
    address: IpAddr,
    prefix_bits: u8,
}

/// A text is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address such as \"127.0.0.1\" nor a network such as \"10.0.0.0/8\"")]
pub struct ProxyNetworkError(String);

impl ProxyNetwork {
    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    pub fn parse(text: &str) -> Result<Self, ProxyNetworkError> {
        let error = || ProxyNetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| error())?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| error())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.unwrap_or(longest);
        if prefix_bits > longest {
            return Err(error());
        }
        Ok(Self { address, prefix_bits })
    }

    /// Whether the network has this address. An IPv4 address in the form of an IPv6 address counts as IPv4.
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let different = network.to_bits() ^ address.to_bits();
                different.checked_shr(32 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let different = network.to_bits() ^ address.to_bits();
                different.checked_shr(128 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for ProxyNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.prefix_bits) {
            (address @ IpAddr::V4(_), 32) | (address @ IpAddr::V6(_), 128) => write!(f, "{address}"),
            (address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

/// What a trusted proxy says about the request that it has passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forwarded {
    /// The address of the client; that of the proxy if it does not say.
    pub(crate) client: IpAddr,
    /// Whether the client has used https.
    pub(crate) is_https: bool,
    /// The host and port that the client has named; `None` if `Host` has them.
    pub(crate) host: Option<String>,
}

impl Forwarded {
    /// Reads the headers of a request that came from `peer`. `None` if it did not come through a trusted proxy.
    pub(crate) fn read(headers: &HeaderMap, peer: IpAddr, trusted: &[ProxyNetwork]) -> Option<Self> {
        let is_trusted = |address| trusted.iter().any(|network| network.contains(address));
        if !is_trusted(peer) || !is_proxied(headers) {
            return None;
        }
        // Each proxy appends the address of its own peer, so the list is true from its end up to the first address that
        // is not a trusted proxy. The client may have written what comes before.
        let mut client = peer;
        for item in items(headers, "x-forwarded-for").into_iter().rev() {
            let Some(address) = address_of(item) else { break };
            client = address;
            if !is_trusted(address) {
                break;
            }
        }
        let is_https = items(headers, "x-forwarded-proto")
            .pop()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss"));
        let host = items(headers, "x-forwarded-host").pop().map(str::to_owned);
        Some(Self { client: client.to_canonical(), is_https, host })
    }
}

/// The address of the client of a request, as far as it is known.
pub(crate) fn client_address(parts: &Parts) -> Option<IpAddr> {
    let forwarded = parts.extensions.get::<Forwarded>().map(|forwarded| forwarded.client);
    forwarded.or_else(|| parts.extensions.get::<ConnectionEnds>().map(|ends| ends.peer))
}

/// The group whose request rate applies to the client of a request. Clients of a trusted proxy have a rate each; those of
/// another proxy share the proxy's.
pub(crate) fn client_group(parts: &Parts) -> Option<PeerGroup> {
    match parts.extensions.get::<Forwarded>() {
        Some(forwarded) => Some(PeerGroup::remote(forwarded.client)),
        None => parts.extensions.get::<ConnectedPeer>().map(ConnectedPeer::group),
    }
}

/// The items of a header that is a list, which may span several lines. Leaves out empty ones. One that is not UTF-8 is there
/// as [`UNREADABLE`]: the client may have written it, and the proxy the ones after it.
fn items<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let lines = headers.get_all(name).into_iter();
    let items = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let items = items.filter(|item| !item.is_empty());
    items.map(|item| std::str::from_utf8(item).unwrap_or(UNREADABLE)).collect()
}

/// Neither an address nor a scheme nor a host.
const UNREADABLE: &str = "?";

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn address_of(item: &str) -> Option<IpAddr> {
    if let Ok(address) = item.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(socket) = item.parse::<std::net::SocketAddr>() {
        return Some(socket.ip());
    }
    item.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::HeaderName;

    use super::*;

    fn networks(list: &[&str]) -> Vec<ProxyNetwork> {
        list.iter().map(|text| ProxyNetwork::parse(text).unwrap()).collect()
    }

    fn forwarded(peer: &str, trusted: &[&str], headers: &[(&'static str, &str)]) -> Option<Forwarded> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        Forwarded::read(&map, peer.parse().unwrap(), &networks(trusted))
    }

    fn client(trusted: &[&str], lists: &[&str]) -> String {
        let headers: Vec<_> = lists.iter().map(|list| ("x-forwarded-for", *list)).collect();
        forwarded("127.0.0.1", trusted, &headers).unwrap().client.to_string()
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let has = |network: &str, address: &str| {
            ProxyNetwork::parse(network).unwrap().contains(address.parse().unwrap())
        };
        assert!(has("127.0.0.1", "127.0.0.1") && has("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(!has("127.0.0.1", "127.0.0.2") && !has("127.0.0.1", "::1") && !has("::1", "127.0.0.1"));
        assert!(has("10.0.0.0/8", "10.255.1.2") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("192.0.2.128/25", "192.0.2.200") && !has("192.0.2.128/25", "192.0.2.1"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("2001:db8::/32", "2001:db8:5::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(has("::/0", "2001:db8::1"));
        for wrong in ["", "proxy", "10.0.0.0/33", "::1/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8", "/8"] {
            let error = ProxyNetwork::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("10.0.0.0/8"), "{error}");
        }
        for text in ["127.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32"] {
            assert_eq!(ProxyNetwork::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn only_a_trusted_peer_with_the_headers_of_a_proxy_is_believed() {
        let header = ("x-forwarded-for", "203.0.113.9");
        assert!(forwarded("127.0.0.1", &["127.0.0.1"], &[header]).is_some());
        assert_eq!(forwarded("127.0.0.2", &["127.0.0.1"], &[header]), None);
        assert_eq!(forwarded("127.0.0.1", &[], &[header]), None);
        // The user's own programs come from the same address as a proxy on this machine.
        assert_eq!(forwarded("127.0.0.1", &["127.0.0.1"], &[]), None);
        assert_eq!(forwarded("127.0.0.1", &["127.0.0.1"], &[("x-forwarded-proto", "https")]), None);
    }

    #[test]
    fn what_the_client_wrote_does_not_hide_what_the_proxy_appended() {
        let mut headers = HeaderMap::new();
        let list = HeaderValue::from_bytes(b"\xff\xfe, 203.0.113.9").unwrap();
        headers.append("x-forwarded-for", list);
        let trusted = networks(&["127.0.0.1"]);
        let forwarded = Forwarded::read(&headers, "127.0.0.1".parse().unwrap(), &trusted).unwrap();
        assert_eq!(forwarded.client.to_string(), "203.0.113.9");
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_a_trusted_proxy() {
        let trusted = &["127.0.0.1", "10.0.0.0/8"];
        assert_eq!(client(trusted, &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(client(trusted, &["192.0.2.66, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(client(trusted, &["192.0.2.66", "203.0.113.9, 10.1.1.1"]), "203.0.113.9");
        assert_eq!(client(trusted, &["10.2.2.2, 10.1.1.1"]), "10.2.2.2");
        assert_eq!(client(trusted, &["203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(client(trusted, &["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(client(trusted, &["::ffff:203.0.113.9"]), "203.0.113.9");
        // What cannot be read is not skipped: the client may have written all that comes before it.
        assert_eq!(client(trusted, &["192.0.2.66, unknown"]), "127.0.0.1");
        assert_eq!(client(trusted, &["192.0.2.66, unknown, 10.1.1.1"]), "10.1.1.1");
        assert_eq!(client(trusted, &[""]), "127.0.0.1");
    }

    #[test]
    fn the_scheme_and_the_host_are_those_that_the_nearest_proxy_names() {
        let read = |headers: &[(&'static str, &str)]| {
            let headers = [&[("x-forwarded-for", "203.0.113.9")], headers].concat();
            forwarded("::1", &["::1"], &headers).unwrap()
        };
        assert!(
            read(&[("x-forwarded-proto", "HTTPS")]).is_https
                && read(&[("x-forwarded-proto", "wss")]).is_https
        );
        assert!(read(&[("x-forwarded-proto", "http, https")]).is_https);
        assert!(!read(&[("x-forwarded-proto", "https, http")]).is_https && !read(&[]).is_https);
        let host =
            read(&[("x-forwarded-host", "evil.example"), ("x-forwarded-host", "chat.example:8443")]).host;
        assert_eq!(host.as_deref(), Some("chat.example:8443"));
        assert_eq!(read(&[("x-forwarded-host", "")]).host, None);
    }
}
