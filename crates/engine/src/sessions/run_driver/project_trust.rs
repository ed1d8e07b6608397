//! Asks whether the project of a run is trusted, before an agent obeys files of the project.
//!
//! The rules decide first, then what a person answered earlier in the session; then a person is asked. Where nobody certainly
//! sees the question at once, `when_unattended` decides: a client that knows no questions would wait for its timeout.

use std::path::PathBuf;
use std::sync::Arc;

use parlor_model::{AgentContext, TurnError};
use parlor_vocab::{
    PolicyRule, Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionKind, QuestionOutcome,
    RuleAction, RunEvent, ToolCallId, truncate_middle,
};

use super::RunDriver;
use super::approval::QUESTION_DETAIL_BYTES;
use crate::policy::{PROJECT_SERVERS_TRUST, PROJECT_TRUST, WhenUnattended};
use crate::sessions::policy_source::RunRules;
use crate::visible::escaped;

impl RunDriver {
    /// Whether the user trusts the project, of which the run wants to obey `files`. Asks once a run; if the answer is no, the
    /// run says that it leaves these files out. Agents that are not under the policy trust it.
    pub(super) async fn is_project_trusted(&mut self, files: &[PathBuf]) -> Result<bool, TurnError> {
        let Some(rules) = self.rules.clone() else { return Ok(true) };
        if let Some(known) = rules.known_trust() {
            return Ok(known);
        }
        let (root, verdict) = rules.project_trust(self.user_home()).await;
        match (verdict.action, rules.answered_trust()) {
            (RuleAction::Allow, _) | (RuleAction::Ask, Some(true)) => rules.set_trust(true),
            (RuleAction::Deny, _) => self.leave_out(&rules, &verdict.reason).await?,
            (RuleAction::Ask, Some(false)) => {
                self.leave_out(&rules, "you have said no in this session").await?
            }
            (RuleAction::Ask, None) if rules.asked.is_attended => self.ask_for_trust(root, files).await?,
            (RuleAction::Ask, None) => match rules.settings().when_unattended {
                WhenUnattended::Allow => {
                    rules.set_trust(true);
                    let text = "The files of this project are obeyed without a question, because nobody can be asked here \
                                (when_unattended = \"allow\").";
                    self.report_progress(text).await?;
                }
                WhenUnattended::Deny => {
                    let why = format!(
                        "{}, and nobody can be asked here (when_unattended = \"deny\")",
                        verdict.reason
                    );
                    self.leave_out(&rules, &why).await?;
                }
            },
        }
        Ok(rules.known_trust().unwrap_or(false))
    }

    async fn ask_for_trust(&mut self, root: PathBuf, files: &[PathBuf]) -> Result<(), TurnError> {
        self.finish_step().await?;
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let question = Question {
            id: QuestionId::generate(self.deps.ids.next()),
            kind: QuestionKind::ProjectTrust,
            call: ToolCallId::generate(self.deps.ids.next()),
            tool: PROJECT_TRUST.to_owned(),
            title: escaped(&format!("Trust the project `{}`", root.display())),
            reason: "whoever wrote these files tells the agent what to do, so it reads them only if you trust the project"
                .to_owned(),
            detail: truncate_middle(&files.join("\n"), QUESTION_DETAIL_BYTES).into_owned(),
            remembered: Some(PolicyRule {
                tool: Some(PROJECT_TRUST.to_owned()),
                ..PolicyRule::new(RuleAction::Allow)
            }),
            is_repeatable: true,
        };
        self.record(vec![RunEvent::Question(QuestionEvent::Asked(question.clone()))]).await?;
        let outcome = self.await_answer(&question.id, self.deps.clock.now()).await?;
        self.trust_settled(&question, &outcome).await
    }

    /// Takes over the outcome of a question about the trust of the project or of its servers, and remembers "always".
    pub(super) async fn trust_settled(
        &mut self,
        question: &Question,
        outcome: &QuestionOutcome,
    ) -> Result<(), TurnError> {
        if question.tool == PROJECT_SERVERS_TRUST {
            return self.servers_settled(question, outcome).await.map(drop);
        }
        let Some(rules) = self.rules.clone() else { return Ok(()) };
        match outcome {
            QuestionOutcome::Answered { answer: QuestionAnswer::AllowOnce, .. } => rules.set_trust(true),
            QuestionOutcome::Answered { answer: QuestionAnswer::AllowAlways, .. } => {
                rules.set_trust(true);
                if let Some(rule) = question.remembered.clone() {
                    let (root, _) = rules.project_trust(self.user_home()).await;
                    if let Err(error) = rules.remember_for(root, rule).await {
                        self.report_progress(&format!("The answer could not be remembered: {error}")).await?;
                    }
                }
            }
            QuestionOutcome::Answered { answer: QuestionAnswer::Deny { .. }, .. } => {
                self.leave_out(&rules, "you do not trust it").await?;
            }
            QuestionOutcome::Expired | QuestionOutcome::Withdrawn => {
                self.leave_out(&rules, "nobody has answered in time whether it is trusted").await?;
            }
        }
        Ok(())
    }

    async fn leave_out(&mut self, rules: &Arc<RunRules>, why: &str) -> Result<(), TurnError> {
        rules.set_trust(false);
        let text = format!(
            "The instructions and skills of this project are left out: {why}. `parlor chat --trust` in its folder trusts it."
        );
        self.report_progress(&text).await
    }

    pub(super) fn user_home(&self) -> Option<PathBuf> {
        self.deps.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home))
    }
}
