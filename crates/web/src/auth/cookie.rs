//! The cookie of a browser that has signed in, so that the browser need not store the token.
//!
//! The value is a hash of the token and of the user or machine that the browser runs as, so the server stores no list of
//! cookies. A new token invalidates all of them. A cookie that another user of this machine has copied is useless to that
//! user, at every address of the machine. This matters since browsers send a cookie to every port of a host, and thus to
//! web servers of other users.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use axum::http::header::{COOKIE, HeaderMap, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use parlor_transport::{ConnectedPeer, PeerUser};
use sha2::Sha256;

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
    /// Everyone on the machine with this address.
    Machine(IpAddr),
}

impl CookieHolder {
    /// The client at the other end of a connection.
    pub(crate) fn of(peer: &ConnectedPeer) -> Self {
        match peer.local_user() {
            Some(user) => Self::User(user),
            None => Self::Machine(peer.address().ip()),
        }
    }
}

/// The valid cookie of one holder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Cookie(String);

impl Cookie {
    /// The cookie that proves that `holder` has signed in with `token`.
    pub(crate) fn new(token: &Token, holder: CookieHolder) -> Self {
        let holder = match holder {
            CookieHolder::User(PeerUser::Ours) => "ours".to_owned(),
            CookieHolder::User(PeerUser::Root) => "root".to_owned(),
            CookieHolder::User(PeerUser::Other(uid)) => format!("user {uid}"),
            CookieHolder::User(PeerUser::Unknown(_)) => "unknown".to_owned(),
            CookieHolder::Machine(address) => format!("machine {address}"),
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(token.reveal().as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(format!("{PURPOSE}\n{holder}").as_bytes());
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
        let (name, life) = (name(port), COOKIE_LIFE.as_secs());
        let is_https = header_text(headers, "x-forwarded-proto")
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        let secure = if is_https { "; Secure" } else { "" };
        let text = format!("{name}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}", self.0);
        HeaderValue::try_from(text).ok()
    }

    /// The value itself, for the redaction.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(…)")
    }
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
        Cookie::new(&Token::parse(token).unwrap(), CookieHolder::User(holder))
    }

    fn cookie_at(address: &str) -> Cookie {
        Cookie::new(&Token::parse("one").unwrap(), CookieHolder::Machine(address.parse().unwrap()))
    }

    #[test]
    fn a_cookie_of_another_machine_depends_on_its_address() {
        assert_eq!(cookie_at("192.0.2.1"), cookie_at("192.0.2.1"));
        assert_ne!(cookie_at("192.0.2.1"), cookie_at("192.0.2.2"));
        assert_ne!(cookie_at("192.0.2.1"), cookie("one", PeerUser::Unknown("")));
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
    }
}
