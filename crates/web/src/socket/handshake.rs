//! The checks of a WebSocket handshake, each with the answer that clients of this protocol expect.
//!
//! Pure: a check reads the request and nothing else. The order of the checks is part of the protocol
//! (`docs/protocols/supr-http.md`): a client that is not authenticated does not learn how the others ended.

use axum::http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::handshake_query::QueryError;
use crate::auth::token::Token;
use crate::auth::token_store::StoredToken;
use crate::auth::trust::has_bearer_token;
use crate::query::first;
use crate::response::{empty, text};

/// The version of the WebSocket protocol, of which there is only this one.
const VERSION: &str = "13";

/// The length of the decoded `Sec-WebSocket-Key`.
const KEY_BYTES: usize = 16;

/// Why the server refuses a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    NotRunning,
    Unauthorized,
    Query(QueryError),
    TooMany,
    NoUpgrade,
    Method,
    Version,
    Origin,
    Key,
    ReadOnly,
}

impl HandshakeError {
    /// The label in the metrics and in the log.
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
            Self::ReadOnly => "read_only",
        }
    }

    /// The answer to the client.
    pub(crate) fn response(self) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::NotRunning => text(StatusCode::SERVICE_UNAVAILABLE, "channel not running"),
            Self::Unauthorized => text(StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Query(error) => text(bad, &error.to_string()),
            Self::TooMany => text(StatusCode::SERVICE_UNAVAILABLE, "too many connections"),
            Self::NoUpgrade => {
                let mut response = text(bad, "Bad Request");
                response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
                response
            }
            Self::Method => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            Self::Version | Self::Key => text(bad, "Bad Request"),
            Self::Origin | Self::ReadOnly => text(StatusCode::FORBIDDEN, "Forbidden"),
        }
    }
}

/// How a client has shown that it has the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    /// It sent the token as a subprotocol, which the answer has to repeat.
    by_subprotocol: bool,
}

impl Authenticated {
    /// It sent the token in a header, or needs none.
    pub(crate) const WITHOUT_SUBPROTOCOL: Self = Self { by_subprotocol: false };
}

/// Checks that the client has the token: as a subprotocol, in `Authorization`, or in the query if that is allowed.
pub(crate) fn authenticate(
    parts: &Parts,
    token: &Token,
    allow_token_query: bool,
) -> Result<Authenticated, HandshakeError> {
    // All three are always checked, so that the time does not show which one failed.
    let by_subprotocol = has_token_subprotocol(&parts.headers, token);
    let by_header = has_bearer_token(&parts.headers, token);
    let by_query = allow_token_query
        && first(parts.uri.query().unwrap_or_default(), "token").is_some_and(|given| token.is(&given));
    if by_subprotocol | by_header | by_query {
        Ok(Authenticated { by_subprotocol })
    } else {
        Err(HandshakeError::Unauthorized)
    }
}

/// A handshake is one guess: if it names several tokens, none of them counts.
fn has_token_subprotocol(headers: &HeaderMap, token: &Token) -> bool {
    let mut given = items(headers, &SEC_WEBSOCKET_PROTOCOL).filter_map(|item| item.strip_prefix(b"token."));
    given.next().is_some_and(|given| token.is(given)) & given.next().is_none()
}

/// The rest of the checks, once a slot for the socket is reserved. Gives the answer that completes the handshake.
/// `is_own_origin` says that a page of this server itself opens the socket, which may do so whatever origins are listed.
pub(crate) fn upgrade(
    parts: &Parts,
    stored: &StoredToken,
    authenticated: Authenticated,
    is_own_origin: bool,
) -> Result<Response, HandshakeError> {
    let headers = &parts.headers;
    let has = |name: &HeaderName, wanted: &str| {
        items(headers, name).any(|item| item.eq_ignore_ascii_case(wanted.as_bytes()))
    };
    if !has(&CONNECTION, "upgrade") || !has(&UPGRADE, "websocket") {
        return Err(HandshakeError::NoUpgrade);
    }
    if parts.method != Method::GET {
        return Err(HandshakeError::Method);
    }
    if !has(&SEC_WEBSOCKET_VERSION, VERSION) {
        return Err(HandshakeError::Version);
    }
    if !is_allowed_origin(&stored.allow_origins, headers) && !is_own_origin {
        return Err(HandshakeError::Origin);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if !base64_simd::STANDARD.decode_to_vec(key).is_ok_and(|key| key.len() == KEY_BYTES) {
        return Err(HandshakeError::Key);
    }
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let answer = response.headers_mut();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(derive_accept_key(key)) {
        answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if authenticated.by_subprotocol
        && let Ok(protocol) = HeaderValue::try_from(format!("token.{}", stored.token.reveal()))
    {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

fn is_allowed_origin(origins: &[String], headers: &HeaderMap) -> bool {
    if origins.is_empty() || origins.iter().any(|origin| origin == "*") {
        return true;
    }
    let given = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    given.is_some_and(|given| origins.iter().any(|origin| origin.as_bytes() == given))
}

/// The items of a header that is a list, which may span several lines.
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

    fn stored(origins: &[&str]) -> StoredToken {
        StoredToken {
            token: token(),
            allow_origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            evictions: 0,
            open_origins: Vec::new(),
            sign_outs: 0,
        }
    }

    fn by(headers: &[(&str, &str)]) -> Result<bool, HandshakeError> {
        authenticate(&parts("GET", "/supr/ws?token=good", headers), &token(), false)
            .map(|authenticated| authenticated.by_subprotocol)
    }

    #[test]
    fn one_right_token_suffices_wherever_it_is() {
        assert_eq!(by(&[]), Err(HandshakeError::Unauthorized));
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
            assert_eq!(by(&[("authorization", wrong)]), Err(HandshakeError::Unauthorized), "{wrong:?}");
        }
        for several in ["token.goodish, good", "token.good, token.bad", "token.bad, token.good"] {
            assert_eq!(by(&[("sec-websocket-protocol", several)]), Err(HandshakeError::Unauthorized));
        }
    }

    #[test]
    fn the_token_in_the_query_counts_only_if_that_is_allowed() {
        let query = |uri: &str, allow| authenticate(&parts("GET", uri, &[]), &token(), allow).is_ok();
        assert!(query("/supr/ws?token=good", true) && !query("/supr/ws?token=good", false));
        assert!(!query("/supr/ws?token=bad&token=good", true) && query("/supr/ws?token=g%6Fod", true));
    }

    fn upgraded(
        method: &str,
        origins: &[&str],
        change: &[(&str, Option<&str>)],
    ) -> Result<Response, HandshakeError> {
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
        let authenticated = Authenticated { by_subprotocol: true };
        upgrade(&parts(method, "/supr/ws", &headers), &stored(origins), authenticated, false)
    }

    #[test]
    fn a_valid_handshake_is_completed() {
        let response = upgraded("GET", &[], &[]).unwrap();
        assert_eq!(response.status(), 101);
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(header("sec-websocket-protocol"), "token.good");
        assert_eq!((header("connection"), header("upgrade")), ("Upgrade", "websocket"));
    }

    #[test]
    fn the_first_failed_check_decides_the_answer() {
        let wrong = |method, change: &[_]| upgraded(method, &["http://a:1"], change).unwrap_err();
        let (origin, key) = (("origin", Some("http://a:1")), ("sec-websocket-key", Some("short")));
        assert_eq!(wrong("POST", &[("upgrade", None), key]), HandshakeError::NoUpgrade);
        assert_eq!(wrong("POST", &[("connection", Some("close"))]), HandshakeError::NoUpgrade);
        assert_eq!(wrong("POST", &[("sec-websocket-version", Some("12"))]), HandshakeError::Method);
        assert_eq!(wrong("GET", &[("sec-websocket-version", Some("12"))]), HandshakeError::Version);
        assert_eq!(wrong("GET", &[("sec-websocket-version", None)]), HandshakeError::Version);
        assert_eq!(wrong("GET", &[key]), HandshakeError::Origin);
        assert_eq!(wrong("GET", &[("origin", Some("http://a:2")), key]), HandshakeError::Origin);
        assert_eq!(wrong("GET", &[origin, key]), HandshakeError::Key);
        assert_eq!(wrong("GET", &[origin, ("sec-websocket-key", None)]), HandshakeError::Key);
        assert!(upgraded("GET", &["http://a:1"], &[origin]).is_ok());
        assert!(upgraded("GET", &["http://b", "*"], &[]).is_ok());
    }

    #[test]
    fn a_page_of_this_server_may_open_a_socket_whatever_origins_are_listed() {
        let headers = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", KEY),
        ];
        let upgraded = |is_own_origin| {
            let authenticated = Authenticated { by_subprotocol: false };
            upgrade(&parts("GET", "/supr/ws", &headers), &stored(&["http://b"]), authenticated, is_own_origin)
        };
        assert!(upgraded(true).is_ok() && upgraded(false).is_err());
    }
}
