//! The policy: how far the processes of an agent are confined, and the rules about its tool calls.

/// How far the processes of an agent are confined. The kernel enforces it, see `docs/security.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyMode {
    /// Like `Workspace`, but the project cannot be written either.
    ReadOnly,
    /// Writes only the project and a private temporary folder, reads no secrets, and reaches no network but what is
    /// allowed.
    #[default]
    Workspace,
    /// Does what the user can do.
    Full,
}

impl PolicyMode {
    /// All modes, the narrowest first.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::Workspace, Self::Full];

    /// The mode that settings and flags call `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// The name in settings and flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Workspace => "workspace",
            Self::Full => "full",
        }
    }
}

/// What a rule says about the calls that it matches. A later variant is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAction {
    /// The call is made without a question.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused.
    Deny,
}

impl RuleAction {
    /// The action with this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Allow, Self::Ask, Self::Deny].into_iter().find(|action| action.as_str() == text)
    }

    /// The name in the settings and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A rule as it is written: every part that is set must match the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// What happens to the calls that the rule matches.
    pub action: RuleAction,
    /// The name of a tool; `*` is every tool.
    pub tool: Option<String>,
    /// A file or a folder with all that is in it. It begins with `/`, or with `~/` for the home folder, or is relative to
    /// the project.
    pub path: Option<String>,
    /// A command: its words, and `*` at the end for any further words.
    pub command: Option<String>,
    /// A host name; `*.` at its beginning is every name below it.
    pub host: Option<String>,
}

impl PolicyRule {
    /// A rule that matches nothing yet.
    pub fn new(action: RuleAction) -> Self {
        Self { action, tool: None, path: None, command: None, host: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_parsed_from_its_name() {
        for mode in PolicyMode::ALL {
            assert_eq!(PolicyMode::parse(mode.as_str()), Some(mode));
        }
        assert_eq!(PolicyMode::parse("Workspace"), None);
    }
}
