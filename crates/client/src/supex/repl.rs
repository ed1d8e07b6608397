//! A console: code goes in, and what a terminal would show comes back.

use std::fmt;

use parlor_doors::supex::method;
use serde::Deserialize;
use serde_json::json;

use super::channel::{Channel, Repeat};
use super::dial::{Dial, Tcp};
use super::driver::{decode, hello};
use super::{DriverError, Pong, ReplOutput, SupexSettings};

/// A client of a console. One connection, as with [`Driver`](super::Driver).
///
/// Consoles do not attach repeated calls, so code is sent again only if the server cannot have
/// received all of it.
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
    /// A client of the console at the address of the settings. Nothing is opened yet.
    pub fn new(settings: SupexSettings) -> Self {
        let tcp = Tcp { host: settings.host.clone(), port: settings.port };
        Self::over(tcp.to_string(), Box::new(tcp), settings)
    }

    /// A client of a console that is reached in another way. `address` is what errors call it.
    pub fn over(address: impl Into<String>, dial: Box<dyn Dial>, settings: SupexSettings) -> Self {
        let hello = hello(&settings, &[]);
        Self { channel: Channel::new(dial, address.into(), settings, hello) }
    }

    /// Where the console is.
    pub fn address(&self) -> &str {
        self.channel.address()
    }

    /// The name that the server gave to this connection. Another connection has another one.
    pub async fn session(&self) -> Result<String, DriverError> {
        #[derive(Deserialize)]
        struct Welcome {
            session: String,
        }
        let (_, welcome) = self.channel.welcome().await?;
        let Welcome { session } = decode(self.address(), "hello", &welcome)?;
        Ok(session)
    }

    /// Runs Ruby. An exception is part of the output and no error.
    pub async fn eval(&self, code: &str) -> Result<ReplOutput, DriverError> {
        let answer = self.channel.call(method::EVAL, &json!({"code": code}), Repeat::RunsAgain).await?;
        decode(self.address(), "eval", &answer)
    }

    /// Asks whether the console answers. Older servers do not know how.
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
