//! The client: from a program or a transport to a connection that has shaken hands.

use std::sync::Arc;

use parlor_doors::exec::{ExecParams, InitializeParams, InitializeResponse, PROTOCOL_VERSION, method};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::{ExecServerError, ExecServerLaunchCommand, ExecServerProcess, launch};
use crate::child::Vitals;

/// What a server is told of who is calling, if nothing else is said.
const CLIENT_NAME: &str = "parlor-client";

/// A connection to an exec server. Clones are handles on the same connection.
///
/// The connection ends when the last clone and the last [`ExecServerProcess`] of it are gone. Then
/// the server's input closes, upon which it ends its processes; a server that [`spawn`] started and
/// that does not exit within two seconds is killed. If the runtime shuts down, it is killed at once.
///
/// Needs a tokio runtime with I/O and time enabled.
///
/// ```no_run
/// use parlor_client::exec::{ExecParams, ExecServerClient, ExecServerError, ExecServerLaunchCommand};
///
/// # async fn example() -> Result<(), ExecServerError> {
/// let client = ExecServerClient::spawn(ExecServerLaunchCommand::new("codex-exec-server")).await?;
/// let process = client.start_process(ExecParams::new("greet", ["/bin/echo", "hello"], "/")).await?;
/// let finished = process.output().await?;
/// assert_eq!((finished.stdout.as_slice(), finished.exit_code), (&b"hello\n"[..], 0));
/// # Ok(())
/// # }
/// ```
///
/// [`spawn`]: Self::spawn
#[derive(Clone, Debug)]
pub struct ExecServerClient {
    connection: Arc<Connection>,
}

impl ExecServerClient {
    /// Starts a server and shakes hands with it. Its stderr is this program's.
    pub async fn spawn(command: ExecServerLaunchCommand) -> Result<Self, ExecServerError> {
        Self::spawn_as(command, CLIENT_NAME).await
    }

    /// [`spawn`](Self::spawn), under a name of the caller's choice.
    pub async fn spawn_as(
        command: ExecServerLaunchCommand,
        client_name: impl Into<String>,
    ) -> Result<Self, ExecServerError> {
        let server = launch::launch(command)?;
        let connection = Connection::open(server.stdout, server.stdin, server.vitals, Some(server.in_use));
        Self::shake_hands(connection, client_name.into()).await
    }

    /// Shakes hands with a server that somebody else started. `reader` carries what the server
    /// says, `writer` what it hears; both are dropped when the connection ends.
    pub async fn connect(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
        client_name: impl Into<String>,
    ) -> Result<Self, ExecServerError> {
        let connection = Connection::open(reader, writer, Vitals::UNKNOWN, None);
        Self::shake_hands(connection, client_name.into()).await
    }

    async fn shake_hands(connection: Connection, client_name: String) -> Result<Self, ExecServerError> {
        let greeting = InitializeParams { client_name };
        let answer: InitializeResponse = connection.call(method::INITIALIZE, &greeting, None).await?;
        if answer.protocol_version != PROTOCOL_VERSION {
            return Err(ExecServerError::Version { offered: answer.protocol_version.into_owned() });
        }
        // Queued before any request can be, so the server never sees one too early.
        connection.notify(method::INITIALIZED, &serde_json::Map::new()).await?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Starts a process and waits until the server has started it. Its output is kept from the first
    /// byte.
    ///
    /// An id is in use until the server has reported the exit of its process, even if the handle
    /// was dropped; until then it is refused as [`ExecServerError::DuplicateProcess`]. If the future is
    /// dropped the process may have been started: it runs on, without a handle.
    pub async fn start_process(&self, params: ExecParams) -> Result<ExecServerProcess, ExecServerError> {
        ExecServerProcess::start(Arc::clone(&self.connection), &params).await
    }
}
