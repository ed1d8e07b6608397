//! Encodes requests and decodes answers, one per line. No I/O.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The error code for a line that the server could not parse.
pub(super) const PARSE_ERROR: i64 = -32_700;
/// The error code for a token that is wrong or missing.
pub(super) const UNAUTHORIZED: i64 = -32_001;

/// The code and the message of an error that lacks them, as in other drivers.
const NO_CODE: i64 = -1;
const NO_MESSAGE: &str = "the server reports an error without a message";

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// The id of the first request on each connection.
    Hello,
    /// The id of a call.
    Call(u64),
}

impl Id {
    /// An id that is unique among all clients of this process.
    ///
    /// Servers that attach repeated calls tell callers apart by name and process id, which may be the same in two
    /// containers. So the first id is random. All ids stay exact as a double.
    pub(super) fn next() -> Self {
        static NEXT: LazyLock<AtomicU64> =
            LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish() >> 12));
        Self::Call(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn matches(self, echoed: &RawValue) -> bool {
        match self {
            Self::Hello => echoed.get() == "\"hello\"",
            Self::Call(number) => echoed.get().parse() == Ok(number),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Hello => serializer.serialize_str("hello"),
            Self::Call(number) => serializer.serialize_u64(*number),
        }
    }
}

/// Encodes a request as a line, with its newline.
pub(super) fn request(id: Id, method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut line = parlor_doors::supex::request(&id, method, params);
    line.push(b'\n');
    line
}

/// An error that the server reported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReportedError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
    /// Whether the answer has the id of the request.
    pub(super) names_request: bool,
}

/// Decodes the answer to the request `id`. The error says what is wrong with the line.
///
/// A result must be an object. An `error` that is null is no error, since some servers write one along with a result. An
/// error may lack its id, since a server that could not parse a request does not know its id.
pub(super) fn answer(line: &[u8], id: Id) -> Result<Result<Box<RawValue>, ReportedError>, String> {
    #[derive(Deserialize)]
    struct Reply<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
        #[serde(borrow, default)]
        error: Option<&'a RawValue>,
    }
    let text = std::str::from_utf8(line).map_err(|error| format!("its answer is not UTF-8: {error}"))?;
    if !is_object(text.trim_ascii_start()) {
        return Err(format!("its answer is not a JSON object: {text}"));
    }
    let reply: Reply<'_> = serde_json::from_str(text).map_err(|error| format!("its answer: {error}"))?;
    match (reply.id, reply.error) {
        (Some(echoed), _) if !id.matches(echoed) => {
            return Err(format!("it answered request {echoed}, which was not asked"));
        }
        (None, None) => return Err("its answer has no id".to_owned()),
        (Some(_), _) | (None, Some(_)) => {}
    }
    match (reply.error, reply.result) {
        (Some(error), _) => Ok(Err(decode_error(error, reply.id.is_some())?)),
        (None, Some(result)) if is_object(result.get()) => Ok(Ok(result.to_owned())),
        (None, Some(result)) => Err(format!("its result is not an object: {result}")),
        (None, None) => Err("its answer has neither a result nor an error".to_owned()),
    }
}

fn decode_error(error: &RawValue, names_request: bool) -> Result<ReportedError, String> {
    let parsed: Value =
        serde_json::from_str(error.get()).map_err(|invalid| format!("its error: {invalid}"))?;
    let Value::Object(mut members) = parsed else {
        return Err(format!("its error is not an object: {error}"));
    };
    let code = members.get("code").and_then(Value::as_i64).unwrap_or(NO_CODE);
    let message = members.get("message").and_then(Value::as_str).unwrap_or(NO_MESSAGE).to_owned();
    let data = members.remove("data").unwrap_or(Value::Null);
    Ok(ReportedError { code, message, data, names_request })
}

fn is_object(text: &str) -> bool {
    text.starts_with('{')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(line: &str) -> Result<Result<String, ReportedError>, String> {
        let read = answer(line.as_bytes(), Id::Call(7))?;
        Ok(read.map(|result| result.get().to_owned()))
    }

    #[test]
    fn a_request_is_one_line_with_its_members_in_the_documented_order() {
        let line = request(Id::Hello, "hello", &json!({"pid": 1}));
        assert_eq!(
            line,
            b"{\"jsonrpc\":\"2.0\",\"method\":\"hello\",\"params\":{\"pid\":1},\"id\":\"hello\"}\n"
        );
    }

    #[test]
    fn ids_are_unique_and_exact_as_a_double() {
        let (Id::Call(first), Id::Call(second)) = (Id::next(), Id::next()) else { panic!("calls") };
        assert_ne!(first, second);
        assert!(first < 1 << 53);
    }

    #[test]
    fn a_result_keeps_the_text_that_the_server_wrote() {
        let big = r#"{"a":123456789012345678901234567890,"b":1.0}"#;
        assert_eq!(read(&format!(r#" {{"jsonrpc":"2.0","result":{big},"id":7}}"#)), Ok(Ok(big.to_owned())));
    }

    #[test]
    fn a_null_error_is_no_error() {
        assert_eq!(read(r#"{"error":null,"result":{},"id":7}"#), Ok(Ok("{}".to_owned())));
        assert!(read(r#"{"error":null,"id":7}"#).unwrap_err().contains("neither"));
    }

    #[test]
    fn an_error_may_lack_all_members() {
        let empty = |names_request| ReportedError {
            code: -1,
            message: NO_MESSAGE.to_owned(),
            data: Value::Null,
            names_request,
        };
        assert_eq!(read(r#"{"error":{},"id":7}"#), Ok(Err(empty(true))));
        assert_eq!(read(r#"{"error":{"code":"x","message":5},"id":null}"#), Ok(Err(empty(false))));
        let full = r#"{"error":{"code":-32000,"message":"bad","data":{"line":3}},"id":7}"#;
        let data = json!({"line": 3});
        let read_full = ReportedError { code: -32_000, message: "bad".to_owned(), data, names_request: true };
        assert_eq!(read(full), Ok(Err(read_full)));
    }

    #[test]
    fn an_invalid_answer_is_described_precisely() {
        for (line, description) in [
            (r#"{"result":{},"id":8}"#, "answered request 8"),
            (r#"{"result":{},"id":"7"}"#, "answered request \"7\""),
            (r#"{"error":{},"id":8}"#, "answered request 8"),
            (r#"{"result":{}}"#, "no id"),
            (r#"{"result":{},"id":null}"#, "no id"),
            (r#"{"result":null,"id":7}"#, "neither"),
            (r#"{"result":"2","id":7}"#, "not an object: \"2\""),
            (r#"{"result":[],"id":7}"#, "not an object"),
            (r#"{"error":"bad","id":7}"#, "error is not an object"),
            (r#"[7,{}]"#, "not a JSON object"),
            ("", "not a JSON object"),
            (r#"{"result":{},"id":7} {}"#, "trailing characters"),
            (r#"{"result":{"#, "EOF"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(description), "{line}: {error}");
        }
        assert!(
            answer(b"{\"result\":{\"a\":\"\xff\"},\"id\":7}", Id::Call(7)).unwrap_err().contains("UTF-8")
        );
    }
}
