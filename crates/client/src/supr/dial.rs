//! Opens a connection to a supr server.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, http::Response};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{CONNECT_LIMIT, MAX_FRAME_BYTES, SuprError, SuprSettings};

/// An open connection.
pub(super) type Socket = WebSocketStream<TcpStream>;

/// Opens a connection to `session`, which begins with the events after `after`.
pub(super) async fn dial(
    settings: &SuprSettings,
    session: &str,
    after: Option<&str>,
) -> Result<Socket, SuprError> {
    let request = request(settings, session, after)?;
    match timeout(CONNECT_LIMIT, connect(request)).await {
        Ok(done) => done,
        Err(_) => Err(SuprError::Unreachable(format!("no answer within {CONNECT_LIMIT:?}"))),
    }
}

async fn connect(request: Request) -> Result<Socket, SuprError> {
    let unreachable = |error: std::io::Error| SuprError::Unreachable(error.to_string());
    let uri = request.uri();
    let host = uri.host().unwrap_or("127.0.0.1").trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES));
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(WsError::Http(response)) => Err(refusal(&response)),
        Err(error) => Err(SuprError::Unreachable(error.to_string())),
    }
}

fn refusal(response: &Response<Option<Vec<u8>>>) -> SuprError {
    let status = response.status();
    let body = response.body().as_deref().unwrap_or_default();
    let text = String::from_utf8_lossy(body).trim().to_owned();
    // A server that is stopping or full may accept connections soon.
    if status.is_server_error() {
        SuprError::Unreachable(format!("{status} {text}"))
    } else {
        SuprError::Refused { status: status.as_u16(), text }
    }
}

fn request(settings: &SuprSettings, session: &str, after: Option<&str>) -> Result<Request, SuprError> {
    let address_error = |reason: String| SuprError::Address { url: settings.url.clone(), reason };
    if !settings.url.starts_with("ws://") {
        return Err(address_error("it must begin with ws://; for wss://, use a proxy".to_owned()));
    }
    let mut url = format!("{}?session_id={}", settings.url, encoded(session));
    if let Some(event) = after {
        url += &format!("&after={}", encoded(event));
    }
    if settings.streams {
        url += "&stream=1";
    }
    let mut request = url.into_client_request().map_err(|error| address_error(error.to_string()))?;
    let token = HeaderValue::from_str(&format!("Bearer {}", settings.token));
    let token =
        token.map_err(|_| address_error("the token has characters that no header can hold".to_owned()))?;
    request.headers_mut().insert("authorization", token);
    Ok(request)
}

/// Percent-encodes a text for a query.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// How long to wait before reconnecting, after `failures` failed tries.
pub(super) fn pause(failures: u32) -> Duration {
    super::FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures)).min(super::LAST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_session_name_is_encoded_in_the_address() {
        let settings = SuprSettings::new("ws://127.0.0.1:1/supr/ws", "t");
        let request = request(&settings, " \u{e4}&x=1", Some("evt_1")).unwrap();
        assert_eq!(
            request.uri().to_string(),
            "ws://127.0.0.1:1/supr/ws?session_id=%20%C3%A4%26x%3D1&after=evt_1"
        );
        assert_eq!(request.headers()["authorization"], "Bearer t");
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<u128> = [0, 1, 2, 5, 6, 99].map(|failures| pause(failures).as_millis()).into();
        assert_eq!(pauses, [100, 200, 400, 3200, 5000, 5000]);
    }

    #[test]
    fn an_invalid_address_is_an_error() {
        for url in ["http://x/", "wss://x/", "ws://"] {
            assert!(
                matches!(request(&SuprSettings::new(url, "t"), "s", None), Err(SuprError::Address { .. })),
                "{url}"
            );
        }
        assert!(request(&SuprSettings::new("ws://x/", "a\nb"), "s", None).is_err());
    }
}
