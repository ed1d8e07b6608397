//! From answers to frames.

use serde::Serialize;

use super::code::{self, Fault, Side};
use super::{MAX_REPLY_BYTES, RUNTIME_VERSION};

/// A frame with a result. One that clients would not take becomes an error that says so.
pub(super) fn success(side: Side, id: &str, result: &impl Serialize) -> Vec<u8> {
    let frame = frame(side, id, "result", result);
    match frame.len() < MAX_REPLY_BYTES {
        true => frame,
        false => failure(side, id, &code::reply_too_large(frame.len() + 1)),
    }
}

/// A frame with an error.
pub(super) fn failure(side: Side, id: &str, fault: &Fault) -> Vec<u8> {
    #[derive(Serialize)]
    struct Error<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a code::Data>,
    }
    let data = match side {
        Side::Bridge => Some(&fault.data),
        Side::Repl => None,
    };
    frame(side, id, "error", &Error { code: fault.code, message: &fault.message, data })
}

/// What `ping` is answered, on both servers.
#[derive(Serialize)]
pub(super) struct Pong {
    status: &'static str,
    version: &'static str,
    message: &'static str,
}

pub(super) const PONG: Pong =
    Pong { status: "ok", version: RUNTIME_VERSION, message: "Supex server is running" };

/// Written by hand, since the id goes out as the text it came in.
fn frame(side: Side, id: &str, member: &str, value: &impl Serialize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    let mut put = |text: &str| frame.extend_from_slice(text.as_bytes());
    put(r#"{"jsonrpc":"2.0","#);
    if side == Side::Repl {
        put(r#""id":"#);
        put(id);
        put(",");
    }
    put("\"");
    put(member);
    put("\":");
    serde_json::to_writer(&mut frame, value).expect("wire types have string keys and no failing serializer");
    if side == Side::Bridge {
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
    fn members_stand_in_the_order_of_each_server() {
        let text = |side| String::from_utf8(success(side, "1.0", &PONG)).unwrap();
        let pong = r#"{"status":"ok","version":"0.2.0","message":"Supex server is running"}"#;
        assert_eq!(text(Side::Bridge), format!(r#"{{"jsonrpc":"2.0","result":{pong},"id":1.0}}"#));
        assert_eq!(text(Side::Repl), format!(r#"{{"jsonrpc":"2.0","id":1.0,"result":{pong}}}"#));
    }

    #[test]
    fn a_reply_of_the_largest_size_goes_out_and_one_byte_more_is_an_error() {
        let around = success(Side::Bridge, "1", &"").len();
        let most = MAX_REPLY_BYTES - 1 - around;
        let of = |size: usize| success(Side::Bridge, "1", &"x".repeat(size));
        assert_eq!(of(most).len() + 1, MAX_REPLY_BYTES);
        let error = String::from_utf8(of(most + 1)).unwrap();
        assert!(error.contains("-32000") && error.contains("10485761 bytes"), "{error}");
    }
}
