//! Routes the client's frames to their methods.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::code::{self, Error};
use super::envelope::Envelope;
use super::era::{Era, RequestMeta, legacy_version, supported_versions};
use super::machine::McpMachine;
use super::params::McpTransport;
use super::{MAX_SUBSCRIPTIONS, encode};
use crate::jsonrpc::RequestId;

/// The methods that a client can call, in either era.
pub const METHODS: [&str; 8] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "subscriptions/listen",
    "notifications/initialized",
    "notifications/cancelled",
];

impl McpMachine {
    pub(super) fn on_frame(&mut self, frame: &[u8]) {
        match Envelope::decode(frame) {
            Ok(None | Some(Envelope::Response)) => {}
            Ok(Some(Envelope::Request { id, method, params })) => {
                if let Err(error) = self.on_request(&id, &method, params) {
                    self.send_error(Some(&id), &error);
                }
            }
            Ok(Some(Envelope::Notification { method, params })) => {
                if let Some(id) = cancelled_request(&method, params) {
                    self.cancel(&id);
                }
            }
            Err(malformed) => {
                let (id, error) = *malformed;
                self.send_error(id.as_ref(), &error);
            }
        }
    }

    fn on_request(&mut self, id: &RequestId, method: &str, params: Option<&RawValue>) -> Result<(), Error> {
        let RequestMeta { era, client, progress_token, .. } = RequestMeta::read(method, params)?;
        let is_open = self.is_initialized || self.params.transport == McpTransport::Http;
        match (method, era) {
            ("initialize", Era::Legacy) => return self.initialize(id, params),
            ("ping", Era::Legacy) => {
                self.send_answer(encode::result(id, era, Map::new()));
                return Ok(());
            }
            ("tools/list", Era::Legacy) | ("tools/call", Era::Legacy) if !is_open => {
                return Err(code::not_opened(method));
            }
            ("server/discover", Era::Modern) => self.discover(id),
            ("tools/list", _) => self.list_tools(id, era, params)?,
            ("tools/call", _) => {
                let key = self.open_request(id, era, client, progress_token)?;
                if let Err(error) = self.call(key, params) {
                    self.refuse(key, &error);
                }
            }
            ("subscriptions/listen", Era::Modern) => self.listen(id, params)?,
            _ => return Err(code::method_not_found(method)),
        }
        Ok(())
    }

    fn initialize(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            protocol_version: String,
            #[serde(default)]
            client_info: Value,
        }
        let params: Params = decode(params)?;
        self.is_initialized = true;
        self.client = params.client_info["name"].as_str().map(code::quoted);
        let mut result = Map::new();
        result.insert("protocolVersion".to_owned(), legacy_version(&params.protocol_version).into());
        result.insert("capabilities".to_owned(), capabilities());
        result.insert("serverInfo".to_owned(), encode::server_info());
        result.insert("instructions".to_owned(), self.params.instructions.as_str().into());
        self.send_answer(encode::result(id, Era::Legacy, result));
        Ok(())
    }

    fn discover(&mut self, id: &RequestId) {
        let mut result = Map::new();
        result.insert("supportedVersions".to_owned(), json!(supported_versions()));
        result.insert("capabilities".to_owned(), capabilities());
        result.insert("instructions".to_owned(), self.params.instructions.as_str().into());
        result.extend(encode::cacheable());
        self.send_answer(encode::result(id, Era::Modern, result));
    }

    fn list_tools(&mut self, id: &RequestId, era: Era, params: Option<&RawValue>) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default)]
            cursor: Option<String>,
        }
        if decode::<Params>(params)?.cursor.is_some() {
            return Err(code::invalid_params("the list has one page, so there is no `cursor`"));
        }
        let frame = encode::tool_list(id, era, self.params.tools.json());
        self.send_answer(frame);
        Ok(())
    }

    /// Opens a subscription. The list of tools never changes while the program runs, so nothing is ever sent on it.
    fn listen(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(rename = "notifications")]
            _notifications: Map<String, Value>,
        }
        decode::<Params>(params)?;
        if self.open.values().filter(|open| open.is_subscription).count() >= MAX_SUBSCRIPTIONS {
            return Err(code::too_many_subscriptions());
        }
        let key = self.open_request(id, Era::Modern, None, None)?;
        if let Some(open) = self.open.get_mut(&key) {
            open.is_subscription = true;
        }
        let meta = json!({encode::SUBSCRIPTION_ID: id});
        let params = json!({"notifications": {}, "_meta": meta});
        self.send(encode::notification("notifications/subscriptions/acknowledged", &params));
        Ok(())
    }
}

/// What this door offers. The list of tools does not change while the program runs.
fn capabilities() -> Value {
    json!({"tools": {}})
}

/// The request that a notification cancels.
pub(super) fn cancelled_request(method: &str, params: Option<&RawValue>) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: RequestId,
    }
    let params = params.filter(|_| method == "notifications/cancelled")?;
    serde_json::from_str::<Params>(params.get()).ok().map(|params| params.request_id)
}

/// Decodes the parameters of a method.
pub(super) fn decode<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, Error> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| code::invalid_params(&error.to_string()))
}
