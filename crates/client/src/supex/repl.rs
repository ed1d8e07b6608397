//! The client of a console: it sends code and returns what a terminal would show.

use std::fmt;

use parlor_doors::supex::method;
use serde::Deserialize;
use serde_json::json;

use super::channel::{Channel, Repeat};
use super::dial::{Dial, Tcp};
use super::driver::{decode, hello};
use super::{DriverError, Pong, ReplOutput, SupexSettings};

/// A client of a console. It has one connection, as a [`Driver`](super::Driver) has.
///
/// Consoles do not attach repeated calls, so code is sent again only if the server cannot have received all of it.
///
/// ```no_run
/// use parlor_client::supex::{DriverError, ReplClient, SupexSettings};
///
/// # async fn example() -> Result<(), DriverError> {
/// let console = ReplClient::new(SupexSettings::repl());
/// assert_eq!(console.eval("puts 'hi'; 1 + 1").await?.output, "hi\n=> 2\n");
/// # Ok(())
/// # }
/// ```
pub struct ReplClient {
    channel: Channel,
}

impl ReplClient {
    /// A client of the console at the address in the settings. Does not connect yet.
    pub fn new(settings: SupexSettings) -> Self {
        let tcp = Tcp::new(&settings);
        Self::over(tcp.to_string(), Box::new(tcp), settings)
    }

    /// A client of a console that is reached in another way. Errors name the console by `address`.
    pub fn over(address: impl Into<String>, dial: Box<dyn Dial>, settings: SupexSettings) -> Self {
        let hello = hello(&settings, &[]);
        Self { channel: Channel::new(dial, address.into(), settings, hello) }
    }

    /// The address of the console, as errors name it.
    pub fn address(&self) -> &str {
        self.channel.address()
    }

    /// The name that the server gave to the current connection. A new connection has a new name.
    pub async fn session(&self) -> Result<String, DriverError> {
        #[derive(Deserialize)]
        struct HelloAnswer {
            session: String,
        }
        let (_, answer) = self.channel.hello_answer().await?;
        let HelloAnswer { session } = decode(self.address(), "hello", &answer)?;
        Ok(session)
    }

    /// Runs Ruby. An exception is part of the output, not an error.
    pub async fn eval(&self, code: &str) -> Result<ReplOutput, DriverError> {
        let answer = self.channel.call(method::EVAL, &json!({"code": code}), Repeat::RunsAgain).await?;
        decode(self.address(), "eval", &answer)
    }

    /// Checks whether the console answers. Older servers do not know this method and answer with an error.
    pub async fn ping(&self) -> Result<Pong, DriverError> {
        let answer = self.channel.call(method::PING, &json!({}), Repeat::Harmless).await?;
        decode(self.address(), "ping", &answer)
    }
}

impl fmt::Debug for ReplClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplClient").field("address", &self.address()).finish_non_exhaustive()
    }
}
