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
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::guard::ConnectionEnds;
use crate::outflow::Outflow;
use crate::site::{Shared, SiteState, Web, router};
use parlor_transport::LogLimit;
use parlor_transport::{ACCEPT_PAUSE, CONNECTION_LOG_RATE, tell_of_no_place};
use parlor_transport::{Listeners, Peer};
use parlor_transport::{Place, Places, Shares};

/// How many connections may speak HTTP at a time. More of the owner wait; of others they are closed. Sockets are not
/// among them.
pub const MAX_HTTP_CONNECTIONS: usize = 1024;

/// How many of them all other users of this machine have together, with those who cannot be known. A proxy in front is
/// often another user, and passes on what many ask.
pub const MAX_STRANGER_HTTP_CONNECTIONS: usize = 256;

/// How many of them one address on another machine has, whether it has sent whole requests or not.
pub const MAX_ADDRESS_HTTP_CONNECTIONS: usize = 256;

/// How many of them only the owner and root get.
pub const OWNER_HTTP_CONNECTIONS: usize = 128;

/// Who may have how many of them.
pub const HTTP_SHARES: Shares = Shares {
    all: MAX_HTTP_CONNECTIONS,
    other_users: MAX_STRANGER_HTTP_CONNECTIONS,
    address: MAX_ADDRESS_HTTP_CONNECTIONS,
    owner_only: OWNER_HTTP_CONNECTIONS,
};

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
    listeners: impl Into<Listeners>,
    web: Web,
    stop: CancellationToken,
    goodbye: CancellationToken,
) -> io::Result<()> {
    let (listeners, limits) = (listeners.into(), web.settings.limits);
    let site = SiteState::new(web, listeners.local_addr()?, stop.clone(), goodbye.clone());
    let router = router(Shared::clone(&site));
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_wait)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    let places = Places::new(limits.http_connections);
    let without_place = LogLimit::new(CONNECTION_LOG_RATE);
    let accept_errors = LogLimit::new(CONNECTION_LOG_RATE);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listeners, &places, &without_place) => accepted,
        };
        match accepted {
            Ok(None) => {}
            Ok(Some((stream, peer, place))) => {
                let (protocol, router, stop) = (protocol.clone(), router.clone(), stop.clone());
                let outflow = Outflow::new(&site.web.memory, limits.write_wait);
                site.tasks.spawn(async move {
                    speak(stream, peer, &protocol, router, outflow, limits.connection_life, stop).await;
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
    drop(listeners);
    site.tasks.close();
    goodbye.cancelled().await;
    if timeout(limits.stop_wait, site.tasks.wait()).await.is_err() {
        tracing::warn!(left = site.tasks.len(), "not all connections have ended in time");
    }
    Ok(())
}

/// The next connection that gets a place; none if one came that gets none, or that is over already.
async fn accept(
    listeners: &Listeners,
    places: &Places,
    without_place: &LogLimit,
) -> io::Result<Option<(TcpStream, Peer, Place)>> {
    let (stream, _) = listeners.accept().await?;
    let Ok(peer) = Peer::of(&stream) else { return Ok(None) };
    let Some(place) = places.take_patiently(peer.account()).await else {
        tell_of_no_place(without_place, &peer);
        return Ok(None);
    };
    Ok(Some((stream, peer, place)))
}

/// Speaks HTTP until the connection ends or becomes a socket, which is somebody else's then.
async fn speak(
    stream: TcpStream,
    peer: Peer,
    protocol: &http1::Builder,
    router: Router,
    outflow: Arc<Outflow>,
    life: Duration,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let ends = ConnectionEnds { peer: peer.address().ip(), local: peer.local().ip() };
    let answers = Arc::clone(&outflow);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends);
        request.extensions_mut().insert(Arc::clone(&answers));
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(Body::new))
    });
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // How it ended is the peer's affair. Whether an answer is left lying is asked after the answer was worked on.
    tokio::select! {
        biased;
        _ = &mut connection => return,
        () = outflow.stalled() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        () = sleep(life) => return,
    }
    tokio::select! {
        biased;
        _ = connection => {}
        () = outflow.stalled() => {}
    }
}
