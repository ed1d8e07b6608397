//! The list of tools from which an agent chooses.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ToolAnnotations, ToolOutput};
use serde_json::Value;

use crate::access::ToolAccess;
use crate::failure::failure;
use crate::file::{EditFileTool, GrepFilesTool, ListDirTool, ReadFileTool, WriteFileTool};
use crate::mcp_client::shown_tools;
use crate::shell::{ProcessesTool, ShellTool};
use crate::tool::{FileChanges, PassedCall, Tool, ToolContext};

/// The longest name that all model providers accept, in characters.
pub const TOOL_NAME_CHARS: usize = 64;

/// A list of tools with unique names. Cheap to clone.
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

    /// Appends `tool`. If its name is taken, it gets the first free name with a number: `name_2`, `name_3`.
    pub fn add(&mut self, tool: Arc<dyn Tool>) {
        let is_taken = |name: &str| self.tools.iter().any(|other| other.name() == name);
        if !is_taken(tool.name()) {
            return self.tools.push(tool);
        }
        let numbered = |number: usize| {
            let suffix = format!("_{number}");
            let kept = TOOL_NAME_CHARS.saturating_sub(suffix.len());
            tool.name().chars().take(kept).collect::<String>() + &suffix
        };
        let name = (2..).map(numbered).find(|name| !is_taken(name)).expect("there is a free number");
        self.tools.push(Arc::new(RenamedTool { name, tool }));
    }

    /// Replaces those of the tools after the first `own` that are too many for a model by a search for them.
    pub fn hide_excess(&mut self, own: usize) {
        let others = self.tools.split_off(own.min(self.tools.len()));
        shown_tools(others).into_iter().for_each(|tool| self.add(tool));
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

/// A tool under another name.
struct RenamedTool {
    name: String,
    tool: Arc<dyn Tool>,
}

#[async_trait]
impl Tool for RenamedTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> Option<&str> {
        self.tool.title()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    fn schema(&self) -> Value {
        self.tool.schema()
    }

    fn output_schema(&self) -> Option<Value> {
        self.tool.output_schema()
    }

    fn annotations(&self) -> ToolAnnotations {
        self.tool.annotations()
    }

    fn is_parallel(&self) -> bool {
        self.tool.is_parallel()
    }

    fn file_changes(&self) -> FileChanges {
        self.tool.file_changes()
    }

    fn access(&self, input: &str) -> ToolAccess {
        self.tool.access(input)
    }

    fn passes_on(&self, input: &str) -> Result<Option<PassedCall>, Failure> {
        self.tool.passes_on(input)
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        self.tool.call(input, context).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_whose_name_is_taken_gets_a_number() {
        let mut toolbox = Toolbox::new().with(ReadFileTool);
        toolbox.add(Arc::new(ReadFileTool));
        toolbox.add(Arc::new(ReadFileTool));
        let long = || RenamedTool { name: "x".repeat(TOOL_NAME_CHARS), tool: Arc::new(ReadFileTool) };
        toolbox.add(Arc::new(long()));
        toolbox.add(Arc::new(long()));
        let names: Vec<&str> = toolbox.iter().map(|tool| tool.name()).collect();
        assert_eq!(names[..3], ["read_file", "read_file_2", "read_file_3"]);
        assert_eq!(names[4], format!("{}_2", "x".repeat(TOOL_NAME_CHARS - 2)));
    }

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
        let names = |is_listed: fn(&dyn Tool) -> bool| -> Vec<&str> {
            toolbox.iter().filter(|tool| is_listed(&***tool)).map(|tool| tool.name()).collect()
        };
        let parallel = names(|tool| tool.is_parallel());
        assert_eq!(parallel, names(|tool| tool.annotations().read_only));
        assert_eq!(parallel, ["read_file", "list_dir", "grep_files"]);
    }

    #[test]
    fn file_tools_report_their_changes_and_those_of_all_others_are_searched() {
        let toolbox = Toolbox::standard(ShellTool::default());
        let changes: Vec<FileChanges> = toolbox.iter().map(|tool| tool.file_changes()).collect();
        use FileChanges::{None, Reported, Searched};
        assert_eq!(changes, [Searched, Searched, None, Reported, Reported, None, None]);
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
