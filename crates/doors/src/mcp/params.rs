//! What the program tells a connection of this door.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use parlor_vocab::ToolInfo;
use serde_json::value::RawValue;

use super::encode;
use super::session_tools::session_tools;

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// One process for one client: `initialize` has to come first, unless a request names its version itself.
    Stdio,
    /// One machine for each request: it is over once the request is answered.
    Http,
}

/// The parameters of one connection.
#[derive(Clone, Debug)]
pub struct McpParams {
    /// How the client is connected.
    pub transport: McpTransport,
    /// The tools that clients may call.
    pub tools: Arc<McpTools>,
    /// The working folder of new sessions.
    pub folder: PathBuf,
    /// What a model should know about this server, beside its tools.
    pub instructions: String,
    /// Begins the keys of the inputs of this connection; no other connection has the same.
    pub key_prefix: String,
}

/// The list of tools, ready to be sent.
#[derive(Clone, Debug)]
pub struct McpTools {
    own: BTreeSet<String>,
    json: Box<RawValue>,
}

impl McpTools {
    /// The given tools of parlor, and those for sessions.
    pub fn new(own: &[ToolInfo]) -> Self {
        let sessions = session_tools();
        let listed: Vec<_> = sessions.iter().chain(own).map(encode::listed_tool).collect();
        let json = serde_json::value::to_raw_value(&listed).expect("a list of tools has string keys");
        Self { own: own.iter().map(|tool| tool.name.clone()).collect(), json }
    }

    /// Whether clients may call parlor's tool of this name.
    pub(super) fn has_own(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    pub(super) fn json(&self) -> &RawValue {
        &self.json
    }
}
