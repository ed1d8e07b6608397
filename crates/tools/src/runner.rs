//! Runs tools without a session, for clients of the Ruby backend.

use async_trait::async_trait;
use parlor_ruby::ToolRunner;
use parlor_vocab::{Failure, ToolInfo, ToolOutput};

use crate::catch_panic::catch_panic;
use crate::{ToolContext, Toolbox};

/// A toolbox and the one context that all of its calls share.
#[derive(Debug)]
pub struct ToolboxRunner {
    toolbox: Toolbox,
    context: ToolContext,
}

impl ToolboxRunner {
    /// Calls the tools of `toolbox` with `context`.
    pub fn new(toolbox: Toolbox, context: ToolContext) -> Self {
        Self { toolbox, context }
    }
}

#[async_trait]
impl ToolRunner for ToolboxRunner {
    fn list(&self) -> Vec<ToolInfo> {
        self.toolbox.iter().map(|tool| tool.info()).collect()
    }

    async fn call(&self, name: &str, input: &str) -> Option<Result<ToolOutput, Failure>> {
        let tool = self.toolbox.find(name).ok()?;
        let called = catch_panic(tool.call(input, &self.context)).await;
        Some(called.unwrap_or_else(|panicked| Err(panicked.failure("The tool"))))
    }

    async fn close(&self) {
        self.context.cancel.cancel();
        self.context.background.stop_all().await;
    }
}
