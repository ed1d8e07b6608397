//! WebSockets of the supr and ACP doors: from the handshake to the client that is served.

pub(crate) mod acp;
pub(crate) mod connections;
mod extensions;
pub(crate) mod handshake;
mod handshake_query;
mod supr;
pub(crate) mod ws_url;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::SEC_WEBSOCKET_EXTENSIONS;
use axum::http::request::Parts;
use axum::response::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parlor_doors::supr::MAX_FRAME_BYTES;
use parlor_transport::{Deflate, FrameMemory, MeteredStream, Socket};
use parlor_vocab::Traceparent;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use self::connections::ConnectionSlot;
use self::handshake::{HandshakeError, authenticate, upgrade};
use self::handshake_query::HandshakeQuery;
use self::supr::serve_supr;
use crate::auth::request_source::header_text;
use crate::auth::trust::is_own_origin;
use crate::response::not_found;
use crate::site::Site;

/// How much is read from a socket at once. Every connection has such a buffer, even an idle one.
pub const READ_BUFFER_BYTES: usize = 2048;

/// How much is gathered before it is written to a socket.
pub const WRITE_BUFFER_BYTES: usize = 4096;

/// A client whose handshake is accepted, and whose connection is not a WebSocket yet.
struct PendingUpgrade {
    query: HandshakeQuery,
    slot: ConnectionSlot,
    deflate: Option<Deflate>,
    on_upgrade: OnUpgrade,
}

/// Handles the handshake of a client of the supr door.
pub(crate) async fn accept(State(site): State<Arc<Site>>, request: Request) -> Response {
    if !site.is_enabled() {
        return not_found();
    }
    let (mut parts, _) = request.into_parts();
    match check(&site, &mut parts) {
        Ok((response, pending)) => {
            site.deps.metrics.handshakes.inc();
            site.tasks.spawn(serve_upgraded(Arc::clone(&site), pending));
            response
        }
        Err(error) => site.refuse(error, &parts),
    }
}

/// All checks of a handshake, in the order of the protocol.
fn check(site: &Site, parts: &mut Parts) -> Result<(Response, PendingUpgrade), HandshakeError> {
    if !site.is_running() {
        return Err(HandshakeError::NotRunning);
    }
    let stored = site.deps.tokens.now();
    let authenticated = authenticate(parts, &stored.token, site.deps.settings.allow_token_query)?;
    let traceparent = header_text(&parts.headers, "traceparent").and_then(Traceparent::parse);
    let query =
        HandshakeQuery::parse(parts.uri.query().unwrap_or_default(), traceparent, || (site.deps.random)())
            .map_err(HandshakeError::Query)?;
    let slot =
        site.connections.reserve(&query.session, stored.evictions).map_err(|_| HandshakeError::TooMany)?;
    let mut response = upgrade(parts, &stored, authenticated, is_own_origin(site, parts))?;
    let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(HandshakeError::NoUpgrade)?;
    let (deflate, agreed) = extensions::negotiate(&parts.headers).unzip();
    if let Some(agreed) = agreed.and_then(|agreed| HeaderValue::try_from(agreed).ok()) {
        response.headers_mut().insert(SEC_WEBSOCKET_EXTENSIONS, agreed);
    }
    Ok((response, PendingUpgrade { query, slot, deflate, on_upgrade }))
}

/// Waits until the answer to the handshake is written, then serves the client until it disconnects.
async fn serve_upgraded(site: Arc<Site>, pending: PendingUpgrade) {
    // In a box that is freed before serving: most clients are idle and there may be thousands, so this future must be
    // small.
    let Some((slot, session, serving)) = Box::pin(start(site, pending)).await else { return };
    serving.await;
    tracing::info!(session = &*session, "disconnected");
    drop(slot);
}

/// Opens the WebSocket and returns its slot, its session and the future that serves it. `None` if the client has
/// disconnected already.
async fn start(
    site: Arc<Site>,
    pending: PendingUpgrade,
) -> Option<(ConnectionSlot, Box<str>, impl Future<Output = ()>)> {
    let PendingUpgrade { query, slot, deflate, on_upgrade } = pending;
    let upgraded = on_upgrade.await.ok()?;
    let socket = open_socket(upgraded, MAX_FRAME_BYTES, &site.deps.memory, deflate).await?;
    let (stop, replaces) = slot.occupy();
    if replaces {
        site.deps.metrics.replaced.inc();
    }
    tracing::info!(session = query.session, replaces, "connected");
    let session = query.session.as_str().into();
    Some((slot, session, serve_supr(&site, query, socket, stop).await))
}

/// The WebSocket of an upgraded connection, for messages of at most `max_bytes`, compressed as `deflate` says. Takes the
/// TCP stream out of hyper's wrappers, which saves their memory.
pub(crate) async fn open_socket(
    upgraded: Upgraded,
    max_bytes: usize,
    memory: &FrameMemory,
    deflate: Option<Deflate>,
) -> Option<Socket> {
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
    let max_bytes = memory.cap(max_bytes);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(max_bytes))
        .max_frame_size(Some(max_bytes));
    // A client may have sent frames right behind its handshake.
    let mut early = parts.read_buf.to_vec();
    let stream = MeteredStream::new(parts.io.into_inner(), memory, &mut early, deflate);
    Some(WebSocketStream::from_partially_read(stream, early, Role::Server, Some(config)).await)
}
