//! Tools without a session, as the Ruby backend offers them.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_ruby::ToolRunner;
use parlor_vocab::{Failure, ToolInfo, ToolOutput};

use crate::contain::contain;
use crate::{Tool, ToolContext, Toolbox};

/// A toolbox, with the one context that all calls share.
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
        let info = |tool: &Arc<dyn Tool>| ToolInfo {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema().to_string(),
        };
        self.toolbox.iter().map(info).collect()
    }

    async fn call(&self, name: &str, input: &str) -> Option<Result<ToolOutput, Failure>> {
        let tool = self.toolbox.find(name).ok()?;
        let called = contain(tool.call(input, &self.context)).await;
        let called = called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")));
        Some(called.map(|output| ToolOutput {
            text: output.text,
            images: output.images.into_iter().map(|image| (image.mime.to_owned(), image.bytes)).collect(),
        }))
    }

    async fn close(&self) {
        self.context.cancel.cancel();
        self.context.shells.end_all().await;
    }
}
