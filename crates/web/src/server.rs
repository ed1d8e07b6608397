//! Accepts TCP connections and serves HTTP/1.1 on them until they close or become WebSockets.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parlor_transport::{
    ACCEPT_PAUSE, CONNECTION_LOG_RATE, ConnectedPeer, ConnectionLimits, Listeners, LogLimit,
    log_refused_connection,
};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::admission::{Admission, ROOM_WAIT};
use crate::auth::request_source::ConnectionEnds;
use crate::connection_life::ConnectionLife;
use crate::response_memory::ResponseMemory;
use crate::routes::router;
use crate::site::{Site, WebDeps};
use crate::waiting_heads::{AnswerBody, HeadWait, WaitingHeads};

/// How many HTTP connections may be open at a time. Beyond that, the connection of the same kind of client closes that has
/// waited longest for the head of a request; if none waits, connections of the owner wait, and those of others are closed.
/// WebSockets do not count.
pub const MAX_HTTP_CONNECTIONS: usize = 1024;

/// How many of them all other users of this machine may have together, with users whom the kernel does not name. A proxy
/// in front of the server is often such a user, and carries the requests of many.
pub const MAX_OTHER_USER_HTTP_CONNECTIONS: usize = 256;

/// How many of them one address on another machine may have, whether or not it has sent whole requests.
pub const MAX_ADDRESS_HTTP_CONNECTIONS: usize = 256;

/// How many of them are reserved for the owner and root.
pub const OWNER_HTTP_CONNECTIONS: usize = 128;

/// The limits above, by kind of client.
pub const HTTP_CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    all: MAX_HTTP_CONNECTIONS,
    other_users: MAX_OTHER_USER_HTTP_CONNECTIONS,
    address: MAX_ADDRESS_HTTP_CONNECTIONS,
    owner_only: OWNER_HTTP_CONNECTIONS,
};

/// How long the head of a request may take to arrive, and how long a connection may be idle.
pub const HEADER_WAIT: Duration = Duration::from_secs(15);

/// How long a server may take to notice that another process has evicted the holders of the old token.
pub const EVICTION_CHECK: Duration = Duration::from_secs(1);

/// How long a connection that does not become a WebSocket may last, whatever it does. An event stream lasts longer.
pub const CONNECTION_LIFE: Duration = Duration::from_secs(300);

/// The largest head of a request, in bytes.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// How many headers a request may have.
pub const MAX_HEADERS: usize = 64;

/// How long connections and sockets may take to close when the server stops.
pub const WEB_STOP_WAIT: Duration = Duration::from_secs(5);

/// Serves HTTP until `stop` is cancelled; then it accepts no more connections. When `goodbye` is cancelled too, sockets
/// get the events that they have not received, and a close frame. Connections that do not close in time are left to the
/// runtime.
pub async fn serve_web(
    listeners: impl Into<Listeners>,
    deps: WebDeps,
    stop: CancellationToken,
    goodbye: CancellationToken,
) -> io::Result<()> {
    let (listeners, limits) = (listeners.into(), deps.settings.limits);
    let site = Site::new(deps, listeners.local_addr()?, stop.clone(), goodbye.clone());
    let router = router(Arc::clone(&site));
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_wait)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    let heads = Arc::new(WaitingHeads::default());
    let admission = Admission::new(limits.http_connections, Arc::clone(&heads));
    site.tasks.spawn(notice_evictions(Arc::clone(&site), goodbye.clone()));
    let refused_connections = Arc::new(LogLimit::new(CONNECTION_LOG_RATE));
    let accept_errors = LogLimit::new(CONNECTION_LOG_RATE);
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
                let Some(admission) = admission.begin(peer.group()) else {
                    log_refused_connection(&refused_connections, &peer);
                    continue;
                };
                let (protocol, router, stop) = (protocol.clone(), router.clone(), stop.clone());
                let (heads, refused_connections) = (Arc::clone(&heads), Arc::clone(&refused_connections));
                let memory = ResponseMemory::new(&site.deps.memory, limits.write_wait);
                site.tasks.spawn(async move {
                    let admitted = tokio::select! {
                        permit = admission.permit() => permit,
                        () = stop.cancelled() => return,
                    };
                    let Some(permit) = admitted else {
                        log_refused_connection(&refused_connections, &peer);
                        return;
                    };
                    let head = Arc::new(heads.add_connection(peer.group()));
                    let client = HttpClient { stream, peer, head: Arc::clone(&head) };
                    serve_connection(client, &protocol, router, memory, limits.connection_life, stop).await;
                    drop(permit);
                    drop(head);
                });
            }
            // Mostly because the process has no file descriptors left.
            Err(error) => {
                if let Some(left_out) = accept_errors.allow_line() {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listeners);
    site.tasks.close();
    goodbye.cancelled().await;
    if timeout(limits.stop_wait, site.tasks.wait()).await.is_err() {
        tracing::warn!(left = site.tasks.len(), "not all connections closed in time");
    }
    Ok(())
}

/// Reads the file of the token again and again, so that sockets close whose holders another process has evicted.
async fn notice_evictions(site: Arc<Site>, goodbye: CancellationToken) {
    while timeout(EVICTION_CHECK, goodbye.cancelled()).await.is_err() {
        site.deps.tokens.now();
    }
}

/// The connection of a client.
struct HttpClient {
    stream: TcpStream,
    peer: ConnectedPeer,
    head: Arc<HeadWait>,
}

/// Serves HTTP until the connection closes or becomes a WebSocket, which another task serves.
async fn serve_connection(
    client: HttpClient,
    protocol: &http1::Builder,
    router: Router,
    memory: Arc<ResponseMemory>,
    max_life: Duration,
    stop: CancellationToken,
) {
    let HttpClient { stream, peer, head } = client;
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let ends = ConnectionEnds { peer: peer.address().ip(), local: peer.local().ip() };
    let life_end = Arc::new(ConnectionLife::default());
    let (response_memory, answers, stream_life) =
        (Arc::clone(&memory), Arc::clone(&head), Arc::clone(&life_end));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends);
        request.extensions_mut().insert(Arc::clone(&response_memory));
        request.extensions_mut().insert(Arc::clone(&stream_life));
        request.extensions_mut().insert(peer);
        answers.on_head();
        request.extensions_mut().insert(Arc::clone(&answers));
        let (connection, answer) = (Arc::clone(&answers), router.clone().oneshot(request.map(Body::new)));
        async move {
            let answer = answer.await?;
            // A request that was refused may not have arrived in full.
            connection.on_request();
            Ok::<_, Infallible>(answer.map(|body| AnswerBody::new(body, connection)))
        }
    });
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // The error of a connection concerns only its client. `stalled` is polled after the connection has had its chance to
    // write.
    tokio::select! {
        biased;
        _ = &mut connection => return,
        () = memory.stalled() => return,
        // Without a request there is no answer to complete.
        () = head.close_requested() => match head.has_answer() {
            true => connection.as_mut().graceful_shutdown(),
            false => return,
        },
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        () = life_end.is_over(max_life) => return,
    }
    tokio::select! {
        biased;
        _ = connection => {}
        () = memory.stalled() => {}
        () = unread_answer(&head) => {}
    }
}

/// Completes if a connection that has to make room still has an answer that its client does not read.
async fn unread_answer(head: &HeadWait) {
    head.close_requested().await;
    sleep(ROOM_WAIT).await;
    if head.is_answering() {
        std::future::pending().await
    }
}
