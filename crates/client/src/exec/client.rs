//! The exec client: it starts or connects to a server, and performs the handshake.

use std::sync::Arc;

use parlor_doors::exec::{ExecParams, InitializeParams, InitializeResponse, PROTOCOL_VERSION, method};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::ExecConnection;
use super::{ExecServerError, ExecServerLaunchCommand, ExecServerProcess, launch};
use crate::child::process::ChildStatus;

/// The default client name in the handshake.
pub(super) const CLIENT_NAME: &str = "parlor-client";

/// A connection to an exec server. Clones are handles on the same connection.
///
/// The connection ends when the last clone and the last [`ExecServerProcess`] of it are dropped. Then the server's input
/// closes, and the server ends its processes. A server that [`spawn`] started is killed if it does not exit within two
/// seconds, and at once if the runtime shuts down.
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
    connection: Arc<ExecConnection>,
    session: Option<Arc<str>>,
}

impl ExecServerClient {
    /// Starts a server and performs the handshake. Its stderr is this program's.
    pub async fn spawn(command: ExecServerLaunchCommand) -> Result<Self, ExecServerError> {
        Self::spawn_as(command, CLIENT_NAME).await
    }

    /// Like [`spawn`](Self::spawn), with a client name of the caller's choice.
    pub async fn spawn_as(
        command: ExecServerLaunchCommand,
        client_name: impl Into<String>,
    ) -> Result<Self, ExecServerError> {
        let server = launch::launch(command)?;
        let connection = ExecConnection::open(server.stdout, server.stdin, server.status, Some(server.end));
        Self::initialize(connection, client_name.into()).await
    }

    /// Performs the handshake with a server that another program started. `reader` is the server's output and `writer` its
    /// input; both are dropped when the connection ends.
    pub async fn connect(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
        client_name: impl Into<String>,
    ) -> Result<Self, ExecServerError> {
        let connection = ExecConnection::open(reader, writer, ChildStatus::UNKNOWN, None);
        Self::initialize(connection, client_name.into()).await
    }

    async fn initialize(connection: ExecConnection, client_name: String) -> Result<Self, ExecServerError> {
        let params = InitializeParams { client_name };
        let answer: InitializeResponse = connection.call(method::INITIALIZE, &params, None).await?;
        if answer.protocol_version != PROTOCOL_VERSION {
            return Err(ExecServerError::Version { offered: answer.protocol_version.into_owned() });
        }
        // The notification is queued before any other request can be, so the server never gets one too early.
        connection.notify(method::INITIALIZED, &serde_json::Map::new()).await?;
        Ok(Self::with_session(connection, None))
    }

    pub(super) fn with_session(connection: ExecConnection, session: Option<String>) -> Self {
        Self { connection: Arc::new(connection), session: session.map(Into::into) }
    }

    /// The id of the session, with which [`resume_websocket`](Self::resume_websocket) goes on when the connection is lost. `None`
    /// if the session ends with the connection.
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(super) fn connection(&self) -> &ExecConnection {
        &self.connection
    }

    pub(super) fn shared_connection(&self) -> &Arc<ExecConnection> {
        &self.connection
    }

    /// Starts a process and waits until the server has started it. The handle gets its output from the first byte.
    ///
    /// An id is in use until the server has reported the exit of its process, even if the handle was dropped; until then
    /// another start with that id fails as [`ExecServerError::DuplicateProcess`]. If the future is dropped, the process may
    /// have been started; then it runs on without a handle.
    pub async fn start_process(&self, params: ExecParams) -> Result<ExecServerProcess, ExecServerError> {
        ExecServerProcess::start(Arc::clone(&self.connection), &params).await
    }
}
