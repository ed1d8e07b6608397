//! Tools that come and go while the program runs: those of a server of tools, or of a connected client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use crate::tool::Tool;

/// Something that has tools of its own for agents.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// The tools for a run in `folder`. A run asks at most once, when its agent needs them, so that the tools which a
    /// model knows stay the same for the whole run. Must return within seconds; a stopped run drops the future.
    async fn tools(&self, folder: &Path) -> OfferedTools;

    /// How its servers are now. Starts none of them.
    fn servers(&self) -> Vec<ToolServerStatus> {
        Vec::new()
    }
}

/// How a server of tools is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolServerStatus {
    /// The first part of the names of its tools.
    pub name: String,
    /// The file that names it; `None` for the settings.
    pub origin: Option<PathBuf>,
    /// Whether it runs.
    pub state: ToolServerState,
}

/// Whether a server of tools runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolServerState {
    /// No run has needed it yet, or it ended after a while without a call.
    NotStarted,
    /// It is being started.
    Starting,
    /// It runs.
    Running {
        /// Its name and version, and the version of the protocol.
        description: String,
        /// How many tools it has.
        tools: usize,
    },
    /// The last attempt failed, for this reason.
    Failed(String),
}

/// The tools of a [`ToolSource`].
#[derive(Clone, Default)]
pub struct OfferedTools {
    /// The tools, in the order in which agents see them.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Which tools are missing and why, each one sentence for the user and the agent.
    pub notices: Vec<String>,
}
