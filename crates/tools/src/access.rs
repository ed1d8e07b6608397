//! What a call of a tool is about, for the rules of the policy and for questions to people.

/// What a call may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEffect {
    /// Nothing.
    Reads,
    /// Files.
    Changes,
    /// What the mode of the policy allows to processes: the kernel enforces it.
    Confined,
    /// Nobody knows.
    Unknown,
}

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAccess {
    /// What the call may change.
    pub effect: ToolEffect,
    /// The shell command that it runs.
    pub command: Option<String>,
    /// Whether the text of the command alone says what runs: it has no variables and no folder of its own.
    pub is_plain_command: bool,
    /// The file or folder that it opens, as the agent wrote it.
    pub path: Option<String>,
    /// Whether it also opens everything below `path`.
    pub is_recursive: bool,
    /// What people should see of the call: the exact command, or the change of a file.
    pub detail: String,
}

impl ToolAccess {
    /// A call with this effect, of which people see `detail`.
    pub fn new(effect: ToolEffect, detail: impl Into<String>) -> Self {
        Self {
            effect,
            command: None,
            is_plain_command: true,
            path: None,
            is_recursive: false,
            detail: detail.into(),
        }
    }

    /// The same call, which opens the file or folder `path`.
    #[must_use]
    pub fn at(self, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..self }
    }
}

/// The lines of `text`, each behind `mark`, as in a diff.
pub(crate) fn marked(mark: char, text: &str) -> String {
    text.lines().map(|line| format!("{mark}{line}\n")).collect()
}
