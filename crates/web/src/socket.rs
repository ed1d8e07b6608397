//! A handshake from the first check to the socket that is handed over.

use async_trait::async_trait;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parlor_doors::supr::MAX_FRAME_BYTES;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::arrival::HandshakeQuery;
use crate::connections::{ConnectionSlot, StopSignal};
use crate::guard::value;
use crate::handshake::{Refused, authenticate, upgrade};
use crate::site::{Shared, SiteState};
use crate::traceparent::Traceparent;
use parlor_transport::Socket;
use parlor_transport::{FrameMemory, Metered};

/// How much is read from a socket at once. There is one such buffer for each connection, however idle.
pub const READ_BUFFER_BYTES: usize = 2048;

/// How much is gathered before it is written to a socket.
pub const WRITE_BUFFER_BYTES: usize = 4096;

/// Who serves the sockets.
#[async_trait]
pub trait SocketHandler: Send + Sync {
    /// Serves one connection until it is over. Its place is taken until this returns.
    async fn receive(&self, arrival: HandshakeQuery, socket: Socket, stop: StopSignal);
}

pub(crate) async fn shake_hands(State(site): State<Shared>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    match admit(&site, &mut parts) {
        Ok((response, guest)) => {
            site.web.metrics.handshakes.inc();
            site.tasks.spawn(welcome(Shared::clone(&site), guest));
            response
        }
        Err(refused) => site.refuse(refused, &parts),
    }
}

struct PendingUpgrade {
    arrival: HandshakeQuery,
    place: ConnectionSlot,
    on_upgrade: OnUpgrade,
}

/// All checks, in their order.
fn admit(site: &SiteState, parts: &mut Parts) -> Result<(Response, PendingUpgrade), Refused> {
    if !site.is_running() {
        return Err(Refused::NotRunning);
    }
    let kept = site.web.tokens.now();
    let authenticated = authenticate(parts, &kept.token, site.web.settings.allow_token_query)?;
    let traceparent = value(&parts.headers, "traceparent").and_then(Traceparent::parse);
    let arrival =
        HandshakeQuery::read(parts.uri.query().unwrap_or_default(), traceparent, || (site.web.chance)())
            .map_err(Refused::Query)?;
    let place = site.connections.reserve(&arrival.session).map_err(|_| Refused::TooMany)?;
    let response = upgrade(parts, &kept, authenticated)?;
    let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(Refused::NoUpgrade)?;
    Ok((response, PendingUpgrade { arrival, place, on_upgrade }))
}

/// Waits for the handshake to be written, and hands the socket over.
async fn welcome(site: Shared, guest: PendingUpgrade) {
    let PendingUpgrade { arrival, place, on_upgrade } = guest;
    let Ok(upgraded) = on_upgrade.await else { return };
    let Some(socket) = socket(upgraded, MAX_FRAME_BYTES, &site.web.memory).await else { return };
    let (stop, replaces) = place.occupy();
    if replaces {
        site.web.metrics.replaced.inc();
    }
    tracing::info!(session = arrival.session, replaces, "connected");
    let session = arrival.session.clone();
    site.web.reception.receive(arrival, socket, stop).await;
    tracing::info!(session, "disconnected");
    drop(place);
}

/// The socket itself, for messages of `most` bytes: what hyper has wrapped it in is taken off, which saves its memory.
pub(crate) async fn socket(upgraded: Upgraded, most: usize, memory: &FrameMemory) -> Option<Socket> {
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
    let most = memory.cap(most);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(most))
        .max_frame_size(Some(most));
    // A hasty client may have sent something right behind its handshake.
    let early = parts.read_buf.to_vec();
    let stream = Metered::new(parts.io.into_inner(), memory, &early);
    Some(WebSocketStream::from_partially_read(stream, early, Role::Server, Some(config)).await)
}
