//! One who looks at a process over a WebSocket: output as binary messages, input as binary messages, and everything
//! else as JSON.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::chance::uuid;
use crate::connections::{ConnectionSlot, StopSignal};
use crate::handshake::{Refused, authenticate, upgrade};
use crate::id::Id;
use crate::processes::refused;
use crate::site::{Shared, SiteState};
use crate::socket::socket;
use parlor_transport::Socket;
use parlor_transport::{ProcessViewer, TerminalSize, ViewerEvent};

/// The longest message of a client: what it types or pastes at once.
pub const MAX_TYPED_BYTES: usize = 1 << 20;

/// How often a client is pinged.
pub const TERMINAL_PING: Duration = Duration::from_secs(30);

/// How long a client may be silent.
pub const TERMINAL_SILENCE: Duration = Duration::from_secs(90);

/// How long a message to a client may take.
pub const TERMINAL_WRITE_WAIT: Duration = Duration::from_secs(30);

/// How long a client that was told goodbye may take to say it too.
const PARTING_WAIT: Duration = Duration::from_secs(1);

pub(crate) async fn shake_hands(
    State(site): State<Shared>,
    id: Result<Id, Response>,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let (response, place, on_upgrade) = match admit(&site, &mut parts) {
        Ok(admitted) => admitted,
        Err(refused) => return site.refuse(refused, &parts),
    };
    let Id(id) = match id {
        Ok(id) => id,
        Err(response) => return response,
    };
    let onlooker = match site.web.processes.look(&id).await {
        Ok(onlooker) => onlooker,
        Err(flaw) => return refused(&flaw),
    };
    let memory = site.web.memory.clone();
    site.tasks.spawn(async move {
        let Ok(upgraded) = on_upgrade.await else { return };
        let Some(socket) = socket(upgraded, MAX_TYPED_BYTES, &memory).await else { return };
        let (stop, _) = place.occupy();
        show(onlooker, socket, stop).await;
        drop(place);
    });
    response
}

/// The checks of any socket, in their order. It is nobody's session, and so replaces none.
fn admit(site: &SiteState, parts: &mut Parts) -> Result<(Response, ConnectionSlot, OnUpgrade), Refused> {
    if !site.is_running() {
        return Err(Refused::NotRunning);
    }
    let kept = site.web.tokens.now();
    let authenticated = authenticate(parts, &kept.token, site.web.settings.allow_token_query)?;
    let place = site.connections.reserve(&uuid((site.web.chance)())).map_err(|_| Refused::TooMany)?;
    let response = upgrade(parts, &kept, authenticated)?;
    let on_upgrade = parts.extensions.remove::<OnUpgrade>().ok_or(Refused::NoUpgrade)?;
    Ok((response, place, on_upgrade))
}

/// What a client says beside what it types.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Order {
    Resize { cols: u64, rows: u64 },
}

/// Why it ends.
enum End {
    /// There is nobody to say goodbye to.
    Gone,
    /// The client is told this.
    Told(CloseCode, &'static str),
}

async fn show(mut onlooker: Box<dyn ProcessViewer>, mut socket: Socket, stop: StopSignal) {
    let end = tokio::select! {
        biased;
        _ = stop.asked() => End::Told(CloseCode::Away, "the server is ending"),
        end = converse(&mut *onlooker, &mut socket) => end,
    };
    if let End::Told(code, reason) = end {
        let parting = async {
            if socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await.is_ok() {
                // Until the client has said it too: a socket that is closed with something unread takes it back.
                while let Some(Ok(_)) = socket.next().await {}
            }
        };
        let _ = timeout(PARTING_WAIT, parting).await;
    }
}

async fn converse(onlooker: &mut dyn ProcessViewer, socket: &mut Socket) -> End {
    let mut pings = interval_at(Instant::now() + TERMINAL_PING, TERMINAL_PING);
    let mut heard = Instant::now();
    loop {
        let message = tokio::select! {
            message = socket.next() => {
                heard = Instant::now();
                let account = socket.get_mut().account();
                account.keep_arrived();
                account.let_go();
                match on_message(onlooker, message) {
                    Ok(()) => continue,
                    Err(end) => return end,
                }
            }
            sight = onlooker.next() => match sight {
                Some(ViewerEvent::Output(bytes)) => Message::Binary(Bytes::from(bytes)),
                Some(ViewerEvent::Exited(code)) => {
                    Message::text(json!({"type": "exited", "exit_code": code}).to_string())
                }
                None => return End::Told(CloseCode::Normal, ""),
            },
            _ = pings.tick() => {
                if heard.elapsed() > TERMINAL_SILENCE {
                    return End::Gone;
                }
                Message::Ping(Bytes::new())
            }
        };
        match timeout(TERMINAL_WRITE_WAIT, socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return End::Gone,
        }
    }
}

fn on_message(
    onlooker: &mut dyn ProcessViewer,
    message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
) -> Result<(), End> {
    match message {
        Some(Ok(Message::Binary(bytes))) => match onlooker.write(bytes.into()) {
            true => Ok(()),
            false => Err(End::Told(CloseCode::Policy, "what was typed is not taken")),
        },
        Some(Ok(Message::Text(text))) => match serde_json::from_str(text.as_str()) {
            Ok(Order::Resize { cols, rows }) => {
                onlooker.resize(TerminalSize::bounded(cols, rows));
                Ok(())
            }
            Err(_) => {
                Err(End::Told(CloseCode::Invalid, "text is {\"type\":\"resize\",\"cols\":n,\"rows\":n}"))
            }
        },
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => Ok(()),
        Some(Err(_)) | None => Err(End::Gone),
    }
}
