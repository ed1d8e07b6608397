//! The checks of a WebSocket handshake, each with the answer that clients of this protocol know.
//!
//! Pure: it looks at a request and at nothing else. The order of the checks is part of the protocol
//! (`docs/protocols/supr-http.md`): who is not authenticated learns nothing of the others.

use axum::http::header::{
    AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::answer::{empty, text};
use crate::arrival::{QueryError, first};
use crate::store::StoredToken;
use crate::token::Token;

/// The only version of the protocol there is.
const VERSION: &str = "13";

/// How long the decoded `Sec-WebSocket-Key` is.
const KEY_BYTES: usize = 16;

/// Why a handshake is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NotRunning,
    Unauthorized,
    Query(QueryError),
    TooMany,
    NoUpgrade,
    Method,
    Version,
    Origin,
    Key,
}

impl Refused {
    /// A word for the metrics.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotRunning => "not_running",
            Self::Unauthorized => "unauthorized",
            Self::Query(_) => "query",
            Self::TooMany => "too_many_connections",
            Self::NoUpgrade => "no_upgrade",
            Self::Method => "method",
            Self::Version => "version",
            Self::Origin => "origin",
            Self::Key => "key",
        }
    }

    /// What the client is answered.
    pub(crate) fn response(self) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::NotRunning => text(StatusCode::SERVICE_UNAVAILABLE, "channel not running"),
            Self::Unauthorized => text(StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Query(flaw) => text(bad, &flaw.to_string()),
            Self::TooMany => text(StatusCode::SERVICE_UNAVAILABLE, "too many connections"),
            Self::NoUpgrade => {
                let mut response = text(bad, "Bad Request");
                response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
                response
            }
            Self::Method => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            Self::Version | Self::Key => text(bad, "Bad Request"),
            Self::Origin => text(StatusCode::FORBIDDEN, "Forbidden"),
        }
    }
}

/// How a client has shown that it knows the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    /// It offered the subprotocol, which is then answered with.
    by_subprotocol: bool,
}

/// Whether the client knows the token, by any of the ways.
pub(crate) fn authenticate(
    parts: &Parts,
    token: &Token,
    allow_token_query: bool,
) -> Result<Authenticated, Refused> {
    // All ways are looked at, so that how long it takes does not tell which of them was tried.
    let by_subprotocol = offers(&parts.headers, token);
    let by_header = bears(&parts.headers, token);
    let by_query = allow_token_query
        && first(parts.uri.query().unwrap_or_default(), "token").is_some_and(|given| token.is(&given));
    if by_subprotocol | by_header | by_query {
        Ok(Authenticated { by_subprotocol })
    } else {
        Err(Refused::Unauthorized)
    }
}

/// Whether `Authorization` has the token.
pub(crate) fn bears(headers: &HeaderMap, token: &Token) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    match given.split_at_checked(b"Bearer ".len()) {
        Some((scheme, given)) => scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(given),
        None => false,
    }
}

fn offers(headers: &HeaderMap, token: &Token) -> bool {
    items(headers, &SEC_WEBSOCKET_PROTOCOL)
        .any(|item| item.strip_prefix(b"token.").is_some_and(|given| token.is(given)))
}

/// The rest of the checks, once there is a place for the socket. Gives the answer that completes the handshake.
pub(crate) fn upgrade(
    parts: &Parts,
    kept: &StoredToken,
    authenticated: Authenticated,
) -> Result<Response, Refused> {
    let headers = &parts.headers;
    let has = |name: &HeaderName, wanted: &str| {
        items(headers, name).any(|item| item.eq_ignore_ascii_case(wanted.as_bytes()))
    };
    if !has(&CONNECTION, "upgrade") || !has(&UPGRADE, "websocket") {
        return Err(Refused::NoUpgrade);
    }
    if parts.method != Method::GET {
        return Err(Refused::Method);
    }
    if !has(&SEC_WEBSOCKET_VERSION, VERSION) {
        return Err(Refused::Version);
    }
    if !allows(&kept.allow_origins, headers) {
        return Err(Refused::Origin);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if !base64_simd::STANDARD.decode_to_vec(key).is_ok_and(|key| key.len() == KEY_BYTES) {
        return Err(Refused::Key);
    }
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let answer = response.headers_mut();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(derive_accept_key(key)) {
        answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if authenticated.by_subprotocol
        && let Ok(protocol) = HeaderValue::try_from(format!("token.{}", kept.token.reveal()))
    {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

fn allows(origins: &[String], headers: &HeaderMap) -> bool {
    if origins.is_empty() || origins.iter().any(|origin| origin == "*") {
        return true;
    }
    let given = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    given.is_some_and(|given| origins.iter().any(|origin| origin.as_bytes() == given))
}

/// The items of a header that is a list, from all lines of that name.
fn items<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn token() -> Token {
        Token::parse("good").unwrap()
    }

    fn kept(origins: &[&str]) -> StoredToken {
        StoredToken {
            token: token(),
            allow_origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
        }
    }

    fn by(headers: &[(&str, &str)]) -> Result<bool, Refused> {
        authenticate(&parts("GET", "/supr/ws?token=good", headers), &token(), false)
            .map(|way| way.by_subprotocol)
    }

    #[test]
    fn each_way_suffices_and_none_vetoes_another() {
        assert_eq!(by(&[]), Err(Refused::Unauthorized));
        assert_eq!(by(&[("authorization", "Bearer good")]), Ok(false));
        assert_eq!(by(&[("authorization", "bearer good")]), Ok(false));
        assert_eq!(by(&[("sec-websocket-protocol", "foo, token.good,bar")]), Ok(true));
        assert_eq!(
            by(&[("sec-websocket-protocol", "foo"), ("sec-websocket-protocol", "token.good")]),
            Ok(true)
        );
        assert_eq!(
            by(&[("sec-websocket-protocol", "token.bad"), ("authorization", "Bearer good")]),
            Ok(false)
        );
        assert_eq!(
            by(&[("sec-websocket-protocol", "token.good"), ("authorization", "Bearer bad")]),
            Ok(true)
        );
        for wrong in ["good", "Bearer", "Bearer ", "Bearer  good", "Bearer good ", "Basic good", "Bearer goo"]
        {
            assert_eq!(by(&[("authorization", wrong)]), Err(Refused::Unauthorized), "{wrong:?}");
        }
        assert_eq!(by(&[("sec-websocket-protocol", "token.goodish, good")]), Err(Refused::Unauthorized));
    }

    #[test]
    fn the_query_counts_where_it_is_allowed() {
        let query = |uri: &str, allow| authenticate(&parts("GET", uri, &[]), &token(), allow).is_ok();
        assert!(query("/supr/ws?token=good", true) && !query("/supr/ws?token=good", false));
        assert!(!query("/supr/ws?token=bad&token=good", true) && query("/supr/ws?token=g%6Fod", true));
    }

    fn upgraded(
        method: &str,
        origins: &[&str],
        change: &[(&str, Option<&str>)],
    ) -> Result<Response, Refused> {
        let mut headers = vec![
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", KEY),
        ];
        for (name, value) in change {
            headers.retain(|(present, _)| present != name);
            headers.extend(value.map(|value| (*name, value)));
        }
        let way = Authenticated { by_subprotocol: true };
        upgrade(&parts(method, "/supr/ws", &headers), &kept(origins), way)
    }

    #[test]
    fn a_right_handshake_is_completed() {
        let response = upgraded("GET", &[], &[]).unwrap();
        assert_eq!(response.status(), 101);
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(header("sec-websocket-protocol"), "token.good");
        assert_eq!((header("connection"), header("upgrade")), ("Upgrade", "websocket"));
    }

    #[test]
    fn what_is_wrong_first_is_answered() {
        let wrong = |method, change: &[_]| upgraded(method, &["http://a:1"], change).unwrap_err();
        let (origin, key) = (("origin", Some("http://a:1")), ("sec-websocket-key", Some("short")));
        assert_eq!(wrong("POST", &[("upgrade", None), key]), Refused::NoUpgrade);
        assert_eq!(wrong("POST", &[("connection", Some("close"))]), Refused::NoUpgrade);
        assert_eq!(wrong("POST", &[("sec-websocket-version", Some("12"))]), Refused::Method);
        assert_eq!(wrong("GET", &[("sec-websocket-version", Some("12"))]), Refused::Version);
        assert_eq!(wrong("GET", &[("sec-websocket-version", None)]), Refused::Version);
        assert_eq!(wrong("GET", &[key]), Refused::Origin);
        assert_eq!(wrong("GET", &[("origin", Some("http://a:2")), key]), Refused::Origin);
        assert_eq!(wrong("GET", &[origin, key]), Refused::Key);
        assert_eq!(wrong("GET", &[origin, ("sec-websocket-key", None)]), Refused::Key);
        assert!(upgraded("GET", &["http://a:1"], &[origin]).is_ok());
        assert!(upgraded("GET", &["http://b", "*"], &[]).is_ok());
    }
}
