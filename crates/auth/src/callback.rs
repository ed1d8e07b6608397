//! The callback: a small server on this machine that a browser brings the code to.
//!
//! It listens on 127.0.0.1 only, for one login, and is gone when that has its answer. Whatever is
//! not the callback gets a short refusal and changes nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, REFERRER_POLICY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::form_urlencoded;

use crate::error::clean;
use crate::provider::Redirect;
use crate::{CANCEL_PATH, LoginError, Redactor, Secret};

/// How long a browser may take for its request and for reading the answer.
pub const CALLBACK_READ_WAIT: Duration = Duration::from_secs(10);

/// How much a browser may send: the request line and the headers.
pub const CALLBACK_HEADER_BYTES: usize = 16 << 10;

/// How many connections are served at a time. The next ones wait.
pub const MAX_CALLBACK_CONNECTIONS: usize = 16;

/// How long to wait after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that waits for the browser.
pub(crate) struct Callback {
    listener: TcpListener,
    path: String,
    host: String,
    port: u16,
    read_wait: Duration,
}

/// What decides whether a request is the awaited one.
struct Expected {
    path: String,
    state: Secret,
    redactor: Redactor,
    /// What came of a request on this connection.
    verdict: Mutex<Option<Result<Secret, LoginError>>>,
}

impl Callback {
    /// Listens where `redirect` says, or on a free port if that one is taken.
    pub(crate) async fn listen(redirect: &Redirect) -> Result<Self, LoginError> {
        let at = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match at(redirect.port.unwrap_or(0)).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => at(0).await,
            bound => bound,
        };
        let failed =
            |error| LoginError::Local(format!("cannot listen for the browser on 127.0.0.1: {error}"));
        let listener = listener.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self {
            listener,
            path: redirect.path.clone(),
            host: redirect.host.clone(),
            port,
            read_wait: CALLBACK_READ_WAIT,
        })
    }

    /// Where the browser is to come.
    pub(crate) fn address(&self) -> String {
        format!("http://{}:{}{}", self.host, self.port, self.path)
    }

    /// Waits for the code, or for whatever ends the login.
    pub(crate) async fn code(self, state: &Secret, redactor: &Redactor) -> Result<Secret, LoginError> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MAX_CALLBACK_CONNECTIONS => {
                    let Ok((stream, _)) = accepted else {
                        // A connection that was given up, or too many open files: no reason to end.
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    let expected = Expected {
                        path: self.path.clone(),
                        state: state.clone(),
                        redactor: redactor.clone(),
                        verdict: Mutex::new(None),
                    };
                    connections.spawn(serve(stream, expected, self.read_wait));
                }
                Some(served) = connections.join_next() => {
                    if let Ok(Some(verdict)) = served {
                        return verdict;
                    }
                }
            }
        }
    }
}

/// Serves one request, and says what came of it once the answer is on its way.
async fn serve(stream: TcpStream, expected: Expected, wait: Duration) -> Option<Result<Secret, LoginError>> {
    let expected = Arc::new(expected);
    let service = service_fn(|request| {
        let answer = expected.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(CALLBACK_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // Who is slow, says too much or leaves is not answered; what it said before that counts.
    let _ = tokio::time::timeout(wait, connection).await;
    expected.verdict.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Expected {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return page(StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered.");
        }
        let (verdict, page) = match request.uri().path() {
            CANCEL_PATH => (
                Err(LoginError::Cancelled),
                page(StatusCode::OK, "The login was cancelled. You can close this page."),
            ),
            path if path == self.path => self.judge(request.uri().query().unwrap_or_default()),
            _ => return page(StatusCode::NOT_FOUND, "Not found."),
        };
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        page
    }

    fn judge(&self, query: &str) -> (Result<Secret, LoginError>, Response<Full<Bytes>>) {
        let query: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let text = |name: &str| query.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let bad = |error: LoginError, text: &str| (Err(error), page(StatusCode::BAD_REQUEST, text));
        if !text("state").is_some_and(|state| self.state.matches(state)) {
            return bad(
                LoginError::StateMismatch,
                "State mismatch. This belongs to another login; begin again.",
            );
        }
        if let Some(code) = text("error") {
            let description = text("error_description").map(|text| clean(&self.redactor, text));
            let error = LoginError::Denied { code: clean(&self.redactor, code), description };
            return bad(error, "The provider refused. You can close this page.");
        }
        match text("code") {
            Some(code) => {
                let text = "The provider agreed. You can close this page and go back to parlor.";
                (Ok(Secret::new(code)), page(StatusCode::OK, text))
            }
            None => bad(LoginError::NoCode, "The code is missing; begin again."),
        }
    }
}

fn page(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *page.status_mut() = status;
    let headers = page.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // The address of this page holds the code.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    page
}

#[cfg(test)]
mod tests;
