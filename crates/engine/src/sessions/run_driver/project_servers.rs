//! Asks whether agents may use the MCP servers of a project's `.mcp.json`, before a run first needs tools of them.
//!
//! An answer is about one text of the file: a file that changed is a new question. "Once" holds for the session while this
//! process lives. Agents that are not under the policy have no sandbox either, so they never get such servers.

use std::path::PathBuf;
use std::sync::Arc;

use parlor_model::{AgentContext, TurnError};
use parlor_tools::{PROJECT_MCP_FILE, ProjectMcpFile, ToolSource};
use parlor_vocab::{
    PolicyRule, Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionKind, QuestionOutcome,
    RuleAction, RunEvent, ToolCallId,
};

use super::RunDriver;
use crate::policy::{PROJECT_SERVERS_TRUST, Verdict, WhenUnattended};
use crate::sessions::policy_source::RunRules;
use crate::sessions::project_tools::ProjectTools;
use crate::visible::escaped;

impl RunDriver {
    /// Decides once a run whether it gets the servers of its project. Asks if nobody has decided it before.
    pub(super) async fn admit_project_servers(&mut self) -> Result<(), TurnError> {
        let tools = Arc::clone(&self.tools);
        let Some(project) = tools.undecided_project() else { return Ok(()) };
        let admitted = match self.rules.clone() {
            Some(rules) => self.project_source(&rules, project).await?,
            None => None,
        };
        project.decide(admitted);
        Ok(())
    }

    async fn project_source(
        &mut self,
        rules: &Arc<RunRules>,
        project: &ProjectTools,
    ) -> Result<Option<Arc<dyn ToolSource>>, TurnError> {
        let reading = rules.project_servers(project.servers(), self.user_home());
        // A file system can hang; a stopped run does not wait for it.
        let read = self.context.cancel.run_until_cancelled(reading).await;
        let (root, read, verdict) = read.ok_or(TurnError::Stopped)?;
        let file = match read {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(reason) => {
                self.report_progress(&format!("The MCP servers of this project are left out: {reason}."))
                    .await?;
                return Ok(None);
            }
        };
        if !file.has_servers() {
            self.report_progress(&file.omissions().join(" ")).await?;
            return Ok(None);
        }
        if !self.may_use(rules, project, &root, &file, verdict).await? {
            return Ok(None);
        }
        let omissions = file.omissions();
        if !omissions.is_empty() {
            self.report_progress(&omissions.join(" ")).await?;
        }
        Ok(Some(project.servers().open(&root, &file, self.context.sandbox.as_ref())))
    }

    async fn may_use(
        &mut self,
        rules: &Arc<RunRules>,
        project: &ProjectTools,
        root: &std::path::Path,
        file: &ProjectMcpFile,
        verdict: Verdict,
    ) -> Result<bool, TurnError> {
        let reason = match (verdict.action, project.answer(file.digest())) {
            (RuleAction::Allow, _) | (RuleAction::Ask, Some(true)) => return Ok(true),
            (RuleAction::Deny, _) => verdict.reason,
            (RuleAction::Ask, Some(false)) => "you have said no in this session".to_owned(),
            (RuleAction::Ask, None) if rules.asked.is_attended => {
                return self.ask_for_servers(root.to_owned(), file).await;
            }
            (RuleAction::Ask, None) if rules.settings().when_unattended == WhenUnattended::Allow => {
                let text = "The MCP servers of this project are used without a question, because nobody can be asked here \
                            (when_unattended = \"allow\").";
                self.report_progress(text).await?;
                return Ok(true);
            }
            (RuleAction::Ask, None) => {
                format!("{}, and nobody can be asked here (when_unattended = \"deny\")", verdict.reason)
            }
        };
        self.leave_servers_out(&reason).await?;
        Ok(false)
    }

    async fn ask_for_servers(&mut self, root: PathBuf, file: &ProjectMcpFile) -> Result<bool, TurnError> {
        self.finish_step().await?;
        let question = Question {
            id: QuestionId::generate(self.deps.ids.next()),
            kind: QuestionKind::ProjectTrust,
            call: ToolCallId::generate(self.deps.ids.next()),
            tool: PROJECT_SERVERS_TRUST.to_owned(),
            title: escaped(&format!("Use the MCP servers of `{}`", root.join(PROJECT_MCP_FILE).display())),
            reason: "whoever wrote this file chose what is started and which services get what agents send; another text of the \
                     file is asked about again"
                .to_owned(),
            detail: file.summary(),
            remembered: Some(PolicyRule {
                tool: Some(PROJECT_SERVERS_TRUST.to_owned()),
                command: Some(file.digest().to_owned()),
                ..PolicyRule::new(RuleAction::Allow)
            }),
            is_repeatable: true,
        };
        self.record(vec![RunEvent::Question(QuestionEvent::Asked(question.clone()))]).await?;
        let outcome = self.await_answer(&question.id, self.deps.clock.now()).await?;
        self.servers_settled(&question, &outcome).await
    }

    /// Takes over the outcome of the question about the servers of the project: "always" is remembered for later sessions, and
    /// any answer for this one. Returns whether the servers may be used.
    pub(super) async fn servers_settled(
        &mut self,
        question: &Question,
        outcome: &QuestionOutcome,
    ) -> Result<bool, TurnError> {
        let (Some(rules), Some(rule)) = (self.rules.clone(), question.remembered.clone()) else {
            return Ok(false);
        };
        let digest = rule.command.clone().unwrap_or_default();
        let answer = |is_allowed| self.tools.remember_project_answer(&digest, is_allowed);
        let is_allowed = match outcome {
            QuestionOutcome::Answered { answer: QuestionAnswer::AllowOnce, .. } => {
                answer(true);
                true
            }
            QuestionOutcome::Answered { answer: QuestionAnswer::AllowAlways, .. } => {
                // For a run that goes on after a restart too.
                answer(true);
                let (root, _) = rules.project_trust(self.user_home()).await;
                if let Err(error) = rules.remember_for(root, rule).await {
                    self.report_progress(&format!("The answer could not be remembered: {error}")).await?;
                }
                true
            }
            QuestionOutcome::Answered { answer: QuestionAnswer::Deny { .. }, .. } => {
                answer(false);
                self.leave_servers_out("you do not trust them").await?;
                false
            }
            QuestionOutcome::Expired | QuestionOutcome::Withdrawn => {
                self.leave_servers_out("nobody has answered in time whether they are trusted").await?;
                false
            }
        };
        Ok(is_allowed)
    }

    async fn leave_servers_out(&mut self, why: &str) -> Result<(), TurnError> {
        let text = format!(
            "The MCP servers of this project's {PROJECT_MCP_FILE} are left out: {why}. `parlor mcp list` shows them, and `parlor chat \
             --trust` in its folder trusts them."
        );
        self.report_progress(&text).await
    }
}
