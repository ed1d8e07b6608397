//! A rule of the policy: what it matches, and how specific it is.

use std::path::{Component, Path, PathBuf};

use parlor_vocab::{PolicyRule, RuleAction};

use super::ToolRequest;

/// The most rules of one source: the settings, a project, or the remembered answers of one project.
pub const MAX_RULES: usize = 1024;

/// The longest part of a rule, in bytes.
pub const MAX_RULE_BYTES: usize = 4096;

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSource {
    /// `[policy]` in the settings.
    Settings,
    /// A person's answer "always in this project".
    Remembered,
    /// A file of the project.
    Project,
}

/// A rule that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    written: PolicyRule,
    source: RuleSource,
    target: RuleTarget,
    /// The path of the rule with its links resolved, if that is another one.
    resolved: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RuleTarget {
    /// Every call of the tool.
    Any,
    /// These words; with `and_more` also any words after them.
    Command { words: Vec<String>, and_more: bool },
    /// This file or folder. A relative path begins in the project.
    Path(PathBuf),
    /// This host; with `below` every host below the name instead.
    Host { name: String, below: bool },
}

/// How specific a rule is. The greatest of all matching rules wins: first the rule whose command has more words, whose path
/// has more folders or whose host has more labels, an exact one before a prefix; then a rule that names its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Specificity {
    target: usize,
    names_tool: bool,
    /// Between equals: deny, then a remembered answer, then ask, then allow.
    tie: u8,
}

impl Rule {
    /// Checks a rule. The error says what is wrong with it.
    pub fn new(written: PolicyRule, source: RuleSource, home: Option<&Path>) -> Result<Self, String> {
        let PolicyRule { tool, path, command, host, .. } = &written;
        let parts = [("tool", tool), ("path", path), ("command", command), ("host", host)];
        for (name, part) in parts {
            let Some(part) = part else { continue };
            if part.is_empty() || part.len() > MAX_RULE_BYTES || part.chars().any(char::is_control) {
                return Err(format!(
                    "{name} of a rule is 1 to {MAX_RULE_BYTES} bytes of text without control characters"
                ));
            }
        }
        let target = match (path, command, host) {
            (None, None, None) if tool.is_none() => {
                return Err("a rule needs at least one of tool, path, command and host".to_owned());
            }
            (None, None, None) => RuleTarget::Any,
            (Some(path), None, None) => RuleTarget::Path(path_pattern(path, home)?),
            (None, Some(command), None) => command_pattern(command)?,
            (None, None, Some(host)) => host_pattern(host)?,
            _ => return Err("a rule has only one of path, command and host".to_owned()),
        };
        Ok(Self { written, source, target, resolved: None })
    }

    /// The same rule, which also is about the path that `resolve` makes of its own. A rule that allows is only about what it
    /// names.
    pub(super) fn with_resolved(self, project: &Path, resolve: impl Fn(&Path) -> PathBuf) -> Self {
        let resolved = match &self.target {
            RuleTarget::Path(path) if self.action() != RuleAction::Allow => {
                let path = project.join(path);
                Some(resolve(&path)).filter(|resolved| *resolved != path)
            }
            RuleTarget::Path(_) | RuleTarget::Any | RuleTarget::Command { .. } | RuleTarget::Host { .. } => {
                None
            }
        };
        Self { resolved, ..self }
    }

    /// The rule as it was written.
    pub fn written(&self) -> &PolicyRule {
        &self.written
    }

    /// Where the rule comes from.
    pub fn source(&self) -> RuleSource {
        self.source
    }

    pub(super) fn action(&self) -> RuleAction {
        self.written.action
    }

    /// Whether the rule is about this call. A rule that allows matches only what certainly is what it names; other rules
    /// also match what may be it.
    pub(super) fn matches(&self, call: &ToolRequest, project: &Path) -> bool {
        let tool = self.written.tool.as_deref().filter(|tool| *tool != "*");
        if tool.is_some_and(|tool| tool != call.tool) {
            return false;
        }
        let allows = self.action() == RuleAction::Allow;
        match &self.target {
            RuleTarget::Any => true,
            RuleTarget::Command { words, and_more } => {
                let Some(command) = &call.command else { return false };
                let fits = |given: &[String]| match and_more {
                    true => given.starts_with(words),
                    false => given == words,
                };
                let is_it = command.words().is_some_and(fits);
                is_it || (!allows && command.parts().iter().any(|part| fits(part)))
            }
            RuleTarget::Path(path) => {
                let path = project.join(path);
                // A person allowed one file, which may become a folder.
                let is_it = |given: &Path, path: &Path| match self.source {
                    RuleSource::Remembered => given == path,
                    RuleSource::Settings | RuleSource::Project => given.starts_with(path),
                };
                // A search of a folder also opens what a rule inside of it is about.
                let may_be_it = |given: &Path, path: &Path| {
                    is_it(given, path) || (call.is_recursive && path.starts_with(given))
                };
                match allows {
                    true => !call.paths.is_empty() && call.paths.iter().all(|given| is_it(given, &path)),
                    false => call.paths.iter().any(|given| {
                        may_be_it(given, &path)
                            || self.resolved.as_ref().is_some_and(|resolved| may_be_it(given, resolved))
                    }),
                }
            }
            RuleTarget::Host { .. } => call.host.as_deref().is_some_and(|host| self.matches_host(host)),
        }
    }

    /// Whether the rule is about this host.
    pub fn matches_host(&self, host: &str) -> bool {
        let RuleTarget::Host { name, below } = &self.target else { return false };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match below {
            true => host.strip_suffix(name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            false => host == *name,
        }
    }

    pub(super) fn specificity(&self, project: &Path) -> Specificity {
        // Exact ones are odd, so that they lie between prefixes of as many and of more words.
        let target = match &self.target {
            RuleTarget::Any => 0,
            RuleTarget::Command { words, and_more } => 2 * words.len() + 1 + usize::from(!and_more),
            RuleTarget::Path(path) => 2 * project.join(path).components().count() + 1,
            RuleTarget::Host { name, below } => 2 * name.split('.').count() + 1 + usize::from(!below),
        };
        let tie = match (self.action(), self.source) {
            (RuleAction::Deny, _) => 3,
            (_, RuleSource::Remembered) => 2,
            (RuleAction::Ask, _) => 1,
            (RuleAction::Allow, _) => 0,
        };
        let names_tool = self.written.tool.as_deref().is_some_and(|tool| tool != "*");
        Specificity { target, names_tool, tie }
    }

    /// The paths that the rule denies to every tool.
    pub(super) fn denied_paths(&self, project: &Path) -> impl Iterator<Item = PathBuf> {
        let is_for_all = self.written.tool.as_deref().is_none_or(|tool| tool == "*");
        let written = match &self.target {
            RuleTarget::Path(path) if self.action() == RuleAction::Deny && is_for_all => {
                Some(project.join(path))
            }
            RuleTarget::Path(_) | RuleTarget::Any | RuleTarget::Command { .. } | RuleTarget::Host { .. } => {
                None
            }
        };
        let resolved = self.resolved.clone().filter(|_| written.is_some());
        written.into_iter().chain(resolved)
    }

    /// Whether the rule is about one command, not about all that begin with its words.
    pub(super) fn is_exact(&self) -> bool {
        !matches!(self.target, RuleTarget::Command { and_more: true, .. })
    }

    /// The rule in the form of the settings.
    pub fn describe(&self) -> String {
        describe(&self.written)
    }
}

/// A rule in the form of the settings: `deny { path = "~/.aws" }`.
pub fn describe(rule: &PolicyRule) -> String {
    let PolicyRule { action, tool, path, command, host } = rule;
    let parts = [("tool", tool), ("path", path), ("command", command), ("host", host)];
    let parts = parts.into_iter().filter_map(|(name, part)| Some(format!("{name} = {:?}", part.as_ref()?)));
    format!("{} {{ {} }}", action.as_str(), parts.collect::<Vec<_>>().join(", "))
}

fn command_pattern(text: &str) -> Result<RuleTarget, String> {
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let and_more = words.pop_if(|word| word == "*").is_some();
    if words.iter().any(|word| word.contains(['*', '\'', '"', '`', '$', ';', '|', '&', '<', '>', '\\'])) {
        return Err(format!(
            "the command {text:?} has characters that no rule can match; only its last word may be `*`"
        ));
    }
    if words.is_empty() && !and_more {
        return Err("the command of a rule needs a word".to_owned());
    }
    Ok(RuleTarget::Command { words, and_more })
}

fn path_pattern(text: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let path = match (text.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        (Some(_), None) => return Err(format!("the path {text:?} needs a home folder, and HOME is not set")),
        (Some(_), Some(_)) | (None, _) => PathBuf::from(text),
    };
    if text.contains('*') || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!(
            "the path {text:?} may have neither `..` nor `*`; a folder stands for all in it"
        ));
    }
    Ok(path.components().filter(|part| *part != Component::CurDir).collect())
}

fn host_pattern(text: &str) -> Result<RuleTarget, String> {
    let text = text.trim_end_matches('.').to_ascii_lowercase();
    let (name, below) = match text.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (text.as_str(), false),
    };
    let is_name = !name.is_empty()
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter))
        && name.split('.').all(|label| !label.is_empty());
    if !is_name {
        return Err(format!("{text:?} is not the name of a host; write it without port and path"));
    }
    Ok(RuleTarget::Host { name: name.to_owned(), below })
}
