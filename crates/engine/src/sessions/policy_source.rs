//! Where the policy of a run comes from: the settings, the project and remembered answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_model::{Agent, project_root};
use parlor_tools::{
    OpenedPathCheck, ProjectMcpFile, ProjectMcpServers, Sandbox, SandboxNetwork, follow_links,
};
use parlor_vocab::{Failure, FailureCode, PolicyMode, PolicyRule, RuleAction};

use crate::policy::{
    NetworkAccess, PolicySettings, ProjectPolicy, Rule, RuleSource, RunPolicy, ToolRequest, Verdict,
};
use crate::session::Session;
use crate::sessions::run_driver::{HostRules, RunHosts};

/// Reads and keeps what the policy knows of projects. The program implements it, because it knows the files. The methods
/// block for the time of a small file.
pub trait ProjectPolicies: Send + Sync {
    /// The rules of the project in `folder`, and the answers that were remembered there. The error says what is wrong.
    fn read(&self, folder: &Path) -> Result<ProjectPolicy, String>;

    /// The answers alone that were remembered for `folder`.
    fn remembered(&self, folder: &Path) -> Result<Vec<Rule>, String>;

    /// Remembers a rule for the project in `folder`. The error says why that failed.
    fn remember(&self, folder: &Path, rule: &PolicyRule) -> Result<(), String>;
}

/// No project has rules, and no answer is remembered beyond its run.
struct NoProjectPolicies;

impl ProjectPolicies for NoProjectPolicies {
    fn read(&self, _folder: &Path) -> Result<ProjectPolicy, String> {
        Ok(ProjectPolicy::default())
    }

    fn remembered(&self, _folder: &Path) -> Result<Vec<Rule>, String> {
        Ok(Vec::new())
    }

    fn remember(&self, _folder: &Path, _rule: &PolicyRule) -> Result<(), String> {
        Ok(())
    }
}

/// The policy of all sessions.
#[derive(Clone)]
pub(super) struct PolicySource {
    settings: Arc<PolicySettings>,
    projects: Arc<dyn ProjectPolicies>,
}

impl Default for PolicySource {
    fn default() -> Self {
        Self { settings: Arc::default(), projects: Arc::new(NoProjectPolicies) }
    }
}

impl PolicySource {
    pub(super) fn new(settings: PolicySettings, projects: Arc<dyn ProjectPolicies>) -> Self {
        Self { settings: Arc::new(settings), projects }
    }

    /// The policy of the settings alone.
    pub(super) fn of_settings(settings: PolicySettings) -> Self {
        Self::new(settings, Arc::new(NoProjectPolicies))
    }

    /// The mode of sessions for which nobody has chosen one.
    pub(super) fn default_mode(&self) -> PolicyMode {
        self.settings.mode
    }

    /// The rules of a run in `folder` by `agent`; `None` if the agent is not under the policy. Fails if the rules of the
    /// project cannot be read: nobody knows then what they forbid.
    pub(super) fn for_run(
        &self,
        agent: &dyn Agent,
        folder: &Path,
        asked: RunAttendance,
        session: &Session,
    ) -> Result<Option<Arc<RunRules>>, Failure> {
        if !agent.follows_policy() && !self.settings.enforces_all {
            return Ok(None);
        }
        self.for_folder(folder, session.mode(), asked, session.trust_answer()).map(Some)
    }

    /// The rules of a client that calls tools in `folder` itself, in the mode of the settings.
    pub(super) fn for_client(&self, folder: &Path) -> Result<Arc<RunRules>, Failure> {
        self.for_folder(folder, None, RunAttendance::default(), None)
    }

    fn for_folder(
        &self,
        folder: &Path,
        mode: Option<PolicyMode>,
        asked: RunAttendance,
        trust_answer: Option<bool>,
    ) -> Result<Arc<RunRules>, Failure> {
        // One project has one name, whichever links lead to it.
        let folder = follow_links(folder);
        let project = self.projects.read(&folder).map_err(|message| Failure {
            code: FailureCode::PolicyDenied,
            message,
            retryable: false,
        })?;
        let policy = RunPolicy::new(&self.settings, project, mode, &folder);
        let policy = Mutex::new(policy.with_resolved_paths(follow_links));
        let trust = TrustState { answered: trust_answer, known: Mutex::new(None) };
        let (hosts, refused_wider) = (Mutex::default(), AtomicBool::new(false));
        let source = self.clone();
        Ok(Arc::new(RunRules { source, folder, policy, asked, trust, hosts, refused_wider }))
    }
}

/// Who can be asked during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunAttendance {
    /// Whether somebody can be asked.
    pub(super) can_answer: bool,
    /// Whether a person certainly sees a question at once.
    pub(super) is_attended: bool,
}

/// Whether the project of a run is trusted.
#[derive(Debug, Default)]
struct TrustState {
    /// What a person answered earlier in the session.
    answered: Option<bool>,
    /// What was found out in this run.
    known: Mutex<Option<bool>>,
}

/// The policy of one run and of its subagents.
pub(super) struct RunRules {
    source: PolicySource,
    /// The project, without links.
    pub(super) folder: PathBuf,
    policy: Mutex<RunPolicy>,
    pub(super) asked: RunAttendance,
    trust: TrustState,
    /// What was asked and recorded about hosts.
    hosts: Mutex<RunHosts>,
    /// Whether a person has refused to run a command without the sandbox.
    refused_wider: AtomicBool,
}

impl RunRules {
    pub(super) fn settings(&self) -> &PolicySettings {
        &self.source.settings
    }

    /// How far the tools of the run reach.
    pub(super) fn mode(&self) -> PolicyMode {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).mode
    }

    /// Whether the mode confines the tools of the run.
    pub(super) fn is_confined(&self) -> bool {
        self.mode() != PolicyMode::Full
    }

    /// How the processes of the run are confined. `None` if they may do what the user may do. `home` is the user's folder,
    /// whose secrets are hidden; so are parlor's `state_folders` and what a rule denies.
    pub(super) fn sandbox(
        self: &Arc<Self>,
        home: Option<&Path>,
        state_folders: &[Arc<Path>],
    ) -> Option<Sandbox> {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if policy.mode == PolicyMode::Full {
            return None;
        }
        let mut sandbox = Sandbox::new(policy.mode, &policy.folder, home);
        sandbox.hidden.extend(state_folders.iter().map(|folder| folder.to_path_buf()));
        sandbox.hidden.extend(policy.denied_paths());
        sandbox.network = match self.settings().network {
            NetworkAccess::None => SandboxNetwork::None,
            NetworkAccess::Rules => SandboxNetwork::Proxy(Arc::new(HostRules::without_call(self))),
            NetworkAccess::Open => SandboxNetwork::Open,
        };
        Some(sandbox)
    }

    /// The usual secrets of the user with the folder `home`.
    pub(super) fn secrets(&self, home: Option<&Path>) -> Vec<PathBuf> {
        Sandbox::new(self.mode(), &self.folder, home).hidden
    }

    /// What the policy says about a call, and the rule that "always" would remember.
    pub(super) fn verdict(&self, call: &ToolRequest) -> (Verdict, Option<PolicyRule>) {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        (policy.verdict(call), policy.remembered_rule(call))
    }

    /// Refuses files that the rules deny to this call, when it has opened them.
    pub(super) fn opened_path_check(self: &Arc<Self>, call: ToolRequest) -> Arc<dyn OpenedPathCheck> {
        Arc::new(DeniedPaths { rules: Arc::clone(self), call })
    }

    /// What the policy says about connections to this host. An answer of this run counts before the rules.
    pub(super) fn host_verdict(&self, host: &str) -> Verdict {
        let answer = self.hosts().answers.get(host).copied();
        let reason = "the answer to a question in this run says so".to_owned();
        match answer {
            Some(true) => Verdict { action: RuleAction::Allow, reason },
            Some(false) => Verdict { action: RuleAction::Deny, reason },
            None => self.policy.lock().unwrap_or_else(PoisonError::into_inner).host_verdict(host),
        }
    }

    pub(super) fn hosts(&self) -> MutexGuard<'_, RunHosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a person can be offered to run a command without the sandbox. No answer widens the mode `read-only`, and
    /// who has refused once is not offered it again in the same run.
    pub(super) fn may_widen(&self) -> bool {
        self.asked.is_attended
            && self.mode() == PolicyMode::Workspace
            && !self.refused_wider.load(Ordering::Relaxed)
    }

    /// Makes no more offers in this run.
    pub(super) fn refuse_wider(&self) {
        self.refused_wider.store(true, Ordering::Relaxed);
    }

    /// Whether the project is trusted, if this run knows it.
    pub(super) fn known_trust(&self) -> Option<bool> {
        *self.trust.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the project is trusted, for the rest of this run.
    pub(super) fn set_trust(&self, is_trusted: bool) {
        *self.trust.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(is_trusted);
    }

    /// What a person answered earlier in the session about the trust of its project.
    pub(super) fn answered_trust(&self) -> Option<bool> {
        self.trust.answered
    }

    /// The root of the project, and what the rules say about its trust. `home` is the user's folder. If the remembered answers
    /// cannot be read, nobody has trusted the project.
    pub(super) async fn project_trust(self: &Arc<Self>, home: Option<PathBuf>) -> (PathBuf, Verdict) {
        let rules = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let root = project_root(&rules.folder, home.as_deref());
            let remembered = rules.source.projects.remembered(&root).unwrap_or_default();
            let policy = rules.policy.lock().unwrap_or_else(PoisonError::into_inner);
            let verdict = policy.project_trust(&root, &remembered);
            (root, verdict)
        });
        work.await.unwrap_or_else(|error| {
            let verdict = Verdict { action: RuleAction::Deny, reason: error.to_string() };
            (self.folder.clone(), verdict)
        })
    }

    /// The root of the project, the file of its MCP servers, and what the rules say about them. `home` is the user's folder.
    pub(super) async fn project_servers(
        self: &Arc<Self>,
        servers: &Arc<ProjectMcpServers>,
        home: Option<PathBuf>,
    ) -> (PathBuf, Result<Option<ProjectMcpFile>, String>, Verdict) {
        let (rules, servers) = (Arc::clone(self), Arc::clone(servers));
        let denied = |reason: String| Verdict { action: RuleAction::Deny, reason };
        let work = tokio::task::spawn_blocking(move || {
            let root = project_root(&rules.folder, home.as_deref());
            let file = servers.read(&root);
            let Ok(Some(found)) = &file else { return (root, file, denied("there is no file".to_owned())) };
            let remembered = rules.source.projects.remembered(&root).unwrap_or_default();
            let policy = rules.policy.lock().unwrap_or_else(PoisonError::into_inner);
            let verdict = policy.project_servers_trust(&root, found.digest(), &remembered);
            drop(policy);
            (root, file, verdict)
        });
        work.await
            .unwrap_or_else(|error| (self.folder.clone(), Err(error.to_string()), denied(error.to_string())))
    }

    /// Remembers a rule for this run and for later ones. The error says why later ones will not know it.
    pub(super) async fn remember(&self, rule: PolicyRule) -> Result<(), String> {
        let remembered = Rule::new(rule.clone(), RuleSource::Remembered, None);
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).rules.extend(remembered);
        self.remember_for(self.folder.clone(), rule).await
    }

    /// Remembers a rule for later runs in `folder`. The error says why they will not know it.
    pub(super) async fn remember_for(&self, folder: PathBuf, rule: PolicyRule) -> Result<(), String> {
        let projects = Arc::clone(&self.source.projects);
        let work = tokio::task::spawn_blocking(move || projects.remember(&folder, &rule));
        work.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// What the rules say about a call, with the path of the file that it really opened.
struct DeniedPaths {
    rules: Arc<RunRules>,
    call: ToolRequest,
}

impl std::fmt::Debug for DeniedPaths {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DeniedPaths").field("call", &self.call).finish_non_exhaustive()
    }
}

impl OpenedPathCheck for DeniedPaths {
    fn check(&self, path: &Path) -> Result<(), Failure> {
        let written = self.call.paths.iter().take(1).cloned();
        let paths = written.chain([path.to_owned()]).collect();
        let (verdict, _) = self.rules.verdict(&ToolRequest { paths, ..self.call.clone() });
        match verdict.action {
            RuleAction::Allow | RuleAction::Ask => Ok(()),
            RuleAction::Deny => Err(Failure {
                code: FailureCode::PolicyDenied,
                message: format!("the policy refuses the file that this call has opened: {}", verdict.reason),
                retryable: false,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_tools::{ToolAccess, ToolEffect};

    use super::*;

    #[test]
    fn a_file_that_was_opened_is_checked_again() {
        let denied = PolicyRule { path: Some("secrets".to_owned()), ..PolicyRule::new(RuleAction::Deny) };
        let denied = Rule::new(denied, RuleSource::Settings, None).unwrap();
        let settings = PolicySettings { rules: vec![denied], ..PolicySettings::default() };
        let folder = PathBuf::from("/p");
        let policy = RunPolicy::new(&settings, ProjectPolicy::default(), None, &folder);
        let source = PolicySource::new(settings, Arc::new(NoProjectPolicies));
        let (policy, asked, trust) = (Mutex::new(policy), RunAttendance::default(), TrustState::default());
        let (hosts, refused_wider) = (Mutex::default(), AtomicBool::new(false));
        let rules = Arc::new(RunRules { source, folder, policy, asked, trust, hosts, refused_wider });
        let access = ToolAccess::new(ToolEffect::Reads, "");
        let call = ToolRequest::new("read_file", &access, vec!["/p/link".into(), "/p/harmless".into()]);
        assert_eq!(rules.verdict(&call).0.action, RuleAction::Allow);
        let check = rules.opened_path_check(call);
        assert_eq!(check.check(Path::new("/p/harmless")), Ok(()));
        let failure = check.check(Path::new("/p/secrets/key")).unwrap_err();
        assert_eq!(failure.code, FailureCode::PolicyDenied);
        assert!(failure.message.contains("deny { path = \"secrets\" }"), "{}", failure.message);
    }
}
