//! A client that watches a process over a WebSocket: output and input are binary messages, everything else is JSON.
//!
//! A client that asks for output after an offset is told the offset of the first byte, and again after each gap.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use parlor_transport::{ProcessViewer, Socket, TerminalSize, ViewerEvent};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::path_id::PathId;
use super::processes::Cells;
use crate::auth::trust::is_own_origin;
use crate::query::number;
use crate::random::uuid;
use crate::response::text;
use crate::site::Site;
use crate::socket::connections::{ConnectionSlot, StopSignal};
use crate::socket::handshake::{HandshakeError, authenticate, upgrade};
use crate::socket::open_socket;

/// The longest message of a client: what its user types or pastes at once.
pub const MAX_TYPED_BYTES: usize = 1 << 20;

/// How often the server pings a client.
pub const TERMINAL_PING: Duration = Duration::from_secs(30);

/// How long a client may be silent before the server disconnects it.
pub const TERMINAL_SILENCE: Duration = Duration::from_secs(90);

/// How long the server may take to write one message to a client.
pub const TERMINAL_WRITE_WAIT: Duration = Duration::from_secs(30);

/// The reason for closing the socket when input cannot be queued.
const INPUT_REFUSED: &str = "the program has ended, or 1 MiB of earlier input is unread: wait until it reads";

/// How long a client may take to answer the close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Handles the handshake of a client that wants to watch a process.
pub(crate) async fn accept(
    State(site): State<Arc<Site>>,
    id: Result<PathId, Response>,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let (response, slot, on_upgrade) = match check(&site, &mut parts) {
        Ok(checked) => checked,
        Err(error) => return site.refuse(error, &parts),
    };
    let PathId(id) = match id {
        Ok(id) => id,
        Err(response) => return response,
    };
    let Ok(after) = number(&parts, "after") else {
        return text(
            StatusCode::BAD_REQUEST,
            "after is a whole number: the offset of the first byte of output",
        );
    };
    let viewer = match site.deps.processes.watch(&id, after.map(|after| after as u64)).await {
        Ok(viewer) => viewer,
        Err(error) => return error.response(),
    };
    let memory = site.deps.memory.clone();
    site.tasks.spawn(async move {
        let Ok(upgraded) = on_upgrade.await else { return };
        let Some(socket) = open_socket(upgraded, MAX_TYPED_BYTES, &memory, None).await else { return };
        let (stop, _) = slot.occupy();
        serve_viewer(viewer, socket, after.is_some(), stop).await;
        drop(slot);
    });
    response
}

/// The checks of every socket, in the order of the protocol. The socket belongs to no session, so it replaces none.
fn check(site: &Site, parts: &mut Parts) -> Result<(Response, ConnectionSlot, OnUpgrade), HandshakeError> {
    if !site.is_running() {
        return Err(HandshakeError::NotRunning);
    }
    let stored = site.deps.tokens.now();
    let authenticated = authenticate(parts, &stored.token, site.deps.settings.allow_token_query)?;
    let id = uuid((site.deps.random)());
    let slot = site.connections.reserve(&id, stored.evictions).map_err(|_| HandshakeError::TooMany)?;
    let response = upgrade(parts, &stored, authenticated, is_own_origin(site, parts))?;
    let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(HandshakeError::NoUpgrade)?;
    Ok((response, slot, on_upgrade))
}

/// A text message of a client.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Control {
    Resize { cols: Cells, rows: Cells },
}

/// Why the server stops serving a client.
enum End {
    /// The connection is lost.
    Lost,
    /// The server closes the connection with this code and reason.
    Close(CloseCode, &'static str),
}

async fn serve_viewer(
    mut viewer: Box<dyn ProcessViewer>,
    mut socket: Socket,
    tells_offsets: bool,
    stop: StopSignal,
) {
    let end = tokio::select! {
        biased;
        reason = stop.stopped() => {
            let (code, text) = reason.code_and_text();
            End::Close(code, text)
        }
        end = forward(&mut *viewer, &mut socket, tells_offsets) => end,
    };
    if let End::Close(code, reason) = end {
        let closing = async {
            if socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await.is_ok() {
                // Reads until the client has answered: closing a TCP socket with unread input resets the connection,
                // and the client would not see the close frame.
                while let Some(Ok(_)) = socket.next().await {}
            }
        };
        let _ = timeout(CLOSE_WAIT, closing).await;
    }
}

/// Forwards output to the client and input to the process until one of them is gone.
async fn forward(viewer: &mut dyn ProcessViewer, socket: &mut Socket, tells_offsets: bool) -> End {
    // The offset that the client expects of the next output.
    let mut expected = None;
    if let Some(offset) = viewer.start_offset().filter(|_| tells_offsets) {
        if let Err(end) = send(socket, offset_message(offset)).await {
            return end;
        }
        expected = Some(offset);
    }
    let mut pings = interval_at(Instant::now() + TERMINAL_PING, TERMINAL_PING);
    let mut last_message = Instant::now();
    loop {
        let message = tokio::select! {
            message = socket.next() => {
                last_message = Instant::now();
                let account = socket.get_mut().account();
                account.hold_arrived();
                account.release_held();
                match on_message(viewer, message) {
                    Ok(()) => continue,
                    Err(end) => return end,
                }
            }
            event = viewer.next() => match event {
                Some(ViewerEvent::Output { offset, bytes }) => {
                    if let (Some(expected), Some(offset)) = (&mut expected, offset) {
                        if offset != *expected && let Err(end) = send(socket, offset_message(offset)).await {
                            return end;
                        }
                        *expected = offset + bytes.len() as u64;
                    }
                    Message::Binary(Bytes::from(bytes))
                }
                Some(ViewerEvent::Exited(code)) => {
                    Message::text(json!({"type": "exited", "exit_code": code}).to_string())
                }
                None => return End::Close(CloseCode::Normal, ""),
            },
            _ = pings.tick() => {
                if last_message.elapsed() > TERMINAL_SILENCE {
                    return End::Lost;
                }
                Message::Ping(Bytes::new())
            }
        };
        if let Err(end) = send(socket, message).await {
            return end;
        }
    }
}

/// Tells the client the offset of the next byte of output.
fn offset_message(offset: u64) -> Message {
    Message::text(json!({"type": "output", "offset": offset}).to_string())
}

async fn send(socket: &mut Socket, message: Message) -> Result<(), End> {
    match timeout(TERMINAL_WRITE_WAIT, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(End::Lost),
    }
}

fn on_message(
    viewer: &mut dyn ProcessViewer,
    message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
) -> Result<(), End> {
    match message {
        Some(Ok(Message::Binary(bytes))) => match viewer.write(bytes.into()) {
            true => Ok(()),
            false => Err(End::Close(CloseCode::Policy, INPUT_REFUSED)),
        },
        Some(Ok(Message::Text(text))) => match serde_json::from_str(text.as_str()) {
            Ok(Control::Resize { cols, rows }) => {
                viewer.resize(TerminalSize::bounded(cols.0, rows.0));
                Ok(())
            }
            Err(_) => {
                Err(End::Close(CloseCode::Invalid, "text is {\"type\":\"resize\",\"cols\":n,\"rows\":n}"))
            }
        },
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => Ok(()),
        Some(Err(_)) | None => Err(End::Lost),
    }
}
