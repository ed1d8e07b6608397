//! The wire types that clients need too: the names of methods, the params and results of `hello`, and the error object.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The names of methods.
pub mod method {
    /// Introduces the client.
    pub const HELLO: &str = "hello";
    /// Calls a tool; bridge only.
    pub const TOOLS_CALL: &str = "tools/call";
    /// Lists tools; bridge only, and only if the door has a token.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Lists the resources of the model; bridge only.
    pub const RESOURCES_LIST: &str = "resources/list";
    /// Checks that the server answers.
    pub const PING: &str = "ping";
    /// Evaluates a line; console only.
    pub const EVAL: &str = "eval";
}

/// A feature that a client can name in `hello`: the reply then says whether a repeated request attaches to the running
/// call, and gives the client a nonce for its repeats.
pub const FEATURE_ATTACH: &str = "attach";

/// A feature that a client can name in `hello`: results and errors of evaluations then contain the printed text.
pub const FEATURE_OUTPUT: &str = "output";

/// Params of `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloParams {
    /// The name of the client program.
    pub name: String,
    /// The version of the client program.
    pub version: String,
    /// The agent that uses the client, such as `claude-code`.
    pub agent: String,
    /// The client's process id.
    pub pid: u64,
    /// The token, if the server requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The folder of the client's project. Tools may use files in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Extensions of the runtime's protocol that the client understands, such as [`FEATURE_ATTACH`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// The nonce from the answer to an earlier `hello`. Only together with [`FEATURE_ATTACH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// Result of `hello` on the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloResult {
    /// Always true.
    pub success: bool,
    /// Always `Client identified`.
    pub message: String,
    /// The server that answers.
    pub server: ServerInfo,
}

/// Result of `hello` on the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplHelloResult {
    /// Always true.
    pub success: bool,
    /// The name of the console session.
    pub session: String,
    /// The server that answers.
    pub server: ServerInfo,
}

/// The server, as `hello` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// `supex-runtime` or `supex-repl`.
    pub name: String,
    /// `RUNTIME_VERSION`.
    pub version: String,
    /// Whether a repeated request attaches to the running call. Only for clients that name [`FEATURE_ATTACH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<bool>,
    /// A name that changes with every start of the server. A server that was restarted knows no earlier call. Only
    /// together with `attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// A secret of this client. A request on another connection whose `hello` has the same nonce attaches, whatever became
    /// of the first connection. Only together with `attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// The error member of a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorObject {
    /// A JSON-RPC error code.
    pub code: i64,
    /// A text for people.
    pub message: String,
    /// Details, as an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// A reply, as a client reads it.
#[derive(Debug, Deserialize)]
pub struct Reply<'a> {
    /// The request's id, byte for byte as the client wrote it.
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    /// The result, an object. Missing if there is an error.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// The error. Missing if there is a result.
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
    fn a_hello_is_encoded_as_on_the_protocol_page() {
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
    fn replies_keep_the_raw_id() {
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
