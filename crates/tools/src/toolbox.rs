//! The list of tools from which an agent chooses.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::{Failure, FailureCode, ToolOutput};

use crate::failure::failure;
use crate::file::{EditFileTool, GrepFilesTool, ListDirTool, ReadFileTool, WriteFileTool};
use crate::shell::{ProcessesTool, ShellTool};
use crate::tool::{Tool, ToolContext};

/// A list of tools with unique names. Stateless, so that all sessions share one.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
}

impl Toolbox {
    /// A toolbox without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// All tools of this crate except `ruby`, with `shell` as the shell.
    pub fn standard(shell: ShellTool) -> Self {
        Self::new()
            .with(shell)
            .with(ProcessesTool)
            .with(ReadFileTool)
            .with(WriteFileTool)
            .with(EditFileTool)
            .with(ListDirTool)
            .with(GrepFilesTool)
    }

    /// Appends `tool` and drops the tool that had the same name.
    #[must_use]
    pub fn with(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.retain(|other| other.name() != tool.name());
        self.tools.push(Arc::new(tool));
        self
    }

    /// The tools with the given names, in that order. Fails if one of them is missing.
    pub fn only(&self, names: &[impl AsRef<str>]) -> Result<Self, Failure> {
        let tools = names.iter().map(|name| self.find(name.as_ref()).cloned()).collect::<Result<_, _>>()?;
        Ok(Self { tools })
    }

    /// The tools, in the order in which agents see them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// The tool with this name, or a failure that lists the known names.
    pub fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, Failure> {
        self.tools.iter().find(|tool| tool.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let known = if names.is_empty() { "no tools at all".to_owned() } else { names.join(", ") };
            failure(FailureCode::UnknownTool, format!("there is no tool `{name}`; there are: {known}"))
        })
    }

    /// Calls the tool with this name.
    pub async fn call(&self, name: &str, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        self.find(name)?.call(input, context).await
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| tool.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_tool_has_a_description_and_a_schema() {
        let toolbox = Toolbox::standard(ShellTool::default());
        let mut names: Vec<&str> = toolbox.iter().map(|tool| tool.name()).collect();
        assert_eq!(
            names,
            ["shell", "processes", "read_file", "write_file", "edit_file", "list_dir", "grep_files"]
        );
        names.dedup();
        assert_eq!(names.len(), toolbox.iter().count());
        for tool in toolbox.iter() {
            assert!(tool.description().ends_with('.'), "{}", tool.name());
            assert_eq!(tool.schema()["type"], "object", "{}", tool.name());
        }
        let twice = toolbox.clone().with(ReadFileTool);
        assert_eq!(twice.iter().count(), toolbox.iter().count(), "the later tool replaces the earlier one");
    }

    #[test]
    fn tools_that_only_read_may_run_in_parallel() {
        let toolbox = Toolbox::standard(ShellTool::default());
        let parallel: Vec<&str> =
            toolbox.iter().filter(|tool| tool.is_parallel()).map(|tool| tool.name()).collect();
        assert_eq!(parallel, ["read_file", "list_dir", "grep_files"]);
    }

    #[test]
    fn the_failure_for_an_unknown_tool_lists_the_known_ones() {
        let toolbox = Toolbox::standard(ShellTool::default()).only(&["read_file", "list_dir"]).unwrap();
        let failure = toolbox.find("cat").err().unwrap();
        assert_eq!(failure.code, FailureCode::UnknownTool);
        assert_eq!(failure.message, "there is no tool `cat`; there are: read_file, list_dir");
        assert_eq!(toolbox.only(&["shell"]).err().unwrap().code, FailureCode::UnknownTool);
        assert!(Toolbox::new().find("x").err().unwrap().message.ends_with("no tools at all"));
    }
}
