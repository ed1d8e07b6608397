//! The tools that an agent has.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::{Failure, FailureCode};

use crate::code::failure;
use crate::file::{EditFile, GrepFiles, ListDir, ReadFile, WriteFile};
use crate::shell::{ProcessesTool, ShellTool};
use crate::tool::{Tool, ToolContext, ToolResultOutput};

/// A list of tools, each with a name of its own. Holds no state: one serves all sessions.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
}

impl Toolbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// All tools of this crate.
    pub fn standard(shell: ShellTool) -> Self {
        Self::new()
            .with(shell)
            .with(ProcessesTool)
            .with(ReadFile)
            .with(WriteFile)
            .with(EditFile)
            .with(ListDir)
            .with(GrepFiles)
    }

    /// The same with `tool` at its end, in place of one of the same name.
    #[must_use]
    pub fn with(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.retain(|other| other.name() != tool.name());
        self.tools.push(Arc::new(tool));
        self
    }

    /// Those of the given names, in that order.
    pub fn only(&self, names: &[impl AsRef<str>]) -> Result<Self, Failure> {
        let tools = names.iter().map(|name| self.find(name.as_ref()).cloned()).collect::<Result<_, _>>()?;
        Ok(Self { tools })
    }

    /// All tools.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// The tool of that name, or a failure that lists the names.
    pub fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, Failure> {
        self.tools.iter().find(|tool| tool.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let known = if names.is_empty() { "no tools at all".to_owned() } else { names.join(", ") };
            failure(FailureCode::UnknownTool, format!("there is no tool `{name}`; there are: {known}"))
        })
    }

    /// Calls the tool of that name.
    pub async fn call(
        &self,
        name: &str,
        input: &str,
        context: &ToolContext,
    ) -> Result<ToolResultOutput, Failure> {
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
    fn names_are_unique_and_every_tool_has_words_and_a_schema() {
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
        let twice = toolbox.clone().with(ReadFile);
        assert_eq!(twice.iter().count(), toolbox.iter().count(), "the later one takes the place");
    }

    #[test]
    fn tools_that_only_look_may_run_side_by_side() {
        let toolbox = Toolbox::standard(ShellTool::default());
        let parallel: Vec<&str> =
            toolbox.iter().filter(|tool| tool.is_parallel()).map(|tool| tool.name()).collect();
        assert_eq!(parallel, ["read_file", "list_dir", "grep_files"]);
    }

    #[test]
    fn an_unknown_tool_is_told_which_there_are() {
        let toolbox = Toolbox::standard(ShellTool::default()).only(&["read_file", "list_dir"]).unwrap();
        let failure = toolbox.find("cat").err().unwrap();
        assert_eq!(failure.code, FailureCode::UnknownTool);
        assert_eq!(failure.message, "there is no tool `cat`; there are: read_file, list_dir");
        assert_eq!(toolbox.only(&["shell"]).err().unwrap().code, FailureCode::UnknownTool);
        assert!(Toolbox::new().find("x").err().unwrap().message.ends_with("no tools at all"));
    }
}
