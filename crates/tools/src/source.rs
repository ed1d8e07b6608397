//! Tools that come and go while the program runs: those of a server of tools, or of a connected client.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::tool::Tool;

/// Something that has tools of its own for agents.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// The tools for a run in `folder`. A run asks at most once, when its agent needs them, so that the tools which a
    /// model knows stay the same for the whole run. Must return within seconds; a stopped run drops the future.
    async fn tools(&self, folder: &Path) -> OfferedTools;
}

/// The tools of a [`ToolSource`].
#[derive(Clone, Default)]
pub struct OfferedTools {
    /// The tools, in the order in which agents see them.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Which tools are missing and why, each one sentence for the user and the agent.
    pub notices: Vec<String>,
}
