//! Connects to the exec door on a WebSocket, where sessions outlive their connections.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use parlor_doors::exec::{MAX_LINE_BYTES, method};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::connection::ExecConnection;
use super::{ExecServerClient, ExecServerError};
use crate::child::process::ChildStatus;

/// How much of each direction waits between the socket and the connection.
const PIPE_BYTES: usize = 256 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    session_id: String,
}

impl ExecServerClient {
    /// Connects to `parlor serve --exec`, or to another server of today's protocol, and opens a session. The URL is
    /// `ws://HOST:PORT`; the token is that of `parlor token`, and not needed for the user who runs the server.
    pub async fn connect_websocket(url: &str, token: Option<&str>) -> Result<Self, ExecServerError> {
        Self::open_session(url, token, None).await
    }

    /// Connects again, and goes on with the session of a lost connection within 30 s. Then [`attach`](Self::attach) goes on with
    /// its processes.
    ///
    /// A server that has not noticed the loss yet refuses this with the code -32010; try again then.
    pub async fn resume_websocket(
        url: &str,
        token: Option<&str>,
        session: &str,
    ) -> Result<Self, ExecServerError> {
        Self::open_session(url, token, Some(session)).await
    }

    async fn open_session(
        url: &str,
        token: Option<&str>,
        session: Option<&str>,
    ) -> Result<Self, ExecServerError> {
        let socket = dial(url, token).await?;
        let (connection_end, socket_end) = duplex(PIPE_BYTES);
        tokio::spawn(pump(socket, socket_end));
        let (reader, writer) = split(connection_end);
        let connection = ExecConnection::open(reader, writer, ChildStatus::UNKNOWN, None);
        let params = json!({"clientName": super::client::CLIENT_NAME, "resumeSessionId": session});
        let Opened { session_id } = connection.call(method::INITIALIZE, &params, None).await?;
        connection.notify(method::INITIALIZED, &serde_json::Map::new()).await?;
        Ok(Self::with_session(connection, Some(session_id)))
    }
}

async fn dial(url: &str, token: Option<&str>) -> Result<WebSocketStream<TcpStream>, ExecServerError> {
    let unreachable =
        |error: std::io::Error| ExecServerError::Closed { status: None, source: Some(Arc::new(error)) };
    let address_error = |reason: String| ExecServerError::Address { url: url.to_owned(), reason };
    if !url.starts_with("ws://") {
        return Err(address_error("it must begin with ws://; for wss://, use a proxy".to_owned()));
    }
    let mut request = url.into_client_request().map_err(|error| address_error(error.to_string()))?;
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let value = value
            .map_err(|_| address_error("the token has characters that no header can hold".to_owned()))?;
        request.headers_mut().insert("authorization", value);
    }
    let host = request.uri().host().unwrap_or("127.0.0.1");
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream =
        TcpStream::connect((host, request.uri().port_u16().unwrap_or(80))).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_LINE_BYTES))
        .max_frame_size(Some(MAX_LINE_BYTES));
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(WsError::Http(response)) => {
            let text =
                String::from_utf8_lossy(response.body().as_deref().unwrap_or_default()).trim().to_owned();
            Err(address_error(format!("{} {text}", response.status())))
        }
        Err(error) => Err(unreachable(std::io::Error::other(error))),
    }
}

/// Passes messages on as lines, and lines as messages, until either side ends.
async fn pump(socket: WebSocketStream<TcpStream>, lines: DuplexStream) {
    let (mut sender, mut messages) = socket.split();
    let (reader, mut writer) = split(lines);
    let up = async {
        let mut reader = BufReader::new(reader).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            if sender.send(Message::text(line)).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        while let Some(Ok(message)) = messages.next().await {
            let mut line = match message {
                Message::Text(text) => text.as_bytes().to_vec(),
                Message::Binary(bytes) => bytes.to_vec(),
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            // No JSON string has a newline in it, so this changes only the space around values.
            line.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
