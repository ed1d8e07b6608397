//! The MCP door over HTTP: one POST for each message, in both eras of the protocol.
//!
//! Each request has a machine of its own, which the program serves. A client of the legacy era gets a session id, under
//! which nothing is kept but the requests that are open: an id from before a restart is as good as a new one. A client of
//! the modern era cancels a request by closing its connection.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, ORIGIN,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use futures_util::stream::unfold;
use parlor_doors::mcp::{
    HttpHeaders, HttpMessage, HttpRefusal, MAX_HTTP_BODY_BYTES, answer_status, read_post,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::request_source::is_of_origin;
use crate::auth::trust::is_own_origin;
use crate::body::{BodyError, MAX_BODY_BYTES, read_up_to};
use crate::connection_life::{ConnectionLife, DeferredEnd};
use crate::random::uuid;
use crate::response::{empty, read_only, text, typed};
use crate::site::Site;
use crate::socket::handshake::HandshakeError;

/// The address of the door.
pub(crate) const MCP_PATH: &str = "/mcp";

/// How many bodies above the limit of other requests are read at a time.
pub const MAX_LARGE_MCP_BODIES: usize = 8;

/// One connection of so many stays free of requests to the door, so that they cannot shut other clients out.
pub const FREE_OF_MCP: usize = 4;

/// How long the server waits for the answer before it begins a stream, so that it can send signs of life.
pub const STREAM_AFTER: Duration = Duration::from_secs(1);

/// How many frames of a request may wait for a client that reads slowly. Then the request waits.
const WAITING_FRAMES: usize = 4;

const SESSION_ID: &str = "mcp-session-id";
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// What a stream sends when nothing happens. Clients ignore lines that begin with a colon.
const COMMENT: &[u8] = b": keep-alive\n\n";

/// A request of a client of the MCP door.
pub struct McpCall {
    /// The JSON-RPC request.
    pub frame: Bytes,
    /// Takes the frames of the answer. Once its receiver is dropped, nobody reads them.
    pub frames: mpsc::Sender<Vec<u8>>,
    /// Cancelled when the request has to end without an answer.
    pub cancel: CancellationToken,
}

/// Serves a request until it is answered or cancelled.
pub type ServeMcp = Arc<dyn Fn(McpCall) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The requests that clients of the legacy era can cancel, by session and id.
pub(crate) struct OpenCalls {
    calls: Mutex<HashMap<(String, String), CancellationToken>>,
    large_bodies: Semaphore,
    /// One permit for each request that may be open at a time.
    requests: Arc<Semaphore>,
}

impl OpenCalls {
    /// For a server with this many connections, of which some stay free for other clients.
    pub(crate) fn new(max_connections: usize) -> Self {
        let requests = max_connections.saturating_sub(max_connections.div_ceil(FREE_OF_MCP)).max(1);
        Self {
            calls: Mutex::default(),
            large_bodies: Semaphore::new(MAX_LARGE_MCP_BODIES),
            requests: Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Adds a request. False if one with the same key is open.
    fn open(&self, key: &(String, String), cancel: &CancellationToken) -> bool {
        let mut calls = self.calls();
        let is_free = !calls.contains_key(key);
        if is_free {
            calls.insert(key.clone(), cancel.clone());
        }
        is_free
    }

    /// Locks in spite of poisoning: no code under the lock panics in the middle of a change.
    fn calls(&self) -> MutexGuard<'_, HashMap<(String, String), CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self, session: &str, id: String) {
        if let Some(cancel) = self.calls().get(&(session.to_owned(), id)) {
            cancel.cancel();
        }
    }

    fn cancel_all(&self, session: &str) {
        self.calls().iter().filter(|((of, _), _)| of == session).for_each(|(_, cancel)| cancel.cancel());
    }
}

/// Takes a request out of the list of open ones when it ends.
struct OpenCall {
    calls: Arc<OpenCalls>,
    key: Option<(String, String)>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.calls.calls().remove(key);
        }
    }
}

/// Answers any request to the door. `auth/screen.rs` has checked the host and the token.
pub(crate) async fn answer(
    State(site): State<Arc<Site>>,
    Extension(life): Extension<Arc<ConnectionLife>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let stored = site.deps.tokens.now();
    let is_open_origin = is_of_origin(&parts.headers, &stored.open_origins);
    if parts.headers.contains_key(ORIGIN) && !is_open_origin && !is_own_origin(&site, &parts) {
        return text(StatusCode::FORBIDDEN, "pages of this origin may not use the MCP door");
    }
    if !site.deps.settings.may_send {
        return read_only();
    }
    let session = session_id(&parts.headers);
    match parts.method {
        Method::POST => {}
        Method::DELETE => {
            session.iter().for_each(|session| site.mcp_calls.cancel_all(session));
            return empty(StatusCode::ACCEPTED);
        }
        _ => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "the MCP door takes POST and DELETE");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
            return response;
        }
    }
    let Some(accepted) = Accepted::read(&parts.headers) else {
        return text(StatusCode::NOT_ACCEPTABLE, "Accept must allow application/json or text/event-stream");
    };
    if !is_json(&parts.headers) {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
    }
    let is_large = body.size_hint().exact().is_none_or(|bytes| bytes > MAX_BODY_BYTES as u64);
    let large = if is_large { site.mcp_calls.large_bodies.acquire().await.ok() } else { None };
    let frame = match read_body(&site, &parts, body).await {
        Ok(frame) => frame,
        Err(response) => return response,
    };
    drop(large);
    match read_post(&headers(&parts), &frame) {
        Err(HttpRefusal { frame }) => json_frame(StatusCode::BAD_REQUEST, frame),
        Ok(HttpMessage::Accepted) => empty(StatusCode::ACCEPTED),
        Ok(HttpMessage::Cancelled(id)) => {
            session.into_iter().for_each(|session| site.mcp_calls.cancel(&session, id.clone()));
            empty(StatusCode::ACCEPTED)
        }
        Ok(HttpMessage::Request { id, ends_with_connection, opens_session }) => {
            // A slot belongs to a session, and a new one replaces the old. A random id takes a slot and replaces none.
            let slot_id = uuid((site.deps.random)());
            let Ok(permit) = Arc::clone(&site.mcp_calls.requests).try_acquire_owned() else {
                return site.refuse(HandshakeError::TooMany, &parts);
            };
            let Ok(slot) = site.connections.reserve(&slot_id, stored.evictions) else {
                return site.refuse(HandshakeError::TooMany, &parts);
            };
            let cancel = CancellationToken::new();
            let key = session.filter(|_| !ends_with_connection).map(|session| (session, id));
            if let Some(key) = &key
                && !site.mcp_calls.open(key, &cancel)
            {
                return text(StatusCode::BAD_REQUEST, "a request of this session with the same id is open");
            }
            let open = OpenCall { calls: Arc::clone(&site.mcp_calls), key };
            let (sender, frames) = mpsc::channel(WAITING_FRAMES);
            let call = McpCall { frame, frames: sender, cancel: cancel.clone() };
            let (serve, ends) = (Arc::clone(&site.deps.serve_mcp), cancel.clone());
            site.tasks.spawn(async move {
                let _open = (open, permit);
                let (stop, _) = slot.occupy();
                let mut serving = serve(call);
                tokio::select! {
                    () = &mut serving => return,
                    _ = stop.stopped() => ends.cancel(),
                }
                serving.await;
            });
            let guard = ends_with_connection.then(|| cancel.drop_guard());
            let answer = AnswerStream {
                frames,
                guard,
                _deferred: life.defer(),
                keep_alive: site.deps.settings.limits.stream_keep_alive,
                ends_with_connection,
            };
            let mut response = respond(answer, accepted).await;
            if opens_session {
                let id = uuid((site.deps.random)());
                if let Ok(id) = HeaderValue::try_from(id) {
                    response.headers_mut().insert(HeaderName::from_static(SESSION_ID), id);
                }
            }
            response
        }
    }
}

async fn read_body(site: &Site, parts: &Parts, body: Body) -> Result<Bytes, Response> {
    let reading = read_up_to(MAX_HTTP_BODY_BYTES, &parts.headers, body);
    match timeout(site.deps.settings.limits.body_wait, reading).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(BodyError::TooLarge(rest))) => {
            if let Some(rest) = rest {
                site.tasks.spawn(rest.drain());
            }
            let reason = format!("a body has at most {MAX_HTTP_BODY_BYTES} bytes");
            let mut response = text(StatusCode::PAYLOAD_TOO_LARGE, &reason);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            Err(response)
        }
        Ok(Err(BodyError::Broken)) => Err(text(StatusCode::BAD_REQUEST, "the body has broken off")),
        Err(_) => Err(text(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

/// The headers that repeat parts of the body.
fn headers(parts: &Parts) -> HttpHeaders<'_> {
    let all = |name: &str| parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    HttpHeaders { version: all("mcp-protocol-version"), method: all("mcp-method"), name: all("mcp-name") }
}

fn session_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(SESSION_ID)?.to_str().ok()?;
    (!id.is_empty()).then(|| id.to_owned())
}

/// Whether the body is JSON, or of no type at all.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(given) = headers.get(CONTENT_TYPE) else { return true };
    let given = given.to_str().unwrap_or_default();
    given.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON))
}

/// Which forms of an answer a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    Json,
    Stream,
    Both,
}

impl Accepted {
    /// `None` if the client takes neither. Without the header it takes anything.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let values: Vec<&str> =
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if values.is_empty() {
            return Some(Self::Both);
        }
        let kinds =
            || values.iter().flat_map(|value| value.split(',')).filter_map(|item| item.split(';').next());
        let takes = |wanted: &[&str]| {
            kinds().any(|kind| wanted.iter().any(|wanted| kind.trim().eq_ignore_ascii_case(wanted)))
        };
        match (takes(&[JSON, "application/*", "*/*"]), takes(&[EVENT_STREAM, "text/*", "*/*"])) {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Json),
            (false, true) => Some(Self::Stream),
            (false, false) => None,
        }
    }
}

/// The frames of a request as they come.
struct AnswerStream {
    frames: mpsc::Receiver<Vec<u8>>,
    /// Cancels the request when the client has left.
    guard: Option<DropGuard>,
    /// Keeps the connection from ending because of its age.
    _deferred: DeferredEnd,
    keep_alive: Duration,
    ends_with_connection: bool,
}

/// Answers with JSON if the answer comes soon, or if the client takes nothing else; otherwise with a stream.
async fn respond(mut answer: AnswerStream, accepted: Accepted) -> Response {
    let first = loop {
        let first = match accepted {
            Accepted::Stream => break None,
            Accepted::Json => answer.frames.recv().await,
            Accepted::Both => match timeout(STREAM_AFTER, answer.frames.recv()).await {
                Ok(first) => first,
                Err(_) => break None,
            },
        };
        let Some(frame) = first else {
            // The request was cancelled.
            return empty(StatusCode::ACCEPTED);
        };
        if let Some(status) = answer_status(&frame, answer.ends_with_connection) {
            answer.finish();
            return json_frame(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), frame);
        }
        if accepted == Accepted::Both {
            break Some(frame);
        }
    };
    let pieces = unfold((answer, first), async |(mut answer, first)| {
        let piece = match first {
            Some(frame) => event(&frame),
            None => answer.next().await?,
        };
        Some((Ok::<_, std::convert::Infallible>(piece), (answer, None)))
    });
    let mut response = typed(StatusCode::OK, EVENT_STREAM, Body::from_stream(pieces));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would collect events before it passes them on.
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

impl AnswerStream {
    /// The next event, or a sign of life; `None` after the answer.
    async fn next(&mut self) -> Option<Bytes> {
        match timeout(self.keep_alive, self.frames.recv()).await {
            Ok(Some(frame)) => {
                if answer_status(&frame, self.ends_with_connection).is_some() {
                    self.finish();
                }
                Some(event(&frame))
            }
            Ok(None) => None,
            Err(_) => Some(Bytes::from_static(COMMENT)),
        }
    }

    /// The request is answered, so that the end of the connection cancels nothing.
    fn finish(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
    }
}

/// A frame as a server-sent event. JSON has no newlines outside of strings, and none inside of them.
fn event(frame: &[u8]) -> Bytes {
    [b"event: message\ndata: ", frame, b"\n\n"].concat().into()
}

fn json_frame(status: StatusCode, frame: Vec<u8>) -> Response {
    let mut response = typed(status, JSON, frame);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_accept_one_form_both_or_anything() {
        let read = |accept: &'static str| {
            Accepted::read(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert_eq!(Accepted::read(&HeaderMap::new()), Some(Accepted::Both));
        assert_eq!(read("application/json, text/event-stream"), Some(Accepted::Both));
        assert_eq!(read("*/*"), Some(Accepted::Both));
        assert_eq!(read("application/json;q=0.9"), Some(Accepted::Json));
        assert_eq!(read("Text/Event-Stream"), Some(Accepted::Stream));
        assert_eq!(read("text/html"), None);
    }

    #[test]
    fn requests_leave_connections_to_others() {
        let permits = |max: usize| OpenCalls::new(max).requests.available_permits();
        assert_eq!([1, 2, 4, 100].map(permits), [1, 1, 3, 75]);
    }

    #[test]
    fn an_open_id_of_a_session_is_not_taken_again() {
        let calls = Arc::new(OpenCalls::new(4));
        let (key, first, second) =
            (("s".to_owned(), "1".to_owned()), CancellationToken::new(), CancellationToken::new());
        assert!(calls.open(&key, &first) && !calls.open(&key, &second));
        calls.cancel("s", "1".to_owned());
        assert!(first.is_cancelled() && !second.is_cancelled());
        drop(OpenCall { calls: Arc::clone(&calls), key: Some(key.clone()) });
        assert!(calls.open(&key, &second));
    }
}
