//! What the tools of an agent may do: a pure function from rules and a call to a verdict.
//!
//! `rule.rs` has the rules and their order, `command.rs` reads commands. Deliberately absent: the enforcement by the kernel,
//! which limits what a command really does, and the files that rules are read from.

mod command;
#[cfg(test)]
mod properties;
mod rule;

use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_tools::{ToolAccess, ToolEffect};
use parlor_vocab::{PolicyMode, PolicyRule, RuleAction};

pub use self::command::CommandText;
pub use self::rule::{MAX_RULE_BYTES, MAX_RULES, Rule, RuleSource, describe};

/// The name by which rules say which projects are trusted, as if it were a tool. Only rules with this name count for that.
pub const PROJECT_TRUST: &str = "trust_project";

/// The name under which rules say whether agents may use the MCP servers of a project's file. A remembered answer also names the
/// digest of the file, in the place of a command.
pub const PROJECT_SERVERS_TRUST: &str = "trust_project_servers";

/// How long a question waits for an answer by default.
pub const QUESTION_TIMEOUT: Duration = Duration::from_secs(3600);

/// What happens to a call that a rule wants to ask about if nobody can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnattended {
    /// The call is refused.
    #[default]
    Deny,
    /// The call is made.
    Allow,
}

/// Which hosts the commands of an agent reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// None.
    None,
    /// Those that a rule allows.
    #[default]
    Rules,
    /// All.
    Open,
}

/// The policy of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// The mode of sessions that chose none.
    pub mode: PolicyMode,
    /// What happens if nobody can be asked.
    pub when_unattended: WhenUnattended,
    /// Which hosts commands reach.
    pub network: NetworkAccess,
    /// The rules, in any order.
    pub rules: Vec<Rule>,
    /// Whether agents without a model follow the policy too.
    pub enforces_all: bool,
    /// How long a question waits for an answer.
    pub question_timeout: Duration,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            mode: PolicyMode::default(),
            when_unattended: WhenUnattended::default(),
            network: NetworkAccess::default(),
            rules: Vec::new(),
            enforces_all: false,
            question_timeout: QUESTION_TIMEOUT,
        }
    }
}

/// What applies to one project beside the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectPolicy {
    /// Remembered answers of the user.
    pub remembered: Vec<Rule>,
    /// The project's own rules. Those that allow are without effect.
    pub rules: Vec<Rule>,
    /// The widest mode that the project wants.
    pub mode: Option<PolicyMode>,
}

/// A tool call as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRequest {
    /// The name of the tool.
    pub tool: String,
    /// What the call may change.
    pub effect: ToolEffect,
    /// The command that it runs.
    pub command: Option<CommandText>,
    /// The paths of the file that it opens: as the agent wrote it, and with links resolved.
    pub paths: Vec<PathBuf>,
    /// Whether it also opens everything below these paths.
    pub is_recursive: bool,
    /// The host that it connects to.
    pub host: Option<String>,
}

impl ToolRequest {
    /// The request of a tool that says `access` of its call.
    pub fn new(tool: &str, access: &ToolAccess, paths: Vec<PathBuf>) -> Self {
        let command = access.command.as_deref();
        Self {
            tool: tool.to_owned(),
            effect: access.effect,
            command: command.map(|command| CommandText::new(command, access.is_plain_command)),
            paths,
            is_recursive: access.is_recursive,
            host: None,
        }
    }
}

/// What the policy says about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Allow, ask or deny.
    pub action: RuleAction,
    /// Why, in one sentence for people and models.
    pub reason: String,
}

/// The policy of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPolicy {
    /// How far the tools reach.
    pub mode: PolicyMode,
    /// The project: the working folder of the session.
    pub folder: PathBuf,
    /// The rules of the settings and remembered answers.
    pub rules: Vec<Rule>,
    /// The rules of the project.
    pub project_rules: Vec<Rule>,
}

impl RunPolicy {
    /// The policy of a run in `folder`. `chosen` is the mode of its session, if it chose one.
    pub fn new(
        settings: &PolicySettings,
        project: ProjectPolicy,
        chosen: Option<PolicyMode>,
        folder: &Path,
    ) -> Self {
        let mode = chosen.unwrap_or(settings.mode);
        let mode = project.mode.map_or(mode, |widest| mode.min(widest));
        let rules = settings.rules.iter().cloned().chain(project.remembered).collect();
        Self { mode, folder: folder.to_owned(), rules, project_rules: project.rules }
    }

    /// The same policy, whose rules that ask and deny also match the paths that `resolve` makes of theirs.
    #[must_use]
    pub fn with_resolved_paths(self, resolve: impl Fn(&Path) -> PathBuf) -> Self {
        let Self { mode, folder, rules, project_rules } = self;
        let resolved = |rules: Vec<Rule>| -> Vec<Rule> {
            rules.into_iter().map(|rule| rule.with_resolved(&folder, &resolve)).collect()
        };
        let (rules, project_rules) = (resolved(rules), resolved(project_rules));
        Self { mode, folder, rules, project_rules }
    }

    /// What the policy says about `call`. The most specific rule of the user wins; without one, the mode decides. The rules
    /// of the project can only make that stricter, unless the user remembered an answer that is as specific. Nothing changes
    /// files in the mode `read-only`.
    pub fn verdict(&self, call: &ToolRequest) -> Verdict {
        // No rule widens this mode, as none lets a command write in it.
        if self.mode == PolicyMode::ReadOnly && call.effect == ToolEffect::Changes {
            return mode_verdict(self.mode, call);
        }
        let strongest = |rules: &mut dyn Iterator<Item = &Rule>| {
            rules
                .filter(|rule| rule.matches(call, &self.folder))
                .max_by_key(|rule| rule.specificity(&self.folder))
                .cloned()
        };
        let own = strongest(&mut self.rules.iter());
        let verdict = own.map_or_else(|| mode_verdict(self.mode, call), |rule| rule_verdict(&rule));
        let narrower = strongest(&mut self.remembered().chain(self.narrowing()));
        match narrower.filter(|rule| rule.action() > verdict.action) {
            Some(rule) => rule_verdict(&rule),
            None => verdict,
        }
    }

    /// Whether an agent may obey the files of the project with this root: the most specific rule about [`PROJECT_TRUST`], of the
    /// settings or of the answers `remembered` for this root, says so. Without one, a person is asked.
    pub fn project_trust(&self, root: &Path, remembered: &[Rule]) -> Verdict {
        self.trust_rule(PROJECT_TRUST, root, remembered).map_or_else(not_trusted, rule_verdict)
    }

    /// Whether agents may use the MCP servers of the project with this root, whose file has this digest: a rule about
    /// [`PROJECT_SERVERS_TRUST`] of the settings, or an answer that was remembered for this very file. Not in a project that is
    /// never trusted.
    pub fn project_servers_trust(&self, root: &Path, digest: &str, remembered: &[Rule]) -> Verdict {
        let project = self.project_trust(root, remembered);
        if project.action == RuleAction::Deny {
            return project;
        }
        let is_answer = |rule: &&Rule| {
            let written = rule.written();
            written.tool.as_deref() == Some(PROJECT_SERVERS_TRUST)
                && written.command.as_deref() == Some(digest)
        };
        let rule = self.trust_rule(PROJECT_SERVERS_TRUST, root, &[]);
        let denied = rule.filter(|rule| rule.action() == RuleAction::Deny);
        let answered = remembered.iter().find(is_answer);
        denied.or(answered).or(rule).map_or_else(not_trusted, rule_verdict)
    }

    /// The most specific rule with this name that is about the project with this root.
    fn trust_rule<'a>(&'a self, name: &str, root: &Path, remembered: &'a [Rule]) -> Option<&'a Rule> {
        let call = ToolRequest {
            tool: name.to_owned(),
            effect: ToolEffect::Reads,
            command: None,
            paths: vec![root.to_owned()],
            is_recursive: false,
            host: None,
        };
        let of_settings = self.rules.iter().filter(|rule| rule.source() == RuleSource::Settings);
        let rules = of_settings.chain(remembered).chain(&self.project_rules);
        let about_trust = rules.filter(|rule| rule.written().tool.as_deref() == Some(name));
        let matching = about_trust.filter(|rule| rule.matches(&call, root));
        matching.max_by_key(|rule| rule.specificity(root))
    }

    /// What the policy says about connections of commands to this host: the most specific rule about it, or a stricter one of
    /// the project, unless the user remembered an answer that is as specific. Without a rule they are denied.
    pub fn host_verdict(&self, host: &str) -> Verdict {
        let strongest = |rules: &mut dyn Iterator<Item = &Rule>| {
            let matching = rules.filter(|rule| rule.matches_host(host));
            matching.max_by_key(|rule| rule.specificity(&self.folder)).map(rule_verdict)
        };
        let denied = || Verdict { action: RuleAction::Deny, reason: "no rule allows it".to_owned() };
        let verdict = strongest(&mut self.rules.iter()).unwrap_or_else(denied);
        let narrower = strongest(&mut self.remembered().chain(self.narrowing()));
        narrower.filter(|narrower| narrower.action > verdict.action).unwrap_or(verdict)
    }

    fn remembered(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.source() == RuleSource::Remembered)
    }

    /// The rules of the project, which can only make the policy stricter.
    fn narrowing(&self) -> impl Iterator<Item = &Rule> {
        self.project_rules.iter().filter(|rule| rule.action() != RuleAction::Allow)
    }

    /// The paths that rules deny to every tool, so that commands cannot see them either.
    pub fn denied_paths(&self) -> impl Iterator<Item = PathBuf> {
        let rules = self.rules.iter().chain(&self.project_rules);
        rules.flat_map(|rule| rule.denied_paths(&self.folder))
    }

    /// The rule that remembers an answer about this call. `None` if no rule can name the call exactly.
    pub fn remembered_rule(&self, call: &ToolRequest) -> Option<PolicyRule> {
        let mut rule = PolicyRule { tool: Some(call.tool.clone()), ..PolicyRule::new(RuleAction::Allow) };
        if let Some(command) = &call.command {
            rule.command = Some(command.words()?.join(" "));
        }
        if let Some(path) = call.paths.first() {
            let path = path.strip_prefix(&self.folder).unwrap_or(path);
            rule.path = Some(path.to_str()?.to_owned()).filter(|path| !path.is_empty());
            rule.path.as_ref()?;
        }
        // A word with a space in it is two words in a rule, and then the rule does not match the call.
        let checked = Rule::new(rule.clone(), RuleSource::Remembered, None).ok()?;
        (checked.is_exact() && checked.matches(call, &self.folder)).then_some(rule)
    }
}

fn not_trusted() -> Verdict {
    Verdict { action: RuleAction::Ask, reason: "nobody has said that it is trusted".to_owned() }
}

fn rule_verdict(rule: &Rule) -> Verdict {
    let of = match rule.source() {
        RuleSource::Settings => "of parlor.toml",
        RuleSource::Remembered => "that you remembered",
        RuleSource::Project => "of the project",
    };
    Verdict { action: rule.action(), reason: format!("the rule {of} says {}", rule.describe()) }
}

fn mode_verdict(mode: PolicyMode, call: &ToolRequest) -> Verdict {
    let (action, what) = match (mode, call.effect) {
        (PolicyMode::ReadOnly, ToolEffect::Changes) => (RuleAction::Deny, "does not let tools change files"),
        (PolicyMode::ReadOnly, ToolEffect::Unknown) => {
            (RuleAction::Ask, "does not tell what this tool may change")
        }
        (PolicyMode::ReadOnly, ToolEffect::Reads | ToolEffect::Confined)
        | (PolicyMode::Workspace | PolicyMode::Full, _) => (RuleAction::Allow, "allows it"),
    };
    Verdict { action, reason: format!("the mode {} {what}", mode.as_str()) }
}
