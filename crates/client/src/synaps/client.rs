//! The synaps client: it starts or connects to a child, waits until the child is ready, and sends commands.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parlor_doors::synaps::{RPC_PROTOCOL_VERSION, RpcAttachment, RpcCommand};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::SynapsConnection;
use super::handler::Ready;
use super::launch::{self, EXIT_WAIT, READY_WAIT};
use super::{SynapsError, SynapsLaunch, SynapsModel, SynapsState, SynapsStats, SynapsTool, SynapsTurn};
use crate::child::process::ChildStatus;

/// A conversation with a child. Clones are handles on the same child.
///
/// The connection ends when the last clone and the last [`SynapsTurn`] of it are dropped. Then the child's input closes. A
/// child that [`spawn`] started is killed if it does not exit within two seconds, and at once if the runtime shuts down.
///
/// Needs a tokio runtime with I/O and time enabled.
///
/// ```no_run
/// use parlor_client::synaps::{AssistantEvent, SynapsClient, SynapsError, SynapsLaunch, TurnEvent, TurnOutcome};
///
/// # async fn example() -> Result<(), SynapsError> {
/// let client = SynapsClient::spawn(SynapsLaunch::new("synaps")).await?;
/// let mut turn = client.prompt("/say hello").await?;
/// let mut text = String::new();
/// while let Some(event) = turn.next_event().await? {
///     if let TurnEvent::Assistant(AssistantEvent::TextDelta { delta }) = event {
///         text.push_str(&delta);
///     }
/// }
/// assert_eq!((text.as_str(), turn.end().await?.outcome), ("hello", TurnOutcome::Completed));
/// client.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// [`spawn`]: Self::spawn
#[derive(Clone, Debug)]
pub struct SynapsClient {
    connection: Arc<SynapsConnection>,
    ready: Arc<Ready>,
    exit_wait: Duration,
}

impl SynapsClient {
    /// Starts a child and waits until it is ready. Its stderr is this program's.
    pub async fn spawn(launch: SynapsLaunch) -> Result<Self, SynapsError> {
        let child = launch::launch(&launch)?;
        let (connection, ready) =
            SynapsConnection::open(child.stdout, child.stdin, child.status, Some(child.end));
        Self::wait_until_ready(connection, ready, launch.ready_wait, launch.exit_wait).await
    }

    /// Connects to a child that another program started, and waits until it is ready. `reader` is the child's output and
    /// `writer` its input; both are dropped when the connection ends.
    pub async fn connect(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
    ) -> Result<Self, SynapsError> {
        let (connection, ready) = SynapsConnection::open(reader, writer, ChildStatus::UNKNOWN, None);
        Self::wait_until_ready(connection, ready, READY_WAIT, EXIT_WAIT).await
    }

    async fn wait_until_ready(
        connection: SynapsConnection,
        ready: oneshot::Receiver<Ready>,
        ready_wait: Duration,
        exit_wait: Duration,
    ) -> Result<Self, SynapsError> {
        let error = match timeout(ready_wait, ready).await {
            Ok(Ok(ready)) if ready.protocol_version == RPC_PROTOCOL_VERSION => {
                let (connection, ready) = (Arc::new(connection), Arc::new(ready));
                return Ok(Self { connection, ready, exit_wait });
            }
            Ok(Ok(ready)) => SynapsError::Version { offered: ready.protocol_version },
            Ok(Err(_)) => connection.end_reason(),
            Err(_) => SynapsError::NotReady { limit: ready_wait },
        };
        connection.kill().await;
        Err(error)
    }

    /// The session that the child began with. [`SynapsLaunch::resume`] takes it.
    pub fn session_id(&self) -> &str {
        &self.ready.session_id
    }

    /// The model that the child began with.
    pub fn model(&self) -> &str {
        &self.ready.model
    }

    /// Begins a turn.
    ///
    /// A child runs one turn at a time. If one is running, the child refuses this one, and the handle returns the error.
    pub async fn prompt(&self, message: impl Into<String>) -> Result<SynapsTurn, SynapsError> {
        self.prompt_with(message, Vec::new()).await
    }

    /// Begins a turn with files, which the child reads itself.
    pub async fn prompt_with(
        &self,
        message: impl Into<String>,
        attachments: Vec<RpcAttachment>,
    ) -> Result<SynapsTurn, SynapsError> {
        let message = message.into();
        self.begin(|id| RpcCommand::Prompt { id, message, attachments, steer: false }).await
    }

    /// Begins another turn with the command `follow_up`, which children handle like [`prompt`](Self::prompt).
    pub async fn follow_up(&self, message: impl Into<String>) -> Result<SynapsTurn, SynapsError> {
        let message = message.into();
        self.begin(|id| RpcCommand::FollowUp { id, message }).await
    }

    async fn begin(&self, command: impl FnOnce(String) -> RpcCommand) -> Result<SynapsTurn, SynapsError> {
        let turn = self.connection.begin_turn(command).await?;
        Ok(SynapsTurn::new(Arc::clone(&self.connection), turn))
    }

    /// Ends the running turn, if there is one, and waits until it has ended.
    pub async fn abort(&self) -> Result<(), SynapsError> {
        self.connection.abort().await
    }

    /// Replaces the history with a summary, and returns the summary.
    pub async fn compact(&self) -> Result<String, SynapsError> {
        #[derive(Deserialize)]
        struct Compacted {
            summary: String,
        }
        let Compacted { summary } = self.connection.call(|id| RpcCommand::Compact { id }).await?;
        Ok(summary)
    }

    /// Begins a new conversation, and returns its session.
    pub async fn new_session(&self) -> Result<String, SynapsError> {
        #[derive(Deserialize)]
        struct NewSession {
            session_id: String,
        }
        let NewSession { session_id } = self.connection.call(|id| RpcCommand::NewSession { id }).await?;
        Ok(session_id)
    }

    /// The history, in the form in which models get it.
    pub async fn messages(&self) -> Result<Vec<Value>, SynapsError> {
        #[derive(Deserialize)]
        struct History {
            messages: Vec<Value>,
        }
        let History { messages } = self.connection.call(|id| RpcCommand::GetMessages { id }).await?;
        Ok(messages)
    }

    /// Uses another model from the next turn on, and returns its id as the child has it.
    pub async fn set_model(&self, model: impl Into<String>) -> Result<String, SynapsError> {
        #[derive(Deserialize)]
        struct Chosen {
            model: String,
        }
        let model = model.into();
        let Chosen { model } = self.connection.call(|id| RpcCommand::SetModel { id, model }).await?;
        Ok(model)
    }

    /// The models that [`set_model`](Self::set_model) accepts.
    pub async fn available_models(&self) -> Result<Vec<SynapsModel>, SynapsError> {
        #[derive(Deserialize)]
        struct Models {
            models: Vec<SynapsModel>,
        }
        let Models { models } = self.connection.call(|id| RpcCommand::GetAvailableModels { id }).await?;
        Ok(models)
    }

    /// The tokens and the cost of the conversation so far.
    pub async fn stats(&self) -> Result<SynapsStats, SynapsError> {
        self.connection.call(|id| RpcCommand::GetSessionStats { id }).await
    }

    /// The state of the conversation. Children answer this while a turn is running, too.
    pub async fn state(&self) -> Result<SynapsState, SynapsError> {
        self.connection.call(|id| RpcCommand::GetState { id }).await
    }

    /// The tools that the agent can use.
    pub async fn tools(&self) -> Result<Vec<SynapsTool>, SynapsError> {
        #[derive(Deserialize)]
        struct Tools {
            tools: Vec<SynapsTool>,
        }
        let Tools { tools } = self.connection.call(|id| RpcCommand::ToolsList { id: Some(id) }).await?;
        Ok(tools)
    }

    /// Ends the child, and returns its exit status if this client started it.
    ///
    /// The child may finish a running turn first. A child that runs on for longer than [`SynapsLaunch::exit_wait`] gets
    /// SIGTERM, and is killed a second later.
    pub async fn shutdown(&self) -> Result<Option<ExitStatus>, SynapsError> {
        self.connection.shut_down(self.exit_wait).await
    }
}
