//! WebSockets of the ACP door: the remote transport of the Agent Client Protocol, which is a draft. Each connection is its
//! own; the program serves it, because the door needs more than sessions.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::request::Parts;
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use parlor_doors::acp::MAX_FRAME_BYTES;
use parlor_transport::{CloseReason, CountFrame, Keepalive, Socket};

use super::connections::ConnectionSlot;
use super::handshake::{HandshakeError, authenticate, upgrade};
use super::open_socket;
use crate::auth::trust::is_own_origin;
use crate::site::Site;

/// The header by which the server names a connection.
const CONNECTION_ID: &str = "acp-connection-id";

/// A client of the ACP door whose handshake is done.
pub struct AcpConnection {
    /// The WebSocket.
    pub socket: Socket,
    /// When it is pinged, and when it counts as lost.
    pub keepalive: Keepalive,
    /// Counts its frames.
    pub count_frame: CountFrame,
    /// Completes when the socket has to close.
    pub stop: Pin<Box<dyn Future<Output = CloseReason> + Send>>,
}

/// Serves a client until it disconnects.
pub type ServeAcp = Arc<dyn Fn(AcpConnection) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Handles the handshake of a client of the ACP door.
pub(crate) async fn accept(State(site): State<Arc<Site>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    match check(&site, &mut parts) {
        Ok((response, slot, on_upgrade)) => {
            site.deps.metrics.handshakes.inc();
            site.tasks.spawn(serve(Arc::clone(&site), slot, on_upgrade));
            response
        }
        Err(error) => site.refuse(error, &parts),
    }
}

fn check(site: &Site, parts: &mut Parts) -> Result<(Response, ConnectionSlot, OnUpgrade), HandshakeError> {
    if !site.is_running() {
        return Err(HandshakeError::NotRunning);
    }
    let stored = site.deps.tokens.now();
    let authenticated = authenticate(parts, &stored.token, site.deps.settings.allow_token_query)?;
    if !site.deps.settings.may_send {
        return Err(HandshakeError::ReadOnly);
    }
    // Unique, so that it replaces no other connection.
    let id = format!("acp-{}-{}", site.ids.next(), site.ids.next());
    let slot = site.connections.reserve(&id, stored.evictions).map_err(|_| HandshakeError::TooMany)?;
    let mut response = upgrade(parts, &stored, authenticated, is_own_origin(site, parts))?;
    let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(HandshakeError::NoUpgrade)?;
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(CONNECTION_ID, id);
    }
    Ok((response, slot, on_upgrade))
}

/// Waits until the answer to the handshake is written, then serves the client until it disconnects.
async fn serve(site: Arc<Site>, slot: ConnectionSlot, on_upgrade: OnUpgrade) {
    let Ok(upgraded) = on_upgrade.await else { return };
    let Some(socket) = open_socket(upgraded, MAX_FRAME_BYTES, &site.deps.memory, None).await else { return };
    let (stop, _) = slot.occupy();
    tracing::info!("an ACP client has connected");
    let connection = AcpConnection {
        socket,
        keepalive: site.deps.settings.keepalive,
        count_frame: Arc::clone(&site.count_frame),
        stop: Box::pin(stop.stopped()),
    };
    (site.deps.serve_acp)(connection).await;
    tracing::info!("an ACP client has disconnected");
}
