//! The callback: a small server on this machine that a browser brings the code to.
//!
//! It listens on loopback only, for one login, and is gone when that has its answer. Whatever is not the callback gets a
//! short refusal and changes nothing; a callback with a wrong state ends the login, as loaf's clients expect.

mod screen;

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

use crate::error::clean;
use crate::provider::Redirect;
use crate::{CANCEL_PATH, LoginError, Redactor, Secret};

/// How long a browser may take for its request and for reading the answer.
pub const CALLBACK_READ_WAIT: Duration = Duration::from_secs(10);

/// How much a browser may send: the request line and the headers.
pub const CALLBACK_HEADER_BYTES: usize = 16 << 10;

/// How many connections are served at a time. Beyond that, the oldest makes room for the next.
pub const MAX_CALLBACK_CONNECTIONS: usize = 16;

/// How many of them are of those who may not bring the code. More are closed at once, so that the browser gets in.
pub const MAX_CALLBACK_REFUSED: usize = 4;

/// How long a connection is served before it makes room: a browser sends its request at once.
pub const CALLBACK_EVICT_AFTER: Duration = Duration::from_millis(250);

/// How often another port is tried, if the one that is free for `127.0.0.1` is taken for `::1`.
pub const CALLBACK_PORT_TRIES: usize = 16;

/// How long to wait after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Tells whether who is at the other end of a connection may bring the code: this user. The state alone does not say so,
/// since it stands in the address that a browser is started with, which everybody on the machine can read.
pub type AdmitsPeer = Arc<dyn Fn(&TcpStream) -> bool + Send + Sync>;

/// A listener that waits for the browser.
pub(crate) struct Callback {
    listener: TcpListener,
    /// The same port of `::1`, which browsers may take `localhost` for: nobody else is to listen there.
    listener_v6: Option<TcpListener>,
    path: String,
    host: String,
    port: u16,
    read_wait: Duration,
}

/// What decides whether a request is the awaited one.
struct Expected {
    path: String,
    port: u16,
    state: Secret,
    redactor: Redactor,
    /// What ends the login, once a request has said it. Kept here and not by its connection, which may be cut off.
    verdict: Mutex<Option<Result<Secret, LoginError>>>,
}

impl Callback {
    /// Listens where `redirect` says, or on a free port if that one is taken.
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
                    // Somebody else would receive the code.
                    Err(error) if is_taken(&error) => {
                        wanted = 0;
                        continue;
                    }
                    // A machine without IPv6.
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

    /// Where the browser is to come.
    pub(crate) fn address(&self) -> String {
        format!("http://{}:{}{}", self.host, self.port, self.path)
    }

    /// Waits for the code, or for whatever ends the login, from those that `admits` lets in.
    pub(crate) async fn code(
        self,
        state: &Secret,
        redactor: &Redactor,
        admits: &AdmitsPeer,
    ) -> Result<Secret, LoginError> {
        let expected = Arc::new(Expected {
            path: self.path.clone(),
            port: self.port,
            state: state.clone(),
            redactor: redactor.clone(),
            verdict: Mutex::new(None),
        });
        let mut connections = JoinSet::new();
        let stranger_places = Arc::new(Semaphore::new(MAX_CALLBACK_REFUSED));
        // Those that are served, the oldest first, with the time from which on each has to make room.
        let mut served: VecDeque<(Instant, AbortHandle)> = VecDeque::new();
        loop {
            let is_full = connections.len() >= MAX_CALLBACK_CONNECTIONS;
            let oldest = served.front().map_or_else(Instant::now, |(until, _)| *until);
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {
                    if let Some(verdict) = expected.verdict().take() {
                        return verdict;
                    }
                    served.retain(|(_, connection)| !connection.is_finished());
                }
                accepted = self.accept(), if !is_full => {
                    let Ok((stream, _)) = accepted else {
                        // A connection that was given up, or too many open files: no reason to end.
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    let (expected, wait) = (Arc::clone(&expected), self.read_wait);
                    let connection = if admits(&stream) {
                        connections.spawn(serve(stream, wait, move |request| expected.answer(request)))
                    } else {
                        let Ok(place) = Arc::clone(&stranger_places).try_acquire_owned() else { continue };
                        connections.spawn(async move {
                            serve(stream, wait, |_| page(StatusCode::FORBIDDEN, NOT_YOURS)).await;
                            drop(place);
                        })
                    };
                    served.push_back((Instant::now() + CALLBACK_EVICT_AFTER, connection));
                }
                () = sleep_until(oldest), if is_full => {
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

/// Serves one request.
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
    // Who is slow, says too much or leaves is not answered; what it said before that counts.
    let _ = tokio::time::timeout(wait, connection).await;
}

impl Expected {
    fn verdict(&self) -> MutexGuard<'_, Option<Result<Secret, LoginError>>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return page(StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered.");
        }
        if let Some((status, text)) = screen::refusal(request, self.port) {
            return page(status, text);
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let (verdict, page) = match request.uri().path() {
            CANCEL_PATH if self.is_ours(&query) => (
                Err(LoginError::Cancelled),
                page(StatusCode::OK, "The login was cancelled. You can close this page."),
            ),
            // Anybody can ask for this path. Unlike a callback, it ends nothing without the state.
            CANCEL_PATH => return page(StatusCode::BAD_REQUEST, "State mismatch. Nothing was cancelled."),
            path if path == self.path => self.judge(&query),
            _ => return page(StatusCode::NOT_FOUND, "Not found."),
        };
        self.verdict().get_or_insert(verdict);
        page
    }

    fn is_ours(&self, query: &Query) -> bool {
        query.text("state").is_some_and(|state| self.state.matches(state))
    }

    fn judge(&self, query: &Query) -> (Result<Secret, LoginError>, Response<Full<Bytes>>) {
        let bad = |error: LoginError, text: &str| (Err(error), page(StatusCode::BAD_REQUEST, text));
        if !self.is_ours(query) {
            return bad(
                LoginError::StateMismatch,
                "State mismatch. This belongs to another login; begin again.",
            );
        }
        if let Some(code) = query.text("error") {
            let description = query.text("error_description").map(|text| clean(&self.redactor, text));
            let error = LoginError::Denied { code: clean(&self.redactor, code), description };
            return bad(error, "The provider refused. You can close this page.");
        }
        match query.text("code") {
            Some(code) => {
                let text = "The provider agreed. You can close this page and go back to parlor.";
                (Ok(Secret::new(code)), page(StatusCode::OK, text))
            }
            None => bad(LoginError::NoCode, "The code is missing; begin again."),
        }
    }
}

/// What those are told who may not bring the code.
const NOT_YOURS: &str = "This login is of another user of this machine, or it cannot be known whose browser this is. Open it in a \
     browser of the user who logs in, on the same machine and outside of containers; or log in with a code (--device).";

/// What stands after the `?`.
struct Query(HashMap<String, String>);

impl Query {
    fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// A value that is there and not empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }
}

/// Headers of every page. Its address holds the code: nothing keeps it, passes it on, frames it or runs in it.
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
