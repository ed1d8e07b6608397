//! Accepts connections and speaks HTTP/1.1 with them until they end or become sockets.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::guard::Ends;
use super::peer::Peer;
use super::site::{Shared, Site, Web, router};
use crate::Accepted;
use crate::log_limit::LogLimit;
use crate::tcp::{ACCEPT_PAUSE, CONNECTION_LOG_RATE};

/// How many connections may speak HTTP at a time. More wait to be accepted. Sockets are not among them.
pub const MAX_HTTP_CONNECTIONS: usize = 1024;

/// How long the head of a request may take to arrive, and how long a connection may be idle.
pub const HEADER_WAIT: Duration = Duration::from_secs(15);

/// How long a connection that becomes no socket may last, whatever it does.
pub const CONNECTION_LIFE: Duration = Duration::from_secs(300);

/// The largest head of a request.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// How many headers a request may have.
pub const MAX_HEADERS: usize = 64;

/// How long connections and sockets may take to end when the server ends.
pub const WEB_STOP_WAIT: Duration = Duration::from_secs(5);

/// Serves the web side until `stop` is cancelled. Then nobody is accepted any more. When `goodbye` is cancelled too, sockets
/// are told what they have not heard and that the server goes away, and what has not ended in time is left to the runtime.
pub async fn serve_web(
    listener: TcpListener,
    web: Web,
    stop: CancellationToken,
    goodbye: CancellationToken,
) -> io::Result<()> {
    let limits = web.settings.limits;
    let site = Site::new(web, listener.local_addr()?, stop.clone(), goodbye.clone());
    let router = router(Shared::clone(&site));
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_wait)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    let places = Arc::new(Semaphore::new(limits.http_connections));
    let accept_errors = LogLimit::new(CONNECTION_LOG_RATE);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (protocol, router, stop) = (protocol.clone(), router.clone(), stop.clone());
                site.tasks.spawn(async move {
                    speak(stream, &protocol, router, limits.connection_life, stop).await;
                    drop(place);
                });
            }
            // For want of descriptors, mostly.
            Err(error) => {
                if let Some(left_out) = accept_errors.next_line() {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    site.tasks.close();
    goodbye.cancelled().await;
    if timeout(limits.stop_wait, site.tasks.wait()).await.is_err() {
        tracing::warn!(left = site.tasks.len(), "not all connections have ended in time");
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

/// Speaks HTTP until the connection ends or becomes a socket, which is somebody else's then.
async fn speak(
    stream: TcpStream,
    protocol: &http1::Builder,
    router: Router,
    life: Duration,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let Ok(accepted) = Accepted::new(&stream) else { return };
    let ends = Ends { peer: accepted.peer().ip(), local: accepted.local().ip() };
    let peer = Arc::new(Peer::new(accepted));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends);
        request.extensions_mut().insert(Arc::clone(&peer));
        router.clone().oneshot(request.map(Body::new))
    });
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // How it ended is the peer's affair.
    tokio::select! {
        _ = &mut connection => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        () = sleep(life) => return,
    }
    let _ = connection.await;
}
