//! Encodes replies: the envelope of results and errors, and the result of the method `ping`.

use serde::Serialize;

use super::code::{self, ReplyError, ServerKind};
use super::{MAX_REPLY_BYTES, RUNTIME_VERSION};

/// A frame with a result. A result that is too large for clients becomes an error.
pub(super) fn success(server_kind: ServerKind, id: &str, result: &impl Serialize) -> Vec<u8> {
    let frame = frame(server_kind, id, "result", result);
    match frame.len() < MAX_REPLY_BYTES {
        true => frame,
        false => failure(server_kind, id, &code::reply_too_large(frame.len() + 1)),
    }
}

/// A frame with an error.
pub(super) fn failure(server_kind: ServerKind, id: &str, error: &ReplyError) -> Vec<u8> {
    #[derive(Serialize)]
    struct Error<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a code::ErrorData>,
    }
    let data = match server_kind {
        ServerKind::Bridge => Some(&error.data),
        ServerKind::Repl => None,
    };
    frame(server_kind, id, "error", &Error { code: error.code, message: &error.message, data })
}

/// The result of `ping` on both servers.
#[derive(Serialize)]
pub(super) struct Pong {
    status: &'static str,
    version: &'static str,
    message: &'static str,
}

pub(super) const PONG: Pong =
    Pong { status: "ok", version: RUNTIME_VERSION, message: "Supex server is running" };

/// Writes the envelope by hand, because the id must go out byte for byte as it came in. The two servers put the id in
/// different places.
fn frame(server_kind: ServerKind, id: &str, member: &str, value: &impl Serialize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    let mut put = |text: &str| frame.extend_from_slice(text.as_bytes());
    put(r#"{"jsonrpc":"2.0","#);
    if server_kind == ServerKind::Repl {
        put(r#""id":"#);
        put(id);
        put(",");
    }
    put("\"");
    put(member);
    put("\":");
    serde_json::to_writer(&mut frame, value).expect("wire types have string keys and no failing serializer");
    if server_kind == ServerKind::Bridge {
        frame.extend_from_slice(br#","id":"#);
        frame.extend_from_slice(id.as_bytes());
    }
    frame.push(b'}');
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_own_order_of_members() {
        let text = |server_kind| String::from_utf8(success(server_kind, "1.0", &PONG)).unwrap();
        let pong = r#"{"status":"ok","version":"0.2.0","message":"Supex server is running"}"#;
        assert_eq!(text(ServerKind::Bridge), format!(r#"{{"jsonrpc":"2.0","result":{pong},"id":1.0}}"#));
        assert_eq!(text(ServerKind::Repl), format!(r#"{{"jsonrpc":"2.0","id":1.0,"result":{pong}}}"#));
    }

    #[test]
    fn a_reply_at_the_limit_is_sent_and_one_byte_more_is_an_error() {
        let around = success(ServerKind::Bridge, "1", &"").len();
        let most = MAX_REPLY_BYTES - 1 - around;
        let reply = |size: usize| success(ServerKind::Bridge, "1", &"x".repeat(size));
        assert_eq!(reply(most).len() + 1, MAX_REPLY_BYTES);
        let error = String::from_utf8(reply(most + 1)).unwrap();
        assert!(error.contains("-32000") && error.contains("10485761 bytes"), "{error}");
    }
}
