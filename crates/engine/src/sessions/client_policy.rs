//! The policy of clients that call tools themselves, without a session and an agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_tools::{RubyInterpreter, ToolContext};
use parlor_vocab::{Failure, FailureCode, PolicyMode, RuleAction};

use super::policy_source::{PolicySource, ProjectPolicies, RunRules};
use crate::policy::{PolicySettings, ToolRequest, WhenUnattended};

/// The policy of the calls of clients in one folder. Nobody can be asked there.
pub struct ClientPolicy {
    source: PolicySource,
    /// The user's folder, whose secrets confined commands do not see.
    home: Option<PathBuf>,
    /// Parlor's own folders, which confined commands do not see either.
    state_folders: Vec<Arc<Path>>,
}

/// What the policy says about the calls of a client now.
pub struct ClientRules {
    rules: Arc<RunRules>,
}

impl ClientPolicy {
    /// The policy that a session in the mode of the settings has. `home` is the user's folder, `state_folders` are parlor's.
    pub fn of_sessions(
        settings: PolicySettings,
        projects: Arc<dyn ProjectPolicies>,
        home: Option<&Path>,
        state_folders: &[PathBuf],
    ) -> Self {
        Self {
            source: PolicySource::new(settings, projects),
            home: home.map(Path::to_owned),
            state_folders: state_folders.iter().map(|folder| folder.as_path().into()).collect(),
        }
    }

    /// The rules of the settings without a mode, for a client whose tools the settings choose one by one. What a rule says to
    /// ask about is refused.
    pub fn of_rules(settings: PolicySettings) -> Self {
        let when_unattended = WhenUnattended::Deny;
        let settings = PolicySettings { mode: PolicyMode::Full, when_unattended, ..settings };
        Self { source: PolicySource::of_settings(settings), home: None, state_folders: Vec::new() }
    }

    /// Reads the rules for calls in `folder`. Fails if those of the project cannot be read.
    pub fn rules(&self, folder: &Path) -> Result<ClientRules, Failure> {
        Ok(ClientRules { rules: self.source.for_client(folder)? })
    }
}

impl ClientRules {
    /// Fails if the call may not be made.
    pub fn check(&self, call: &ToolRequest) -> Result<(), Failure> {
        let (verdict, _) = self.rules.verdict(call);
        let reason = verdict.reason;
        let message = match (verdict.action, self.rules.settings().when_unattended) {
            (RuleAction::Allow, _) | (RuleAction::Ask, WhenUnattended::Allow) => return Ok(()),
            (RuleAction::Deny, _) => format!("the policy refuses this call: {reason}"),
            (RuleAction::Ask, WhenUnattended::Deny) => {
                format!("a person has to be asked before this call, and nobody can be asked here: {reason}")
            }
        };
        Err(Failure { code: FailureCode::PolicyDenied, message, retryable: false })
    }

    /// Whether the mode confines the tools.
    pub fn is_confined(&self) -> bool {
        self.rules.is_confined()
    }

    /// The context of `call`, with the processes that it starts as confined as `policy` says, and with another look at each
    /// file that it opens.
    pub fn confine(&self, policy: &ClientPolicy, call: ToolRequest, context: ToolContext) -> ToolContext {
        let sandbox = self.rules.sandbox(policy.home.as_deref(), &policy.state_folders);
        let opened_path_check = Some(self.rules.opened_path_check(call));
        // The next call may have other rules.
        let ruby = if sandbox.is_some() { RubyInterpreter::default() } else { context.ruby.clone() };
        ToolContext { sandbox: sandbox.map(Arc::new), ruby, opened_path_check, ..context }
    }
}
