//! Tools: what clients and agents are told about them, and what they return.

use crate::session::Media;

/// The description of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolInfo {
    /// The name that calls use.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What the tool does.
    pub description: String,
    /// The JSON schema of the tool's input, as text.
    pub schema: String,
    /// The JSON schema of [`ToolOutput`]'s structured content, as text.
    pub output_schema: Option<String>,
    /// What calls of the tool may do.
    pub annotations: ToolAnnotations,
}

/// What calls of a tool may do, in the terms of MCP. Those of a tool of somebody else are a claim, so nothing that
/// protects the user may depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolAnnotations {
    /// Calls change nothing.
    pub read_only: bool,
    /// Calls may destroy something. Without meaning if `read_only`.
    pub destructive: bool,
    /// A repeated call with the same input changes nothing more.
    pub idempotent: bool,
    /// Calls may reach things outside of this machine's files, such as the network.
    pub open_world: bool,
}

impl ToolAnnotations {
    /// A tool that only reads, and reaches nothing but this machine.
    pub const READ_ONLY: Self =
        Self { read_only: true, destructive: false, idempotent: true, open_world: false };
}

impl Default for ToolAnnotations {
    /// What MCP assumes of a tool that says nothing: it may do anything.
    fn default() -> Self {
        Self { read_only: false, destructive: true, idempotent: false, open_world: true }
    }
}

/// The longest structured content of a result, in bytes of JSON. Longer content is left out; the text tells the agent.
pub const TOOL_STRUCTURED_BYTES: usize = 64 << 10;

/// How many images of a result are recorded.
pub const TOOL_IMAGES: usize = 8;

/// How many resources of a result are recorded.
pub const TOOL_RESOURCES: usize = 32;

/// The longest text of a resource, such as its URI, in bytes.
pub const TOOL_RESOURCE_BYTES: usize = 2 << 10;

/// The longest diff of a result, in bytes. Its end is left out.
pub const TOOL_DIFF_BYTES: usize = 64 << 10;

/// The output of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text that the agent reads.
    pub text: String,
    /// Images for the agent or the client.
    pub images: Vec<ToolImage>,
    /// The same result as JSON text, for programs.
    pub structured: Option<String>,
    /// What the result refers to.
    pub resources: Vec<ToolResource>,
    /// How the call changed files.
    pub diffs: Vec<ToolDiff>,
}

impl ToolOutput {
    /// Output that is only a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// Something that a tool's result refers to, or whose text it has. Who wrote the tool chose all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolResource {
    /// Where it is.
    pub uri: String,
    /// A name for people.
    pub name: Option<String>,
    /// The MIME type.
    pub mime: Option<String>,
}

/// How a call changed one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDiff {
    /// The file, as the call named it.
    pub path: String,
    /// The lines of a unified diff from its first `@@` on.
    pub text: String,
}

/// What is recorded of a result beside its text, within the limits of this module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolDetails {
    /// What somebody else's tool says of itself; `None` for parlor's own.
    pub annotations: Option<ToolAnnotations>,
    /// The result as JSON text.
    pub structured: Option<String>,
    /// The images, which are stored like attached files.
    pub images: Vec<Media>,
    /// What the result refers to.
    pub resources: Vec<ToolResource>,
    /// How the call changed files.
    pub diffs: Vec<ToolDiff>,
}

impl ToolDetails {
    /// The bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let resource = |resource: &ToolResource| resource.uri.len() + of(&resource.name) + of(&resource.mime);
        of(&self.structured)
            + self.resources.iter().map(resource).sum::<usize>()
            + self.diffs.iter().map(|diff| diff.path.len() + diff.text.len()).sum::<usize>()
    }
}

/// An image that a tool returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolImage {
    /// The MIME type, such as `image/png`.
    pub mime: String,
    /// The encoded image file.
    pub bytes: Vec<u8>,
}
