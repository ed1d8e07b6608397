//! The [`Tool`] trait and the [`ToolContext`] of a call.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ToolOutput};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::failure;
use crate::progress::ToolProgress;
use crate::redact::{NoSecrets, Redact};
use crate::ruby::RubyInterpreter;
use crate::shell::BackgroundProcesses;
use parlor_files::Policy;

/// Something that an agent can call by name. Used as `dyn`, because the agent chooses the tool at run time.
///
/// - `call` returns soon after [`ToolContext::cancel`] was cancelled, with [`FailureCode::Cancelled`]. Of the processes
///   that it started, only those in the background go on.
/// - The message of a failure is for the agent: it says how to correct the call.
/// - A tool uses the environment and the folder of the context, never those of the server process.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The name by which agents call the tool.
    fn name(&self) -> &'static str;

    /// Tells an agent what the tool does and when to use it.
    fn description(&self) -> &'static str;

    /// The JSON schema of the input, always of type `object`.
    fn schema(&self) -> Value;

    /// Whether several calls may run at the same time. True only for tools that change nothing.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Runs the tool. `input` is JSON text; blank text counts as an empty object.
    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure>;
}

/// Everything that a tool call may use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The working folder, absolute: relative paths and commands start here.
    pub folder: PathBuf,
    /// Decides which files the call may open.
    pub policy: Arc<Policy>,
    /// The complete environment of commands.
    pub env: Arc<[(String, String)]>,
    /// Cancelled when the run is stopped.
    pub cancel: CancellationToken,
    /// Receives the output of a command while it runs.
    pub progress: ToolProgress,
    /// The background processes of this session.
    pub background: BackgroundProcesses,
    /// The Ruby interpreter of this session.
    pub ruby: RubyInterpreter,
    /// Removes secrets from text before a tool truncates it.
    pub redact: Arc<dyn Redact>,
}

impl ToolContext {
    /// A context whose policy allows the working folder only, with an empty environment, no reader of the progress
    /// and no known secrets. Opens the folder: a short blocking call.
    pub fn new(folder: impl Into<PathBuf>) -> Result<Self, Failure> {
        let folder = folder.into();
        let policy = Policy::new([&folder])?;
        Ok(Self::with_policy(folder, policy))
    }

    /// The same context with another `policy`.
    pub fn with_policy(folder: PathBuf, policy: Policy) -> Self {
        Self {
            policy: Arc::new(policy),
            folder,
            env: Arc::new([]),
            cancel: CancellationToken::new(),
            progress: ToolProgress::without_reader(),
            background: BackgroundProcesses::default(),
            ruby: RubyInterpreter::default(),
            redact: Arc::new(NoSecrets),
        }
    }

    /// Fails if the call was cancelled. Long loops on blocking threads call this at every step.
    pub(crate) fn check_cancelled(&self) -> Result<(), Failure> {
        if self.cancel.is_cancelled() { Err(failure::cancelled()) } else { Ok(()) }
    }

    /// Runs `work`, which only reads files, on a blocking thread. A cancelled call does not wait for the thread,
    /// because a file system can hang forever.
    pub(crate) async fn read_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(failure::cancelled()),
            result = self.write_blocking(work) => result,
        }
    }

    /// Runs `work`, which changes files, on a blocking thread. Even a cancelled call waits for it: once the call has
    /// returned, no file changes any more.
    pub(crate) async fn write_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let context = self.clone();
        let work = tokio::task::spawn_blocking(move || work(&context));
        work.await.unwrap_or_else(|error| {
            Err(failure::failure(FailureCode::ToolError, format!("the tool broke off: {error}")))
        })
    }
}
