//! Tools: what clients and agents are told about them, and what they return.

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

/// The output of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text that the agent reads.
    pub text: String,
    /// Images for the agent or the client.
    pub images: Vec<ToolImage>,
}

impl ToolOutput {
    /// Output without images.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), images: Vec::new() }
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
