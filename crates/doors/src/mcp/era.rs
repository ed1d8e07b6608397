//! The versions of the protocol, and what a request says about itself in `_meta`.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::code::{self, Error};
use crate::jsonrpc::RequestId;

/// The versions that a client opens with `initialize`, the newest last.
pub const LEGACY_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The version that a request names in its `_meta`.
pub const MODERN_VERSION: &str = "2026-07-28";

/// All versions that this door serves, the newest first.
pub(super) fn supported_versions() -> Vec<&'static str> {
    std::iter::once(MODERN_VERSION).chain(LEGACY_VERSIONS.into_iter().rev()).collect()
}

/// The version that answers `initialize`: the client's own, or else the newest that has `initialize`.
pub(super) fn legacy_version(requested: &str) -> &'static str {
    let [.., newest] = LEGACY_VERSIONS;
    LEGACY_VERSIONS.into_iter().find(|version| *version == requested).unwrap_or(newest)
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Legacy,
    Modern,
}

/// What a request says about itself.
#[derive(Debug)]
pub(super) struct RequestMeta {
    pub(super) era: Era,
    /// The version that a modern request names.
    pub(super) version: Option<String>,
    /// The name that a modern client gives itself.
    pub(super) client: Option<String>,
    /// The client asks for reports of progress under this token.
    pub(super) progress_token: Option<RequestId>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object as `_meta`")]
struct Meta {
    #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Value>,
    #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<Value>,
    #[serde(default, rename = "io.modelcontextprotocol/clientInfo")]
    client_info: Option<Value>,
    #[serde(default, rename = "progressToken")]
    progress_token: Option<Value>,
}

/// The version that a request names in `_meta`, whatever it is.
pub(super) fn named_version(params: Option<&RawValue>) -> Option<String> {
    let Params { meta } = serde_json::from_str(params?.get()).ok()?;
    let meta: Meta = serde_json::from_str(meta?.get()).ok()?;
    meta.version?.as_str().map(str::to_owned)
}

impl RequestMeta {
    /// Reads `_meta` of the parameters of `method`. Fails if the request is neither of one era nor of the other.
    pub(super) fn read(method: &str, params: Option<&RawValue>) -> Result<Self, Error> {
        let invalid = |error: serde_json::Error| code::invalid_params(&error.to_string());
        let text = params.map_or("{}", RawValue::get);
        if !text.starts_with('{') {
            return Err(code::invalid_params("`params` must be an object"));
        }
        let Params { meta } = serde_json::from_str(text).map_err(invalid)?;
        let meta: Meta = match meta {
            Some(meta) => serde_json::from_str(meta.get()).map_err(invalid)?,
            None => Meta::default(),
        };
        let progress_token =
            match meta.progress_token {
                None => None,
                Some(token) => Some(serde_json::from_value(token).map_err(|_| {
                    code::invalid_params("`_meta.progressToken` must be a string or an integer")
                })?),
            };
        let is_modern = meta.version.is_some() || meta.capabilities.is_some() || meta.client_info.is_some();
        let legacy = Self { era: Era::Legacy, version: None, client: None, progress_token };
        match method {
            "server/discover" => {}
            _ if !is_modern => return Ok(legacy),
            _ => {}
        }
        let missing =
            |name: &str| code::invalid_params(&format!("`_meta` lacks `io.modelcontextprotocol/{name}`"));
        let Some(Value::String(version)) = meta.version else { return Err(missing("protocolVersion")) };
        if version != MODERN_VERSION {
            return Err(code::unsupported_version(&version));
        }
        if !meta.capabilities.is_some_and(|capabilities| capabilities.is_object()) {
            return Err(missing("clientCapabilities"));
        }
        let client = meta.client_info.as_ref().and_then(|info| info["name"].as_str()).map(code::quoted);
        Ok(Self { era: Era::Modern, version: Some(version), client, ..legacy })
    }
}
