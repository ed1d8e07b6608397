//! The [`Tool`] trait and the [`ToolContext`] of a call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ToolAnnotations, ToolInfo, ToolOutput};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::access::{ToolAccess, ToolEffect};
use crate::failure;
use crate::paused_time::PausedTime;
use crate::progress::ToolProgress;
use crate::redact::{NoSecrets, Redact};
use crate::ruby::RubyInterpreter;
use crate::shell::BackgroundProcesses;
use parlor_files::Policy;
use parlor_process::Sandbox;
use parlor_undo::ChangeRecorder;

/// Something that an agent can call by name. Used as `dyn`, because the agent chooses the tool at run time.
///
/// - `call` returns soon after [`ToolContext::cancel`] was cancelled, with [`FailureCode::Cancelled`]. Of the processes
///   that it started, only those in the background go on.
/// - The message of a failure is for the agent: it says how to correct the call.
/// - A tool uses the environment and the folder of the context, never those of the server process.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The name by which agents call the tool.
    fn name(&self) -> &str;

    /// A short name for people.
    fn title(&self) -> Option<&str> {
        None
    }

    /// Tells an agent what the tool does and when to use it.
    fn description(&self) -> &str;

    /// The JSON schema of the input, always of type `object`.
    fn schema(&self) -> Value;

    /// The JSON schema of the structured content of the output, if the output has any.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// What calls may do.
    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::default()
    }

    /// Whether several calls may run at the same time. True only for tools that change nothing.
    fn is_parallel(&self) -> bool {
        false
    }

    /// How parlor learns which files a call changes.
    fn file_changes(&self) -> FileChanges {
        if self.annotations().read_only { FileChanges::None } else { FileChanges::Searched }
    }

    /// What a call with this input is about, for the policy. An input that the tool would refuse may give anything.
    fn access(&self, input: &str) -> ToolAccess {
        ToolAccess::new(ToolEffect::Unknown, input)
    }

    /// The call that this one passes on to another tool, if it does: the policy looks at that one too. Fails if there is no
    /// such tool.
    fn passes_on(&self, _input: &str) -> Result<Option<PassedCall>, Failure> {
        Ok(None)
    }

    /// The description of the tool for clients and models.
    fn info(&self) -> ToolInfo {
        ToolInfo {
            name: self.name().to_owned(),
            title: self.title().map(str::to_owned),
            description: self.description().to_owned(),
            schema: self.schema().to_string(),
            output_schema: self.output_schema().map(|schema| schema.to_string()),
            annotations: self.annotations(),
        }
    }

    /// Runs the tool. `input` is JSON text; blank text counts as an empty object.
    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure>;
}

/// A call that a tool makes of another tool.
pub struct PassedCall {
    /// The other tool.
    pub tool: Arc<dyn Tool>,
    /// Its input.
    pub input: String,
}

/// How parlor learns which files the calls of a tool change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChanges {
    /// They change none.
    None,
    /// The tool reports each to [`ToolContext::changes`].
    Reported,
    /// They may change any file, so the working folder is compared before and after a call.
    Searched,
}

/// Decides once more about a file when it is open. Between the decision about a call and its opening, a link on the way
/// may have changed.
pub trait OpenedPathCheck: std::fmt::Debug + Send + Sync {
    /// Fails if the call may not use the file at `path`, which has no links.
    fn check(&self, path: &Path) -> Result<(), Failure>;
}

/// Everything that a tool call may use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The working folder, absolute: relative paths and commands start here.
    pub folder: PathBuf,
    /// Decides which files the call may open.
    pub policy: Arc<Policy>,
    /// Checks each file that the call has opened, before it is used.
    pub opened_path_check: Option<Arc<dyn OpenedPathCheck>>,
    /// The complete environment of commands.
    pub env: Arc<[(String, String)]>,
    /// Cancelled when the call must end, mostly because the run is stopped.
    pub cancel: CancellationToken,
    /// Receives the output of a command while it runs, and reports of how far a call is.
    pub progress: ToolProgress,
    /// The background processes of this session.
    pub background: BackgroundProcesses,
    /// The Ruby interpreter of this session, or of this run if it has a sandbox.
    pub ruby: RubyInterpreter,
    /// Removes secrets from text before a tool truncates it.
    pub redact: Arc<dyn Redact>,
    /// Confines the processes that the call starts. `None`: they can do what the user can do.
    pub sandbox: Option<Arc<Sandbox>>,
    /// Time that does not count for the timeout of the call.
    pub paused: PausedTime,
    /// Records which files the run changes.
    pub changes: ChangeRecorder,
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
            opened_path_check: None,
            folder,
            env: Arc::new([]),
            cancel: CancellationToken::new(),
            progress: ToolProgress::without_reader(),
            background: BackgroundProcesses::default(),
            ruby: RubyInterpreter::default(),
            redact: Arc::new(NoSecrets),
            sandbox: None,
            paused: PausedTime::default(),
            changes: ChangeRecorder::default(),
        }
    }

    /// Fails if the rules of the run forbid the file at `path`, which was opened and has no links.
    pub(crate) fn check_opened(&self, path: &Path) -> Result<(), Failure> {
        self.opened_path_check.as_ref().map_or(Ok(()), |check| check.check(path))
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
