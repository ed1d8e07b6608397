//! Lines: how a request is written and an answer is read. No I/O.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The code of a line that the server could not read.
pub(super) const PARSE_ERROR: i64 = -32_700;
/// The code of a token that is wrong or missing.
pub(super) const UNAUTHORIZED: i64 = -32_001;

/// What stands for a code or message that is not there, as in other drivers.
const NO_CODE: i64 = -1;
const NO_MESSAGE: &str = "the server reports an error without a message";

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// Of the first one on each connection.
    Hello,
    /// Of a call.
    Call(u64),
}

impl Id {
    /// An id that no other call of this process has, whichever client makes it.
    ///
    /// Servers that attach repeated calls tell callers apart by name and process number, which two
    /// containers may share. So ids do not begin with 1 but anywhere; they stay exact as a double.
    pub(super) fn next() -> Self {
        static NEXT: LazyLock<AtomicU64> =
            LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish() >> 12));
        Self::Call(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn is(self, echoed: &RawValue) -> bool {
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

/// A request as a line, with its newline.
pub(super) fn request(id: Id, method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut line = parlor_doors::supex::request(&id, method, params);
    line.push(b'\n');
    line
}

/// An error as the server reports it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reported {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
    /// Whether it says which request it is about.
    pub(super) names_request: bool,
}

/// Reads the answer to the request `id`, or says what is wrong with it.
///
/// A result is an object. An `error` that is null is no error: some servers write one along with a
/// result. An error may lack its id, since a server that could not read a request does not know it.
pub(super) fn answer(line: &[u8], id: Id) -> Result<Result<Box<RawValue>, Reported>, String> {
    #[derive(Deserialize)]
    struct Reply<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
        #[serde(borrow, default)]
        error: Option<&'a RawValue>,
    }
    let text = std::str::from_utf8(line).map_err(|flaw| format!("its answer is not UTF-8: {flaw}"))?;
    if !is_object(text.trim_ascii_start()) {
        return Err(format!("its answer is not a JSON object: {text}"));
    }
    let reply: Reply<'_> = serde_json::from_str(text).map_err(|flaw| format!("its answer: {flaw}"))?;
    match (reply.id, reply.error) {
        (Some(echoed), _) if !id.is(echoed) => {
            return Err(format!("it answered request {echoed}, which was not asked"));
        }
        (None, None) => return Err("its answer has no id".to_owned()),
        (Some(_), _) | (None, Some(_)) => {}
    }
    match (reply.error, reply.result) {
        (Some(error), _) => Ok(Err(reported(error, reply.id.is_some())?)),
        (None, Some(result)) if is_object(result.get()) => Ok(Ok(result.to_owned())),
        (None, Some(result)) => Err(format!("its result is not an object: {result}")),
        (None, None) => Err("its answer has neither a result nor an error".to_owned()),
    }
}

fn reported(error: &RawValue, names_request: bool) -> Result<Reported, String> {
    let parsed: Value = serde_json::from_str(error.get()).map_err(|flaw| format!("its error: {flaw}"))?;
    let Value::Object(mut members) = parsed else {
        return Err(format!("its error is not an object: {error}"));
    };
    let code = members.get("code").and_then(Value::as_i64).unwrap_or(NO_CODE);
    let message = members.get("message").and_then(Value::as_str).unwrap_or(NO_MESSAGE).to_owned();
    let data = members.remove("data").unwrap_or(Value::Null);
    Ok(Reported { code, message, data, names_request })
}

fn is_object(text: &str) -> bool {
    text.starts_with('{')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(line: &str) -> Result<Result<String, Reported>, String> {
        let read = answer(line.as_bytes(), Id::Call(7))?;
        Ok(read.map(|result| result.get().to_owned()))
    }

    #[test]
    fn a_request_is_one_line_in_the_order_of_the_page() {
        let line = request(Id::Hello, "hello", &json!({"pid": 1}));
        assert_eq!(
            line,
            b"{\"jsonrpc\":\"2.0\",\"method\":\"hello\",\"params\":{\"pid\":1},\"id\":\"hello\"}\n"
        );
    }

    #[test]
    fn ids_differ_and_stay_exact_in_any_reader() {
        let (Id::Call(first), Id::Call(second)) = (Id::next(), Id::next()) else { panic!("calls") };
        assert_ne!(first, second);
        assert!(first < 1 << 53);
    }

    #[test]
    fn a_result_is_passed_on_as_it_is_written() {
        let big = r#"{"a":123456789012345678901234567890,"b":1.0}"#;
        assert_eq!(read(&format!(r#" {{"jsonrpc":"2.0","result":{big},"id":7}}"#)), Ok(Ok(big.to_owned())));
    }

    #[test]
    fn an_error_that_is_null_is_none() {
        assert_eq!(read(r#"{"error":null,"result":{},"id":7}"#), Ok(Ok("{}".to_owned())));
        assert!(read(r#"{"error":null,"id":7}"#).unwrap_err().contains("neither"));
    }

    #[test]
    fn an_error_may_lack_everything() {
        let nothing = |names_request| Reported {
            code: -1,
            message: NO_MESSAGE.to_owned(),
            data: Value::Null,
            names_request,
        };
        assert_eq!(read(r#"{"error":{},"id":7}"#), Ok(Err(nothing(true))));
        assert_eq!(read(r#"{"error":{"code":"x","message":5},"id":null}"#), Ok(Err(nothing(false))));
        let full = r#"{"error":{"code":-32000,"message":"bad","data":{"line":3}},"id":7}"#;
        let data = json!({"line": 3});
        let read_full = Reported { code: -32_000, message: "bad".to_owned(), data, names_request: true };
        assert_eq!(read(full), Ok(Err(read_full)));
    }

    #[test]
    fn what_is_no_answer_to_this_request_is_said_precisely() {
        for (line, said) in [
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
            assert!(error.contains(said), "{line}: {error}");
        }
        assert!(
            answer(b"{\"result\":{\"a\":\"\xff\"},\"id\":7}", Id::Call(7)).unwrap_err().contains("UTF-8")
        );
    }
}
