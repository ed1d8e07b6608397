//! The tools that clients call without a session.

use std::sync::Arc;

use parlor_engine::policy::ToolRequest;
use parlor_engine::{ClientPolicy, called_paths};
use parlor_tools::{
    Policy, ProgressPiece, Redact, StreamRedactor, ToolContext, Toolbox, catch_panic, clean, clean_long,
    progress,
};
use parlor_vocab::{Failure, FailureCode, ToolInfo, ToolOutput};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How many bytes of the end of a running tool's output a report of its progress has.
pub const PROGRESS_TEXT_BYTES: usize = 1024;

/// How many calls of all clients run at a time. Further ones wait.
pub const MAX_CLIENT_CALLS: usize = 64;

/// A toolbox and the context that all calls of clients share. Every call of a client passes through `call`.
pub struct ClientTools {
    toolbox: Toolbox,
    context: ToolContext,
    /// Which files the tools open where the policy confines them.
    confined_files: Arc<Policy>,
    policy: ClientPolicy,
    running: Semaphore,
}

impl ClientTools {
    /// Calls the tools of `toolbox` with `context`, as far as `policy` allows. `confined_files` says which files tools open in
    /// a mode that confines them.
    pub fn new(toolbox: Toolbox, context: ToolContext, confined_files: Policy, policy: ClientPolicy) -> Self {
        let confined_files = Arc::new(confined_files);
        Self { toolbox, context, confined_files, policy, running: Semaphore::new(MAX_CLIENT_CALLS) }
    }

    /// The context of a call that the policy allows. The rules of the project are read for each call, as they are for each
    /// run of a session.
    async fn allowed(&self, tool: &str, input: &str) -> Result<ToolContext, Failure> {
        let access = self.toolbox.find(tool)?.access(input);
        let rules = self.policy.rules(&self.context.folder)?;
        let paths = called_paths(&access, &self.context.policy, &self.context.folder).await;
        let call = ToolRequest::new(tool, &access, paths);
        rules.check(&call)?;
        let files = if rules.is_confined() { &self.confined_files } else { &self.context.policy };
        let context = ToolContext { policy: Arc::clone(files), ..self.context.clone() };
        Ok(rules.confine(&self.policy, call, context))
    }

    /// The tools, in a stable order.
    pub fn list(&self) -> Vec<ToolInfo> {
        self.toolbox.iter().map(|tool| tool.info()).collect()
    }

    /// Ends all background processes and the calls that are still running.
    pub async fn close(&self) {
        self.context.cancel.cancel();
        self.context.background.stop_all().await;
    }

    /// Calls a tool. Returns soon after `cancel`, when the processes of the call have ended. `report` gets the progress.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: &str,
        cancel: &CancellationToken,
        report: impl Fn(Option<(f64, Option<f64>)>, Option<String>),
    ) -> Result<ToolOutput, Failure> {
        let permit = cancel.run_until_cancelled(self.running.acquire()).await;
        let Some(Ok(_permit)) = permit else {
            let message = "the call was cancelled before it began".to_owned();
            return Err(Failure { code: FailureCode::Cancelled, message, retryable: false });
        };
        let allowed = self.allowed(tool, input).await?;
        let redact: Arc<dyn Redact> = Arc::clone(&self.context.redact);
        let mut redactor = StreamRedactor::new(&redact);
        let (progress, mut pieces) = progress();
        let context = ToolContext { progress, cancel: cancel.clone(), ..allowed };
        let work = async move {
            let called = catch_panic(self.toolbox.call(tool, input, &context)).await;
            called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")))
        };
        let mut work = std::pin::pin!(work);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break result,
                () = self.context.cancel.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
                Some(piece) = pieces.next() => match piece {
                    ProgressPiece::Text(text) => {
                        let shown = redactor.push(&text);
                        let (_, end) = shown.split_at(shown.ceil_char_boundary(shown.len().saturating_sub(PROGRESS_TEXT_BYTES)));
                        if !end.trim().is_empty() {
                            report(None, Some(end.to_owned()));
                        }
                    }
                    ProgressPiece::Report(given) => {
                        let message = given.message.map(|message| clean(&*redact, message));
                        report(Some((given.done, given.total)), message);
                    }
                },
            }
        };
        match result {
            Ok(output) => Ok(ToolOutput { text: clean_long(&redact, output.text).await, ..output }),
            Err(failure) if failure.code == FailureCode::UnknownTool => Err(failure),
            Err(failure) => Err(Failure { message: clean_long(&redact, failure.message).await, ..failure }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parlor_engine::ProjectPolicies;
    use parlor_engine::policy::{PolicySettings, ProjectPolicy, Rule, RuleSource};
    use parlor_tools::ShellTool;
    use parlor_vocab::{PolicyMode, PolicyRule, RuleAction};

    use super::*;

    /// Every project has these rules.
    struct Projects(ProjectPolicy);

    impl ProjectPolicies for Projects {
        fn read(&self, _folder: &Path) -> Result<ProjectPolicy, String> {
            Ok(self.0.clone())
        }

        fn remembered(&self, _folder: &Path) -> Result<Vec<Rule>, String> {
            Ok(Vec::new())
        }

        fn remember(&self, _folder: &Path, _rule: &PolicyRule) -> Result<(), String> {
            Ok(())
        }
    }

    fn rule(action: RuleAction, path: &str, source: RuleSource) -> Rule {
        let written = PolicyRule { path: Some(path.to_owned()), ..PolicyRule::new(action) };
        Rule::new(written, source, None).unwrap()
    }

    fn tools(folder: &Path, policy: ClientPolicy) -> ClientTools {
        let files = || Policy::new([folder]).unwrap();
        let context = ToolContext::with_policy(folder.to_owned(), files());
        let confined = files().without_obeyed_changes();
        ClientTools::new(Toolbox::standard(ShellTool::default()), context, confined, policy)
    }

    async fn code(tools: &ClientTools, tool: &str, input: &str) -> Result<(), FailureCode> {
        let cancel = CancellationToken::new();
        tools.call(tool, input, &cancel, |_, _| {}).await.map(drop).map_err(|failure| failure.code)
    }

    #[tokio::test]
    async fn rules_hold_for_calls_of_clients() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        for name in ["open", "closed", "asked"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink(folder.join("closed"), folder.join("link")).unwrap();
        let of_settings = |action, path: &str| rule(action, path, RuleSource::Settings);
        let rules = vec![of_settings(RuleAction::Deny, "closed"), of_settings(RuleAction::Ask, "asked")];
        let settings = PolicySettings { rules, mode: PolicyMode::ReadOnly, ..PolicySettings::default() };
        let tools = tools(&folder, ClientPolicy::of_rules(settings));
        let read = |path: &str| format!(r#"{{"path":"{path}"}}"#);
        assert_eq!(code(&tools, "read_file", &read("open")).await, Ok(()));
        for path in ["closed", "./x/../closed", "link", "asked"] {
            let refused = code(&tools, "read_file", &read(path)).await;
            assert_eq!(refused, Err(FailureCode::PolicyDenied), "{path}");
        }
        let written = code(&tools, "write_file", r#"{"path":"new","content":"x"}"#).await;
        assert_eq!(written, Ok(()), "no mode holds for them");
    }

    #[tokio::test]
    async fn clients_under_the_policy_of_sessions_have_its_mode_and_the_rules_of_the_project() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::write(folder.join("asked"), "x").unwrap();
        let policy = |mode, when_unattended| {
            let project = ProjectPolicy {
                rules: vec![rule(RuleAction::Ask, "asked", RuleSource::Project)],
                ..ProjectPolicy::default()
            };
            let settings = PolicySettings { mode, when_unattended, ..PolicySettings::default() };
            ClientPolicy::of_sessions(settings, Arc::new(Projects(project)), None, &[])
        };
        let write = |path: &str| format!(r#"{{"path":"{path}","content":"x"}}"#);
        use parlor_engine::policy::WhenUnattended::{Allow, Deny};
        let denied = Err(FailureCode::PolicyDenied);
        let read_only = tools(&folder, policy(PolicyMode::ReadOnly, Deny));
        assert_eq!(code(&read_only, "write_file", &write("new")).await, denied);
        let workspace = tools(&folder, policy(PolicyMode::Workspace, Deny));
        assert_eq!(code(&workspace, "write_file", &write("new")).await, Ok(()));
        assert!(code(&workspace, "write_file", &write(".git")).await.is_err(), "other programs obey it");
        assert_eq!(code(&workspace, "read_file", r#"{"path":"asked"}"#).await, denied);
        let attended = tools(&folder, policy(PolicyMode::Workspace, Allow));
        assert_eq!(code(&attended, "read_file", r#"{"path":"asked"}"#).await, Ok(()));
    }
}
