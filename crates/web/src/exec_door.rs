//! The exec door over WebSockets, on an address of its own: the handshake, and sessions that outlive their sockets.
//!
//! Each HTTP connection has one request: `GET /readyz`, or the handshake on `/`. No page may connect, so every request with
//! `Origin` is refused.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ALLOW, AUTHORIZATION, CONNECTION, HeaderValue, ORIGIN};
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use parlor_doors::exec::{ExecMachine, MAX_LINE_BYTES};
use parlor_process::{ExecutorSessions, WorkObserver};
use parlor_transport::{
    ACCEPT_PAUSE, AllowLocal, CONNECTION_LOG_RATE, CloseReason, ConnectedPeer, ConnectionLimiter,
    ConnectionLimits, ConnectionPermit, CountFrame, FrameMemory, Keepalive, Listeners, LogLimit,
    log_refused_connection, serve_socket,
};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::request_source::{ConnectionEnds, is_local};
use crate::auth::token_store::{StoredToken, TokenStore};
use crate::auth::trust::has_bearer_token;
use crate::executor_http::ExecutorHttp;
use crate::response::{empty, not_found, text};
use crate::server::{EVICTION_CHECK, HEADER_WAIT, MAX_HEADER_BYTES, MAX_HEADERS, WEB_STOP_WAIT};
use crate::socket::handshake::{Authenticated, upgrade};
use crate::socket::open_socket;

/// How many connections the door serves at a time.
pub const MAX_EXEC_CONNECTIONS: usize = 128;

/// How many of them all other users of this machine may have together.
pub const MAX_OTHER_USER_EXEC_CONNECTIONS: usize = 16;

/// How many of them one address on another machine may have.
pub const MAX_ADDRESS_EXEC_CONNECTIONS: usize = 32;

/// How many of them are reserved for the owner and root.
pub const OWNER_EXEC_CONNECTIONS: usize = 32;

/// When the door pings a client, and when it takes one for lost. Its session then waits for another connection.
pub const EXEC_KEEPALIVE: Keepalive = Keepalive {
    ping_interval: Duration::from_secs(30),
    read_timeout: Duration::from_secs(90),
    write_timeout: Duration::from_secs(30),
};

/// What the door needs.
pub struct ExecDoorDeps {
    /// The token of the server.
    pub tokens: Arc<TokenStore>,
    /// Which users of this machine need no token.
    pub allow_local: AllowLocal,
    /// The budget of large frames that all doors share.
    pub memory: FrameMemory,
    /// Makes the HTTP requests of clients.
    pub http: ExecutorHttp,
    /// Learns what clients do.
    pub observer: Option<Arc<dyn WorkObserver>>,
}

struct ExecDoor {
    tokens: Arc<TokenStore>,
    allow_local: AllowLocal,
    memory: FrameMemory,
    sessions: ExecutorSessions,
    sockets: TaskTracker,
    stop: CancellationToken,
    count_frame: CountFrame,
}

/// The parts of an accepted connection that its socket needs.
struct Client {
    peer: ConnectedPeer,
    permit: Arc<ConnectionPermit>,
}

/// Serves the door until `stop` is cancelled. Then it closes all sockets and ends all sessions.
///
/// Use a thread that lives as long as the program: child processes end with the thread that has started them.
pub async fn serve_exec(listeners: Listeners, deps: ExecDoorDeps, stop: CancellationToken) {
    let ExecDoorDeps { tokens, allow_local, memory, http, observer } = deps;
    let mut sessions = ExecutorSessions::with_http(Arc::new(http));
    if let Some(observer) = observer {
        sessions = sessions.with_observer(observer);
    }
    let door = Arc::new(ExecDoor {
        tokens,
        allow_local,
        memory,
        sessions,
        sockets: TaskTracker::new(),
        stop: stop.clone(),
        count_frame: Arc::new(|_| {}),
    });
    let limiter = ConnectionLimiter::new(ConnectionLimits {
        all: MAX_EXEC_CONNECTIONS,
        other_users: MAX_OTHER_USER_EXEC_CONNECTIONS,
        address: MAX_ADDRESS_EXEC_CONNECTIONS,
        owner_only: OWNER_EXEC_CONNECTIONS,
    });
    let (refused, failed) = (LogLimit::new(CONNECTION_LOG_RATE), LogLimit::new(CONNECTION_LOG_RATE));
    door.sockets.spawn(notice_evictions(Arc::clone(&door)));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listeners.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // This fails only if the connection has already ended.
                let Ok(peer) = ConnectedPeer::from_stream(&stream) else { continue };
                match limiter.try_acquire(peer.group()) {
                    Some(permit) => {
                        let client = Client { peer, permit: Arc::new(permit) };
                        door.sockets.spawn(serve_connection(Arc::clone(&door), stream, client));
                    }
                    None => log_refused_connection(&refused, &peer),
                }
            }
            Err(error) => {
                if let Some(left_out) = failed.allow_line() {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listeners);
    door.sockets.close();
    let ending = async {
        door.sockets.wait().await;
        door.sessions.close().await;
    };
    if timeout(WEB_STOP_WAIT, ending).await.is_err() {
        tracing::warn!("not all sessions of the exec door ended in time");
    }
}

/// Reads the file of the token again and again, so that sockets close whose holders another process has evicted.
async fn notice_evictions(door: Arc<ExecDoor>) {
    while timeout(EVICTION_CHECK, door.stop.cancelled()).await.is_err() {
        door.tokens.now();
    }
}

/// Answers the request of a connection. A handshake makes it a WebSocket, which another task serves.
async fn serve_connection(door: Arc<ExecDoor>, stream: TcpStream, client: Client) {
    // A reply and the events behind it are small, and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let stop = door.stop.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut parts, _) = request.into_parts();
        let mut response = door.answer(&mut parts, &client);
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    // The error of a connection concerns only its client. A client that does not read its short answer is disconnected.
    tokio::select! {
        _ = timeout(HEADER_WAIT * 2, &mut connection) => {}
        () = stop.cancelled() => {}
    }
}

impl ExecDoor {
    fn answer(self: &Arc<Self>, parts: &mut Parts, client: &Client) -> Response {
        if parts.headers.contains_key(ORIGIN) {
            return text(StatusCode::FORBIDDEN, "pages may not connect to the exec door");
        }
        match parts.uri.path() {
            "/readyz" if [Method::GET, Method::HEAD].contains(&parts.method) => empty(StatusCode::OK),
            "/readyz" => {
                let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
            "/" => self.shake_hands(parts, client),
            _ => not_found(),
        }
    }

    fn shake_hands(self: &Arc<Self>, parts: &mut Parts, client: &Client) -> Response {
        let stored = self.tokens.now();
        if let Err(reason) = self.check_token(parts, &client.peer, &stored) {
            return text(StatusCode::UNAUTHORIZED, reason);
        }
        // No page gets here, whatever origins the settings list.
        let response = match upgrade(parts, &stored, Authenticated::WITHOUT_SUBPROTOCOL, true) {
            Ok(response) => response,
            Err(error) => return error.response(),
        };
        let Some(on_upgrade) = parts.extensions.remove::<OnUpgrade>() else {
            return text(StatusCode::BAD_REQUEST, "Bad Request");
        };
        let permit = Arc::clone(&client.permit);
        self.sockets.spawn(serve_client(Arc::clone(self), on_upgrade, stored.evictions, permit));
        response
    }

    /// Whether a client has the token, or needs none.
    fn check_token(
        &self,
        parts: &Parts,
        peer: &ConnectedPeer,
        stored: &StoredToken,
    ) -> Result<(), &'static str> {
        if has_bearer_token(&parts.headers, &stored.token) {
            return Ok(());
        }
        if parts.headers.contains_key(AUTHORIZATION) {
            return Err("invalid websocket bearer token");
        }
        let ends = ConnectionEnds { peer: peer.address().ip(), local: peer.local().ip() };
        if is_local(parts, ends, &[]) && self.allow_local.admits(|| peer.user()) {
            return Ok(());
        }
        Err("missing websocket bearer token")
    }
}

/// Serves a socket until its client leaves. Its session stays for a while.
async fn serve_client(
    door: Arc<ExecDoor>,
    on_upgrade: OnUpgrade,
    evictions: u64,
    permit: Arc<ConnectionPermit>,
) {
    let Ok(upgraded) = on_upgrade.await else { return };
    let memory = &door.memory;
    let Some(socket) = open_socket(upgraded, MAX_LINE_BYTES, memory, None).await else { return };
    let (stop, mut evicted) = (door.stop.clone(), door.tokens.evictions());
    let stop = async move {
        tokio::select! {
            () = stop.cancelled() => CloseReason::GoingAway,
            Ok(_) = evicted.wait_for(|now| *now > evictions) => CloseReason::Evicted,
        }
    };
    let (machine, backend) = (ExecMachine::for_websocket(), door.sessions.connect());
    serve_socket(machine, backend, socket, EXEC_KEEPALIVE, Arc::clone(&door.count_frame), stop).await;
    drop(permit);
}
