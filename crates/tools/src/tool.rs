//! What a tool is, what it is given, and what it gives back.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::code;
use crate::progress::ToolProgress;
use crate::redact::{NoSecrets, Redact};
use crate::ruby::Interpreter;
use crate::shell::Shells;
use parlor_files::Policy;

/// A named capability of an agent. Chosen by name at run time, hence used as `dyn`.
///
/// - `call` returns soon after [`ToolContext::cancel`] was cancelled, with [`FailureCode::Cancelled`], and
///   leaves nothing running that it started, background processes aside.
/// - A failure's message is for the agent: it says what would be right.
/// - Nothing of the server's own environment or folder is used, only what the context says.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The name by which it is called.
    fn name(&self) -> &'static str;

    /// What it does and when to use it, for an agent.
    fn description(&self) -> &'static str;

    /// The JSON schema of its input, always of an object.
    fn schema(&self) -> Value;

    /// Whether several calls may run at the same time, since they change nothing.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Does it. `input` is JSON text; blank text counts as an empty object.
    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolResultOutput, Failure>;
}

/// What a call brings back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolResultOutput {
    /// For the agent to read.
    pub text: String,
    /// For the agent to see.
    pub images: Vec<ToolImage>,
}

impl ToolResultOutput {
    /// Text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), images: Vec::new() }
    }
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolImage {
    /// Its media type, found out from its bytes.
    pub mime: &'static str,
    /// The file as it is.
    pub bytes: Vec<u8>,
}

/// What a call may use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The working folder, absolute: relative paths and commands start here.
    pub folder: PathBuf,
    /// Which files may be touched.
    pub policy: Arc<Policy>,
    /// The complete environment of commands.
    pub env: Arc<[(String, String)]>,
    /// Cancelled when the run is stopped.
    pub cancel: CancellationToken,
    /// Where live output goes.
    pub progress: ToolProgress,
    /// The background processes of this session.
    pub shells: Shells,
    /// The Ruby interpreter of this session.
    pub ruby: Interpreter,
    /// Takes secrets out of what is about to be cut.
    pub redact: Arc<dyn Redact>,
}

impl ToolContext {
    /// A context whose only allowed folder is the working folder, with an empty environment and
    /// nobody watching, where no secrets are known. Opens the folder: a short blocking call.
    pub fn new(folder: impl Into<PathBuf>) -> Result<Self, Failure> {
        let folder = folder.into();
        let policy = Policy::new([&folder])?;
        Ok(Self::with_policy(folder, policy))
    }

    /// The same, with the files that `policy` allows.
    pub fn with_policy(folder: PathBuf, policy: Policy) -> Self {
        Self {
            policy: Arc::new(policy),
            folder,
            env: Arc::new([]),
            cancel: CancellationToken::new(),
            progress: ToolProgress::unwatched(),
            shells: Shells::default(),
            ruby: Interpreter::default(),
            redact: Arc::new(NoSecrets),
        }
    }

    /// Fails if the call was cancelled. For the steps of long loops on blocking threads.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.cancel.is_cancelled() { Err(code::cancelled()) } else { Ok(()) }
    }

    /// Looks at files on a thread that may block. When the call is cancelled nobody waits for it
    /// any more, since a file system can hang for ever.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(code::cancelled()),
            result = self.change(work) => result,
        }
    }

    /// Changes files on a thread that may block. Always waited for: whoever hears of a
    /// cancellation must know that nothing changes any more.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let context = self.clone();
        let work = tokio::task::spawn_blocking(move || work(&context));
        work.await.unwrap_or_else(|error| {
            Err(code::failure(FailureCode::ToolError, format!("the tool broke off: {error}")))
        })
    }
}
