//! The callback server: a browser delivers the authorization code of one login to it.
//!
//! It listens on loopback addresses only and stops when the login has its result. Other requests get a short refusal and
//! change nothing. A callback with a wrong `state` fails the login, as the clients of the loaf door expect.

mod request_check;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use url::form_urlencoded;

use crate::error::sanitize;
use crate::provider::Redirect;
use crate::{CANCEL_PATH, LoginError, Redactor, Secret};

/// How long a connection may take in all, from the request to the end of the response.
pub const CALLBACK_READ_WAIT: Duration = Duration::from_secs(10);

/// The largest request: request line and headers, in bytes.
pub const CALLBACK_HEADER_BYTES: usize = 16 << 10;

/// How many connections are served at a time. When all are in use, a new connection evicts the oldest one.
pub const MAX_CALLBACK_CONNECTIONS: usize = 16;

/// How many connections of peers that [`AdmitsPeer`] rejects are served at a time. More are closed at once, so that
/// they cannot keep the browser out.
pub const MAX_CALLBACK_REFUSED: usize = 4;

/// How old a connection must be before a new one may evict it. A browser sends its request much sooner.
pub const CALLBACK_EVICT_AFTER: Duration = Duration::from_millis(250);

/// How many ports are tried until one is free on both `127.0.0.1` and `::1`.
pub const CALLBACK_PORT_TRIES: usize = 16;

/// How long to wait after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Decides whether the peer of a connection may deliver the code: only processes of this user may. Knowing the
/// `state` is not enough, because it is part of the URL on the browser's command line, which all users of the machine
/// can read.
pub type AdmitsPeer = Arc<dyn Fn(&TcpStream) -> bool + Send + Sync>;

/// The listener of one login.
pub(crate) struct Callback {
    listener: TcpListener,
    /// The same port on `::1`. Browsers may resolve `localhost` to it, so no other program may listen there.
    listener_v6: Option<TcpListener>,
    path: String,
    host: String,
    port: u16,
    read_wait: Duration,
}

/// By what the answer to a login is known.
pub(crate) struct ExpectedAnswer {
    pub(crate) state: Secret,
    /// The authorization server, and whether it promised to name itself in its answer (RFC 9207). `None` if it is not known.
    pub(crate) issuer: Option<(String, bool)>,
}

/// The expected callback, and the result once it has arrived.
struct ExpectedCallback {
    path: String,
    port: u16,
    answer: ExpectedAnswer,
    redactor: Redactor,
    /// The result of the login. Stored here, because the connection that delivers it may break.
    result: Mutex<Option<Result<Secret, LoginError>>>,
}

impl Callback {
    /// Listens on the port of `redirect`, or on any free port if that one is in use.
    pub(crate) async fn listen(redirect: &Redirect) -> Result<Self, LoginError> {
        let failed =
            |error| LoginError::Local(format!("cannot listen for the browser on 127.0.0.1: {error}"));
        let mut wanted = redirect.port.unwrap_or(0);
        for _ in 0..CALLBACK_PORT_TRIES {
            let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)).await {
                Err(error) if is_taken(&error) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await,
                bound => bound,
            };
            let listener = listener.map_err(failed)?;
            let port = listener.local_addr().map_err(failed)?.port();
            let listener_v6 = match redirect.host.as_str() {
                "localhost" => match TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await {
                    Ok(listener) => Some(listener),
                    // Another program would receive the code.
                    Err(error) if is_taken(&error) => {
                        wanted = 0;
                        continue;
                    }
                    // The machine has no IPv6.
                    Err(_) => None,
                },
                _ => None,
            };
            return Ok(Self {
                listener,
                listener_v6,
                path: redirect.path.clone(),
                host: redirect.host.clone(),
                port,
                read_wait: CALLBACK_READ_WAIT,
            });
        }
        Err(LoginError::Local(format!(
            "no port is free for both 127.0.0.1 and ::1, of {CALLBACK_PORT_TRIES} tried; set redirect_host to \"127.0.0.1\""
        )))
    }

    /// The redirect URL for the browser.
    pub(crate) fn redirect_url(&self) -> String {
        format!("http://{}:{}{}", self.host, self.port, self.path)
    }

    /// Waits for the code, or for an error that ends the login. Only peers that `admits` accepts can deliver either.
    pub(crate) async fn wait_for_code(
        self,
        answer: ExpectedAnswer,
        redactor: &Redactor,
        admits: &AdmitsPeer,
    ) -> Result<Secret, LoginError> {
        let expected = Arc::new(ExpectedCallback {
            path: self.path.clone(),
            port: self.port,
            answer,
            redactor: redactor.clone(),
            result: Mutex::new(None),
        });
        let mut connections = JoinSet::new();
        let refused_slots = Arc::new(Semaphore::new(MAX_CALLBACK_REFUSED));
        // The open connections, oldest first, each with the time from which on it may be evicted.
        let mut served: VecDeque<(Instant, AbortHandle)> = VecDeque::new();
        loop {
            let is_full = connections.len() >= MAX_CALLBACK_CONNECTIONS;
            let evictable_at = served.front().map_or_else(Instant::now, |(at, _)| *at);
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {
                    if let Some(result) = expected.result().take() {
                        return result;
                    }
                    served.retain(|(_, connection)| !connection.is_finished());
                }
                accepted = self.accept(), if !is_full => {
                    let Ok((stream, _)) = accepted else {
                        // An aborted connection, or too many open files. Both are temporary.
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    let (expected, wait) = (Arc::clone(&expected), self.read_wait);
                    let connection = if admits(&stream) {
                        connections.spawn(serve(stream, wait, move |request| expected.answer(request)))
                    } else {
                        let Ok(slot) = Arc::clone(&refused_slots).try_acquire_owned() else { continue };
                        connections.spawn(async move {
                            serve(stream, wait, |_| page(StatusCode::FORBIDDEN, PEER_REFUSED)).await;
                            drop(slot);
                        })
                    };
                    served.push_back((Instant::now() + CALLBACK_EVICT_AFTER, connection));
                }
                () = sleep_until(evictable_at), if is_full => {
                    if let Some((_, connection)) = served.pop_front() {
                        connection.abort();
                    }
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.listener_v6 {
            None => self.listener.accept().await,
            Some(listener_v6) => tokio::select! {
                accepted = self.listener.accept() => accepted,
                accepted = listener_v6.accept() => accepted,
            },
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Serves one request on a connection.
async fn serve(
    stream: TcpStream,
    wait: Duration,
    answer: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>>,
) {
    let service = service_fn(|request| {
        let answer = answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(CALLBACK_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that is slow, too large or broken gets no response. A result that it delivered before stays.
    let _ = tokio::time::timeout(wait, connection).await;
}

impl ExpectedCallback {
    fn result(&self) -> MutexGuard<'_, Option<Result<Secret, LoginError>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return page(StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered.");
        }
        if let Some((status, text)) = request_check::refusal(request, self.port) {
            return page(status, text);
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let (result, page) = match request.uri().path() {
            CANCEL_PATH if self.has_our_state(&query) => (
                Err(LoginError::Cancelled),
                page(StatusCode::OK, "The login was cancelled. You can close this page."),
            ),
            // Unlike a callback, a cancel request with a wrong state does not end the login.
            CANCEL_PATH => return page(StatusCode::BAD_REQUEST, "State mismatch. Nothing was cancelled."),
            path if path == self.path => self.read_callback(&query),
            _ => return page(StatusCode::NOT_FOUND, "Not found."),
        };
        self.result().get_or_insert(result);
        page
    }

    fn has_our_state(&self, query: &Query) -> bool {
        query.text("state").is_some_and(|state| self.answer.state.matches(state))
    }

    /// Whether the answer names the authorization server that was asked, or names none and need not.
    fn is_of_our_issuer(&self, query: &Query) -> bool {
        match (&self.answer.issuer, query.0.get("iss")) {
            (None, _) => true,
            (Some((issuer, _)), Some(named)) => issuer == named,
            (Some((_, is_promised)), None) => !is_promised,
        }
    }

    fn read_callback(&self, query: &Query) -> (Result<Secret, LoginError>, Response<Full<Bytes>>) {
        let failed = |error: LoginError, text: &str| (Err(error), page(StatusCode::BAD_REQUEST, text));
        if !self.has_our_state(query) {
            return failed(
                LoginError::StateMismatch,
                "State mismatch. This belongs to another login; begin again.",
            );
        }
        if !self.is_of_our_issuer(query) {
            // Whoever sent this is not asked what it means.
            return failed(
                LoginError::IssuerMismatch,
                "This comes from another authorization server than the one that was asked; begin again.",
            );
        }
        if let Some(code) = query.text("error") {
            let description = query.text("error_description").map(|text| sanitize(&self.redactor, text));
            let error = LoginError::Denied { code: sanitize(&self.redactor, code), description };
            return failed(error, "The provider refused. You can close this page.");
        }
        match query.text("code") {
            Some(code) => {
                let text = "The provider agreed. You can close this page and go back to parlor.";
                (Ok(Secret::new(code)), page(StatusCode::OK, text))
            }
            None => failed(LoginError::NoCode, "The code is missing; begin again."),
        }
    }
}

/// The page for peers that may not deliver the code.
const PEER_REFUSED: &str = "This login is of another user of this machine, or it cannot be known whose browser this is. Open it in a \
     browser of the user who logs in, on the same machine and outside of containers; or log in with a code (--device).";

/// The decoded query string.
struct Query(HashMap<String, String>);

impl Query {
    fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The value of a parameter, if it is not empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }
}

/// The headers of every page. Its URL contains the code, so the page must not be cached, framed, scripted or sent as
/// referrer.
const PAGE_HEADERS: [(HeaderName, &str); 8] = [
    (CONTENT_TYPE, "text/plain; charset=utf-8"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

fn page(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *page.status_mut() = status;
    for (name, value) in PAGE_HEADERS {
        page.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    page
}

#[cfg(test)]
mod tests;
