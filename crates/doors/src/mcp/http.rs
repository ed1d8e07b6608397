//! What a request over HTTP is, by its headers and its body, and the status of its answer.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::code::{self, Error};
use super::dispatch::cancelled_request;
use super::encode;
use super::envelope::Envelope;
use super::era::{Era, LEGACY_VERSIONS, MODERN_VERSION, RequestMeta, named_version};
use crate::jsonrpc::RequestId;

/// The marks around a value that is not visible ASCII.
const BASE64: (&str, &str) = ("=?base64?", "?=");

/// The headers of a request that repeat parts of its body, with all of their values.
#[derive(Clone, Debug, Default)]
pub struct HttpHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub version: Vec<&'a [u8]>,
    /// `Mcp-Method`.
    pub method: Vec<&'a [u8]>,
    /// `Mcp-Name`.
    pub name: Vec<&'a [u8]>,
}

/// A message over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpMessage {
    /// A request, which a machine answers.
    Request {
        /// The id, in a form that is unique among the ids of one client.
        id: String,
        /// A client that closes the connection cancels the request.
        ends_with_connection: bool,
        /// The answer to it gives the client a session id.
        opens_session: bool,
    },
    /// The client cancels the request with this id.
    Cancelled(String),
    /// A message that is accepted and needs no answer.
    Accepted,
}

/// A body that is no message, or a request whose headers and body disagree: answered with 400 and this frame.
#[derive(Debug)]
pub struct HttpRefusal {
    /// The error.
    pub frame: Vec<u8>,
}

fn refusal(id: Option<&RequestId>, error: &Error) -> HttpRefusal {
    HttpRefusal { frame: encode::error(id, error) }
}

/// Reads the body of a POST, and compares it with the headers.
pub fn read_post(headers: &HttpHeaders<'_>, body: &[u8]) -> Result<HttpMessage, HttpRefusal> {
    let is_modern_header = headers.version.contains(&MODERN_VERSION.as_bytes());
    let envelope = Envelope::decode(body).map_err(|malformed| refusal(malformed.0.as_ref(), &malformed.1))?;
    match envelope {
        None => Err(refusal(None, &code::parse_error("the body is empty"))),
        Some(Envelope::Response) if is_modern_header => {
            let reason = "this version has no requests of the server, so no answers to them";
            Err(refusal(None, &code::invalid_request(reason)))
        }
        Some(Envelope::Response) => Ok(HttpMessage::Accepted),
        Some(Envelope::Notification { method, params }) => Ok(cancelled_request(&method, params)
            .map_or(HttpMessage::Accepted, |id| HttpMessage::Cancelled(id_text(&id)))),
        Some(Envelope::Request { id, method, params }) => {
            let checked = check_request(headers, is_modern_header, &method, params);
            let era = checked.map_err(|error| refusal(Some(&id), &error))?;
            Ok(HttpMessage::Request {
                id: id_text(&id),
                ends_with_connection: era == Era::Modern,
                opens_session: method == "initialize" && era == Era::Legacy,
            })
        }
    }
}

/// The id as JSON, so that `1` and `"1"` differ.
fn id_text(id: &RequestId) -> String {
    serde_json::to_string(id).expect("an id is a string or a number")
}

fn check_request(
    headers: &HttpHeaders<'_>,
    is_modern_header: bool,
    method: &str,
    params: Option<&RawValue>,
) -> Result<Era, Error> {
    // A version that the header contradicts is a mismatch, even if it is unknown too.
    if let Some(version) = named_version(params) {
        check_header("MCP-Protocol-Version", &headers.version, &version)?;
    }
    let meta = RequestMeta::read(method, params)?;
    match meta.version {
        Some(_) => {}
        // The header alone promises what `_meta` has to say.
        None if is_modern_header && method != "initialize" => {
            return Err(code::invalid_params("`_meta` lacks `io.modelcontextprotocol/protocolVersion`"));
        }
        None => {
            let is_known = |given: &[u8]| LEGACY_VERSIONS.iter().any(|version| version.as_bytes() == given);
            let unknown = headers.version.iter().find(|given| !is_known(given) && method != "initialize");
            return match unknown {
                Some(given) => Err(code::unsupported_version(&String::from_utf8_lossy(given))),
                None => Ok(Era::Legacy),
            };
        }
    }
    check_header("Mcp-Method", &headers.method, method)?;
    if let Some(name) = named(method, params) {
        check_header("Mcp-Name", &headers.name, &name)?;
    }
    Ok(Era::Modern)
}

/// Checks that a header stands once and has this value.
fn check_header(header: &str, given: &[&[u8]], expected: &str) -> Result<(), Error> {
    let [given] = given else {
        let count = if given.is_empty() { "missing" } else { "there more than once" };
        return Err(code::header_mismatch(&format!("{header} is {count}")));
    };
    let Some(value) = decode_value(given) else {
        return Err(code::header_mismatch(&format!("{header} is neither visible ASCII nor base64 of UTF-8")));
    };
    if value != expected {
        return Err(code::header_mismatch(&format!("{header} is {value:?}, the body says {expected:?}")));
    }
    Ok(())
}

/// The value of a header, which may be written in base64.
fn decode_value(given: &[u8]) -> Option<String> {
    let given = std::str::from_utf8(given).ok()?.trim_matches([' ', '\t']);
    if !given.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return None;
    }
    let (begin, end) = BASE64;
    let Some(encoded) = given.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)) else {
        return Some(given.to_owned());
    };
    String::from_utf8(base64_simd::STANDARD.decode_to_vec(encoded).ok()?).ok()
}

/// The name that `Mcp-Name` repeats. `None` if the method has none; a name of the wrong type is an error of its own.
fn named(method: &str, params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: Option<String>,
        uri: Option<String>,
    }
    let params = params.filter(|_| ["tools/call", "prompts/get", "resources/read"].contains(&method))?;
    let named: Named = serde_json::from_str(params.get()).ok()?;
    if method == "resources/read" { named.uri } else { named.name }
}

/// The HTTP status of a frame that answers a request; `None` for a notification, after which more frames come.
pub fn answer_status(frame: &[u8], ends_with_connection: bool) -> Option<u16> {
    #[derive(Deserialize)]
    struct Answer {
        method: Option<serde::de::IgnoredAny>,
        error: Option<AnswerError>,
    }
    #[derive(Deserialize)]
    struct AnswerError {
        code: i64,
    }
    let answer: Answer = serde_json::from_slice(frame).ok()?;
    if answer.method.is_some() {
        return None;
    }
    let is_unknown_method = answer.error.is_some_and(|error| error.code == code::METHOD_NOT_FOUND);
    Some(if is_unknown_method && ends_with_connection { 404 } else { 200 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn call(name: &str) -> String {
        let name = serde_json::to_string(name).unwrap();
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":{name},{META}}}}}"#)
    }

    fn headers<'a>(version: &'a str, method: &'a str, name: &'a str) -> HttpHeaders<'a> {
        let one = |value: &'a str| vec![value.as_bytes()];
        HttpHeaders { version: one(version), method: one(method), name: one(name) }
    }

    fn refused(headers: &HttpHeaders<'_>, body: &str) -> (i64, serde_json::Value) {
        let frame = read_post(headers, body.as_bytes()).unwrap_err().frame;
        let frame: serde_json::Value = serde_json::from_slice(&frame).unwrap();
        (frame["error"]["code"].as_i64().unwrap(), frame["id"].clone())
    }

    #[test]
    fn a_modern_request_must_repeat_its_parts_in_headers() {
        let right = headers(MODERN_VERSION, "tools/call", "shell");
        let accepted = read_post(&right, call("shell").as_bytes()).unwrap();
        let HttpMessage::Request { id, ends_with_connection: true, opens_session: false } = accepted else {
            panic!("{accepted:?}")
        };
        assert_eq!(id, "7");
        let wrong = |change: fn(&mut HttpHeaders<'static>)| {
            let mut headers = headers(MODERN_VERSION, "tools/call", "shell");
            change(&mut headers);
            refused(&headers, &call("shell"))
        };
        for (code, id) in [
            wrong(|headers| headers.version.clear()),
            wrong(|headers| headers.method.clear()),
            wrong(|headers| headers.name.clear()),
            wrong(|headers| headers.version = vec![b"2025-11-25"]),
            wrong(|headers| headers.method = vec![b"tools/list"]),
            wrong(|headers| headers.name = vec![b"Shell"]),
            wrong(|headers| headers.name.push(b"shell")),
            wrong(|headers| headers.name = vec![b"=?base64?***?="]),
            wrong(|headers| headers.name = vec![b"\xff"]),
        ] {
            assert_eq!((code, id), (-32020, 7.into()));
        }
    }

    #[test]
    fn names_that_are_not_visible_ascii_are_written_in_base64() {
        for name in ["two words", "gr\u{fc}\u{df}e", "=?base64?x?="] {
            let encoded = format!("=?base64?{}?=", base64_simd::STANDARD.encode_to_string(name));
            let headers = headers(MODERN_VERSION, "tools/call", &encoded);
            assert!(read_post(&headers, call(name).as_bytes()).is_ok(), "{name}");
        }
        let plain = headers(MODERN_VERSION, "tools/call", "=?base64?x?=");
        assert_eq!(refused(&plain, &call("=?base64?x?=")).0, -32020);
    }

    #[test]
    fn the_era_follows_from_the_body_and_the_version() {
        let list = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
        let with_version = |version: &'static str| HttpHeaders {
            version: vec![version.as_bytes()],
            ..HttpHeaders::default()
        };
        for headers in [HttpHeaders::default(), with_version("2025-06-18"), with_version("2025-11-25")] {
            let message = read_post(&headers, list.as_bytes()).unwrap();
            assert!(
                matches!(message, HttpMessage::Request { ends_with_connection: false, .. }),
                "{message:?}"
            );
        }
        assert_eq!(refused(&with_version("2026-07-28"), list).0, -32602);
        assert_eq!(refused(&with_version("1900-01-01"), list).0, -32022);
        let old = list
            .replace(r#""tools/list""#, &format!(r#""tools/list","params":{{{META}}}"#))
            .replace("2026-07-28", "1900-01-01");
        assert_eq!(refused(&with_version("1900-01-01"), &old).0, -32022);
        assert_eq!(refused(&with_version("2026-07-28"), &old).0, -32020, "the header says something else");
        let open = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let message = read_post(&with_version("x"), open.as_bytes()).unwrap();
        assert!(matches!(message, HttpMessage::Request { opens_session: true, .. }));
    }

    #[test]
    fn notifications_and_answers_are_accepted_where_the_version_has_them() {
        let none = HttpHeaders::default();
        let read = |body: &str| read_post(&none, body.as_bytes());
        let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}"#;
        assert_eq!(read(cancelled).unwrap(), HttpMessage::Cancelled("\"1\"".to_owned()));
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(read(answer).unwrap(), HttpMessage::Accepted);
        assert_eq!(refused(&headers(MODERN_VERSION, "", ""), answer).0, -32600);
        assert_eq!(refused(&none, "[]").0, -32600);
        assert_eq!(refused(&none, " ").0, -32700);
    }

    #[test]
    fn only_an_unknown_method_of_the_modern_version_is_not_found() {
        let unknown = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}"#;
        assert_eq!([true, false].map(|modern| answer_status(unknown, modern)), [Some(404), Some(200)]);
        assert_eq!(answer_status(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, true), Some(200));
        assert_eq!(answer_status(br#"{"jsonrpc":"2.0","method":"m","params":{}}"#, true), None);
    }
}
