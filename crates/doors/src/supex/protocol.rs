//! The wire types that a client needs as well.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The names of methods.
pub mod method {
    /// Introduces the client.
    pub const HELLO: &str = "hello";
    /// Calls a tool; bridge only.
    pub const TOOLS_CALL: &str = "tools/call";
    /// Lists tools; bridge only, and only where a token is asked for.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Lists what is in the model; bridge only.
    pub const RESOURCES_LIST: &str = "resources/list";
    /// Asks whether the server is there.
    pub const PING: &str = "ping";
    /// Evaluates a line; console only.
    pub const EVAL: &str = "eval";
}

/// A feature that a client can name in its `hello`: the reply says whether a repeated request attaches
/// to the call that runs.
pub const FEATURE_ATTACH: &str = "attach";

/// A feature that a client can name in its `hello`: results and errors of evaluations carry what was
/// printed.
pub const FEATURE_OUTPUT: &str = "output";

/// Params of `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloParams {
    /// The client program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whom it works for.
    pub agent: String,
    /// Its process.
    pub pid: u64,
    /// The secret, where the server has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The project's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// What the client understands beyond the protocol of the runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// Result of `hello` on the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloResult {
    /// Always true.
    pub success: bool,
    /// `Client identified`.
    pub message: String,
    /// Who answers.
    pub server: ServerInfo,
}

/// Result of `hello` on the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplHelloResult {
    /// Always true.
    pub success: bool,
    /// The name of the session.
    pub session: String,
    /// Who answers.
    pub server: ServerInfo,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// `supex-runtime` or `supex-repl`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether a repeated request attaches to the call that runs. Only said to clients that name
    /// [`FEATURE_ATTACH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<bool>,
    /// Which one of its kind it is: another after each start, and then it knows of no call from before. Only
    /// said along with `attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// The error member of a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorObject {
    /// Which kind of error.
    pub code: i64,
    /// What to tell a person.
    pub message: String,
    /// More about it, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// A reply, as a client reads it.
#[derive(Debug, Deserialize)]
pub struct Reply<'a> {
    /// The request's id, as it was written.
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    /// The result, an object.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// The error, in the place of a result.
    #[serde(default)]
    pub error: Option<ErrorObject>,
}

/// Encodes a request, without the newline after it.
pub fn request(id: &impl Serialize, method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Request<'a, I, P> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a P,
        id: &'a I,
    }
    serde_json::to_vec(&Request { jsonrpc: "2.0", method, params, id })
        .expect("wire types have string keys and no failing serializer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_written_as_the_protocol_page_shows_it() {
        let params = HelloParams {
            name: "supex-driver".to_owned(),
            version: "0.2.0".to_owned(),
            agent: "claude-code".to_owned(),
            pid: 12345,
            ..HelloParams::default()
        };
        let line = request(&1, method::HELLO, &params);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            r#"{"jsonrpc":"2.0","method":"hello","params":{"name":"supex-driver","version":"0.2.0","agent":"claude-code","pid":12345},"id":1}"#
        );
    }

    #[test]
    fn replies_are_read_with_their_id_as_it_was_written() {
        let reply: Reply<'_> =
            serde_json::from_str(r#"{"jsonrpc":"2.0","result":{"a":1},"id":1.0}"#).unwrap();
        assert_eq!((reply.id.unwrap().get(), reply.result.unwrap().get()), ("1.0", r#"{"a":1}"#));
        let reply: Reply<'_> =
            serde_json::from_str(r#"{"error":{"code":-32000,"message":"m","data":{"line":3}},"id":null}"#)
                .unwrap();
        let error = reply.error.unwrap();
        assert_eq!((error.code, error.data.unwrap().get()), (-32000, r#"{"line":3}"#));
    }
}
