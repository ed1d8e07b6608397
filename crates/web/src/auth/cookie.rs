//! The cookie of a browser that has signed in, so that the browser need not store the token.
//!
//! The value is a hash of the token and of the user or machine that the browser runs as, so the server stores no list of
//! cookies. A new token invalidates all of them, and so does a sign-out of all browsers. A cookie that another user of this
//! machine has copied is useless to that user, at every address of the machine. This matters since browsers send a cookie to
//! every port of a host, and thus to web servers of other users.
//!
//! Behind a trusted proxy that speaks https, a cookie works at every address: browsers send it only to servers that have
//! the certificate of that host, and the address of a phone changes often.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use axum::http::header::{COOKIE, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use hmac::{Hmac, KeyInit, Mac};
use parlor_transport::{ConnectedPeer, PeerUser};
use sha2::Sha256;

use super::forwarded::Forwarded;
use super::request_source::header_text;
use super::token::Token;

/// How long a browser keeps the cookie. It gets a new one whenever it signs in.
pub const COOKIE_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Part of what is hashed, so that a hash of the token for another purpose is never a valid cookie.
const PURPOSE: &str = "parlor cookie 1";

/// Who may use a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieHolder {
    /// A user of this machine, or all users whom the kernel does not name.
    User(PeerUser),
    /// Everyone on the machine with this address, who comes through this proxy if there is one.
    Machine { address: IpAddr, proxy: Option<LocalProxy> },
    /// Every client of a trusted proxy that speaks https.
    HttpsClient { proxy: Option<LocalProxy> },
}

/// A trusted proxy on this machine, by the user that it runs as. Another user can connect from the same trusted address and
/// write the headers of a proxy, but has no use for a cookie that a browser got through this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalProxy(PeerUser);

impl CookieHolder {
    /// The client of a request: of a trusted proxy, or else at the other end of the connection.
    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        let peer = parts.extensions.get::<ConnectedPeer>();
        let user = peer.and_then(ConnectedPeer::local_user);
        match parts.extensions.get::<Forwarded>() {
            Some(forwarded) => {
                let proxy = user.map(LocalProxy);
                Some(match forwarded.is_https {
                    true => Self::HttpsClient { proxy },
                    false => Self::Machine { address: forwarded.client, proxy },
                })
            }
            None => peer.map(|peer| match user {
                Some(user) => Self::User(user),
                None => Self::Machine { address: peer.address().ip(), proxy: None },
            }),
        }
    }
}

/// The valid cookie of one holder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Cookie(String);

impl Cookie {
    /// The cookie that proves that `holder` has signed in with `token`, since all browsers were signed out for the last
    /// time, which has happened `sign_outs` times.
    pub(crate) fn new(token: &Token, sign_outs: u64, holder: CookieHolder) -> Self {
        let through = |proxy: Option<LocalProxy>| match proxy {
            Some(LocalProxy(user)) => format!(" through {}", user_text(user)),
            None => String::new(),
        };
        let holder = match holder {
            CookieHolder::User(user) => user_text(user),
            CookieHolder::Machine { address, proxy } => format!("machine {address}{}", through(proxy)),
            CookieHolder::HttpsClient { proxy } => format!("https client{}", through(proxy)),
        };
        let sign_outs = if sign_outs == 0 { String::new() } else { format!("\nsign-outs {sign_outs}") };
        let mut mac = Hmac::<Sha256>::new_from_slice(token.reveal().as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(format!("{PURPOSE}\n{holder}{sign_outs}").as_bytes());
        Self(mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether a request to the server on `port` has this cookie.
    pub(crate) fn is_in(&self, headers: &HeaderMap, port: u16) -> bool {
        let expected = self.0.as_bytes();
        // Compares all values, in constant time each.
        values(headers, port).fold(false, |is_in, given| {
            is_in | constant_time_eq::constant_time_eq(given.as_bytes(), expected)
        })
    }

    /// The `Set-Cookie` header of a server on `port`.
    pub(crate) fn header(&self, headers: &HeaderMap, port: u16) -> Option<HeaderValue> {
        set_cookie(&self.0, COOKIE_LIFE, headers, port)
    }

    /// The value itself, for the redaction.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

fn user_text(user: PeerUser) -> String {
    match user {
        PeerUser::Ours => "ours".to_owned(),
        PeerUser::Root => "root".to_owned(),
        PeerUser::Other(uid) => format!("user {uid}"),
        PeerUser::Unknown(_) => "unknown".to_owned(),
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(…)")
    }
}

/// The `Set-Cookie` header that makes a browser forget its cookie of the server on `port`.
pub(crate) fn forget(headers: &HeaderMap, port: u16) -> Option<HeaderValue> {
    set_cookie("", Duration::ZERO, headers, port)
}

fn set_cookie(value: &str, life: Duration, headers: &HeaderMap, port: u16) -> Option<HeaderValue> {
    let (name, life) = (name(port), life.as_secs());
    // Any client may claim this: it only keeps that client's own cookie from connections without TLS.
    let is_https = header_text(headers, "x-forwarded-proto")
        .and_then(|list| list.split(',').next_back())
        .is_some_and(|scheme| scheme.trim().eq_ignore_ascii_case("https"));
    let secure = if is_https { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}");
    HeaderValue::try_from(text).ok()
}

/// Whether a request has a cookie of this server, valid or not.
pub(crate) fn is_given(headers: &HeaderMap, port: u16) -> bool {
    values(headers, port).next().is_some()
}

/// Has the port, since browsers share cookies among the ports of a host.
fn name(port: u16) -> String {
    format!("parlor-{port}")
}

fn values(headers: &HeaderMap, port: u16) -> impl Iterator<Item = &str> {
    let name = name(port);
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(move |pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(token: &str, holder: PeerUser) -> Cookie {
        Cookie::new(&Token::parse(token).unwrap(), 0, CookieHolder::User(holder))
    }

    fn cookie_at(address: &str) -> Cookie {
        let holder = CookieHolder::Machine { address: address.parse().unwrap(), proxy: None };
        Cookie::new(&Token::parse("one").unwrap(), 0, holder)
    }

    #[test]
    fn a_cookie_of_another_machine_depends_on_its_address() {
        assert_eq!(cookie_at("192.0.2.1"), cookie_at("192.0.2.1"));
        assert_ne!(cookie_at("192.0.2.1"), cookie_at("192.0.2.2"));
        assert_ne!(cookie_at("192.0.2.1"), cookie("one", PeerUser::Unknown("")));
    }

    #[test]
    fn a_sign_out_of_all_browsers_changes_every_cookie() {
        let cookie = |sign_outs, holder| Cookie::new(&Token::parse("one").unwrap(), sign_outs, holder);
        let holders = [CookieHolder::User(PeerUser::Ours), CookieHolder::HttpsClient { proxy: None }];
        for holder in holders {
            assert_ne!(cookie(0, holder), cookie(1, holder));
            assert_ne!(cookie(1, holder), cookie(2, holder));
        }
        assert_ne!(cookie(1, holders[0]), cookie(1, holders[1]));
    }

    #[test]
    fn the_holder_behind_a_trusted_proxy_is_the_client_and_not_the_proxy() {
        let holder = |is_https| {
            let mut parts = axum::http::Request::new(()).into_parts().0;
            let client = "203.0.113.9".parse().unwrap();
            parts.extensions.insert(Forwarded { client, is_https, host: None });
            CookieHolder::of(&parts)
        };
        assert_eq!(holder(true), Some(CookieHolder::HttpsClient { proxy: None }));
        let address = "203.0.113.9".parse().unwrap();
        assert_eq!(holder(false), Some(CookieHolder::Machine { address, proxy: None }));
    }

    #[test]
    fn a_cookie_from_behind_a_proxy_depends_on_the_user_of_the_proxy() {
        let address = "203.0.113.9".parse().unwrap();
        let proxies = [None, Some(PeerUser::Root), Some(PeerUser::Other(33)), Some(PeerUser::Other(34))];
        let holders = proxies.into_iter().map(|user| user.map(LocalProxy)).flat_map(|proxy| {
            [CookieHolder::HttpsClient { proxy }, CookieHolder::Machine { address, proxy }]
        });
        let cookies: std::collections::BTreeSet<String> = holders
            .map(|holder| Cookie::new(&Token::parse("one").unwrap(), 0, holder).reveal().to_owned())
            .collect();
        assert_eq!(cookies.len(), 2 * proxies.len());
    }

    fn headers(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (COOKIE, HeaderValue::from_str(line).unwrap())).collect()
    }

    #[test]
    fn a_cookie_depends_on_the_token_and_on_the_user() {
        let ours = cookie("one", PeerUser::Ours);
        assert_eq!(ours, cookie("one", PeerUser::Ours));
        assert_eq!(cookie("one", PeerUser::Unknown("a")), cookie("one", PeerUser::Unknown("b")));
        for other in [
            cookie("two", PeerUser::Ours),
            cookie("one", PeerUser::Root),
            cookie("one", PeerUser::Other(5)),
            cookie("one", PeerUser::Unknown("")),
        ] {
            assert_ne!(ours, other);
        }
        assert_ne!(cookie("one", PeerUser::Other(5)), cookie("one", PeerUser::Other(6)));
        // As openssl computes it: printf 'parlor cookie 1\nours' | openssl dgst -sha256 -hmac one
        assert_eq!(ours.reveal(), "310aa9bff9a60c4037c5aab027f82f9693ca0907bbb589535422021426b3bbcc");
        assert_eq!(format!("{ours:?}"), "Cookie(…)");
    }

    #[test]
    fn a_cookie_is_found_by_its_port_and_compared_whole() {
        let right = cookie("one", PeerUser::Ours);
        let value = right.reveal().to_owned();
        assert!(right.is_in(&headers(&[&format!("a=b; parlor-80={value}; c")]), 80));
        assert!(right.is_in(&headers(&["x=1", &format!("parlor-80=old; parlor-80={value}")]), 80));
        for wrong in
            [format!("parlor-81={value}"), format!("parlor-80={value}0"), "parlor-80=".to_owned(), value]
        {
            assert!(!right.is_in(&headers(&[&wrong]), 80), "{wrong}");
        }
        assert!(is_given(&headers(&["parlor-80=x"]), 80) && !is_given(&headers(&["parlor-8=x"]), 80));
    }

    #[test]
    fn a_cookie_is_hidden_from_scripts_and_other_sites_and_expires() {
        let cookie = cookie("one", PeerUser::Ours);
        let given = cookie.header(&HeaderMap::new(), 80).unwrap();
        let right =
            format!("parlor-80={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000", cookie.reveal());
        assert_eq!(given.to_str().unwrap(), right);
        let https =
            HeaderMap::from_iter([("x-forwarded-proto".parse().unwrap(), HeaderValue::from_static("https"))]);
        assert!(cookie.header(&https, 80).unwrap().to_str().unwrap().ends_with("; Secure"));
        let forgotten = forget(&https, 80).unwrap();
        assert_eq!(forgotten, "parlor-80=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure");
    }
}
