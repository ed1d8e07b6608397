//! The driver of a bridge: it says `hello`, and calls tools by name, the common ones by typed methods.

use std::fmt;

use parlor_doors::supex::{FEATURE_ATTACH, HelloParams, method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::channel::{Channel, Repeat};
use super::dial::{Dial, Tcp};
use super::settings::Identity;
use super::{DriverError, FileEvaluation, Pong, SupexAnswer, SupexServerInfo, SupexSettings};

/// The tools that only read, so that calling one twice does no harm. A call of any other tool is repeated only if it cannot
/// run twice.
pub const READING_TOOLS: [&str; 8] = [
    "ping",
    "console_capture_status",
    "get_model_info",
    "list_entities",
    "get_selection",
    "get_layers",
    "get_materials",
    "get_camera_info",
];

/// A driver of a bridge. It has one connection, which it opens for the first call.
///
/// Calls may be made from several tasks at once; they take turns. At most
/// [`MAX_WAITING_CALLS`](super::MAX_WAITING_CALLS) may run or wait.
///
/// Needs a tokio runtime with I/O and time enabled.
///
/// ```no_run
/// use parlor_client::supex::{Driver, DriverError, SupexSettings};
///
/// # async fn example() -> Result<(), DriverError> {
/// let driver = Driver::new(SupexSettings::bridge());
/// assert_eq!(driver.eval("1 + 1").await?, "2");
/// match driver.eval("raise 'no'").await {
///     Err(DriverError::Remote { message, .. }) => assert_eq!(message, "Ruby evaluation error: no"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Driver {
    channel: Channel,
}

impl Driver {
    /// A driver of the bridge at the address in the settings. Does not connect yet.
    pub fn new(settings: SupexSettings) -> Self {
        let tcp = Tcp::new(&settings);
        Self::over(tcp.to_string(), Box::new(tcp), settings)
    }

    /// A driver of a bridge that is reached in another way, such as a tunnel. Errors name the bridge by `address`; the
    /// address in the settings is not used.
    pub fn over(address: impl Into<String>, dial: Box<dyn Dial>, settings: SupexSettings) -> Self {
        let hello = hello(&settings, &[FEATURE_ATTACH]);
        Self { channel: Channel::new(dial, address.into(), settings, hello) }
    }

    /// The address of the bridge, as errors name it.
    pub fn address(&self) -> &str {
        self.channel.address()
    }

    /// What the bridge says about itself. Connects if there is no usable connection.
    pub async fn server(&self) -> Result<SupexServerInfo, DriverError> {
        self.channel.hello_answer().await.map(|(server, _)| server)
    }

    /// Checks whether the bridge answers. A bridge answers this also while it runs code.
    pub async fn ping(&self) -> Result<Pong, DriverError> {
        self.typed("ping", &json!({})).await
    }

    /// Runs Ruby and returns the value of its last expression, by `to_s`, without what the code prints.
    pub async fn eval(&self, code: &str) -> Result<String, DriverError> {
        #[derive(serde::Deserialize)]
        struct Evaluation {
            result: String,
        }
        let Evaluation { result } = self.typed("eval_ruby", &json!({"code": code})).await?;
        Ok(result)
    }

    /// Runs a Ruby file that the server can read. Pass an absolute path, because the server's working folder is another.
    pub async fn eval_file(&self, path: &str) -> Result<FileEvaluation, DriverError> {
        self.typed("eval_ruby_file", &json!({"file_path": path})).await
    }

    /// Calls a tool. `arguments` must serialize to a JSON object.
    ///
    /// Some tools report failures in the result, which is `Ok` here; see [`SupexAnswer::failure`].
    pub async fn call(&self, tool: &str, arguments: &impl Serialize) -> Result<SupexAnswer, DriverError> {
        #[derive(Serialize)]
        struct Call<'a> {
            name: &'a str,
            arguments: Box<RawValue>,
        }
        let arguments = to_raw_value(arguments).map_err(|error| DriverError::Arguments(error.to_string()))?;
        let repeat = if READING_TOOLS.contains(&tool) { Repeat::Harmless } else { Repeat::RunsAgain };
        self.channel.call(method::TOOLS_CALL, &Call { name: tool, arguments }, repeat).await
    }

    async fn typed<T: DeserializeOwned>(
        &self,
        tool: &str,
        arguments: &impl Serialize,
    ) -> Result<T, DriverError> {
        let answer = self.call(tool, arguments).await?;
        if let Some(message) = answer.failure() {
            return Err(DriverError::Failed { tool: tool.to_owned(), message });
        }
        decode(self.address(), tool, &answer)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// The params of `hello`, which a client sends first on each connection.
///
/// `features` are extensions of the protocol that the client asks for. Servers ignore those they do not know.
pub(super) fn hello(settings: &SupexSettings, features: &[&str]) -> HelloParams {
    let Identity { name, version, agent, pid } = settings.identity.clone();
    HelloParams {
        name,
        version,
        agent,
        pid: pid.into(),
        token: settings.token.as_ref().map(|token| token.reveal().to_owned()),
        workspace: None,
        features: features.iter().map(|&feature| feature.to_owned()).collect(),
        nonce: None,
    }
}

pub(super) fn decode<T: DeserializeOwned>(
    address: &str,
    what: &str,
    answer: &SupexAnswer,
) -> Result<T, DriverError> {
    answer.decode().map_err(|error| DriverError::protocol(address, &format!("result of `{what}`: {error}")))
}
