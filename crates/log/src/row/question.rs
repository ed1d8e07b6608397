//! The stored form of questions, and of rules that answers make.

use parlor_vocab::{
    PolicyMode, PolicyRule, Question, QuestionAnswer, QuestionId, QuestionKind, QuestionOutcome, RuleAction,
    ToolCallId,
};
use serde::{Deserialize, Serialize};

use super::RowError;
use super::parts::{SenderRow, Text, optional_text, text};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModeRow {
    ReadOnly,
    Workspace,
    Full,
}

impl ModeRow {
    pub(super) fn into_mode(self) -> PolicyMode {
        match self {
            Self::ReadOnly => PolicyMode::ReadOnly,
            Self::Workspace => PolicyMode::Workspace,
            Self::Full => PolicyMode::Full,
        }
    }
}

impl From<PolicyMode> for ModeRow {
    fn from(mode: PolicyMode) -> Self {
        match mode {
            PolicyMode::ReadOnly => Self::ReadOnly,
            PolicyMode::Workspace => Self::Workspace,
            PolicyMode::Full => Self::Full,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct QuestionRow<'a> {
    #[serde(borrow)]
    question: Text<'a>,
    #[serde(default, skip_serializing_if = "KindRow::is_call")]
    kind: KindRow,
    call: Text<'a>,
    tool: Text<'a>,
    title: Text<'a>,
    reason: Text<'a>,
    detail: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remembered: Option<RuleRow<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repeatable: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindRow {
    #[default]
    Call,
    WiderRights,
    Host,
    ProjectTrust,
}

impl KindRow {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_call(&self) -> bool {
        *self == Self::Call
    }

    fn into_kind(self) -> QuestionKind {
        match self {
            Self::Call => QuestionKind::Call,
            Self::WiderRights => QuestionKind::WiderRights,
            Self::Host => QuestionKind::Host,
            Self::ProjectTrust => QuestionKind::ProjectTrust,
        }
    }
}

impl From<QuestionKind> for KindRow {
    fn from(kind: QuestionKind) -> Self {
        match kind {
            QuestionKind::Call => Self::Call,
            QuestionKind::WiderRights => Self::WiderRights,
            QuestionKind::Host => Self::Host,
            QuestionKind::ProjectTrust => Self::ProjectTrust,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct RuleRow<'a> {
    action: ActionRow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(borrow)]
    tool: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionRow {
    Allow,
    Ask,
    Deny,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutcomeRow<'a> {
    Once {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(borrow)]
        by: Option<SenderRow<'a>>,
    },
    Always {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<SenderRow<'a>>,
    },
    Deny {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Text<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<SenderRow<'a>>,
    },
    Expired,
    Withdrawn,
}

impl QuestionRow<'_> {
    pub(super) fn into_question(self) -> Result<Question, RowError> {
        Ok(Question {
            id: QuestionId::parse(&self.question)?,
            kind: self.kind.into_kind(),
            call: ToolCallId::parse(&self.call)?,
            tool: self.tool.into_owned(),
            title: self.title.into_owned(),
            reason: self.reason.into_owned(),
            detail: self.detail.into_owned(),
            remembered: self.remembered.map(RuleRow::into_rule),
            is_repeatable: self.repeatable,
        })
    }
}

impl<'a> From<&'a Question> for QuestionRow<'a> {
    fn from(question: &'a Question) -> Self {
        Self {
            question: text(question.id.as_str()),
            kind: question.kind.into(),
            call: text(question.call.as_str()),
            tool: text(&question.tool),
            title: text(&question.title),
            reason: text(&question.reason),
            detail: text(&question.detail),
            remembered: question.remembered.as_ref().map(RuleRow::from),
            repeatable: question.is_repeatable,
        }
    }
}

impl RuleRow<'_> {
    fn into_rule(self) -> PolicyRule {
        PolicyRule {
            action: match self.action {
                ActionRow::Allow => RuleAction::Allow,
                ActionRow::Ask => RuleAction::Ask,
                ActionRow::Deny => RuleAction::Deny,
            },
            tool: self.tool.map(Text::into_owned),
            path: self.path.map(Text::into_owned),
            command: self.command.map(Text::into_owned),
            host: self.host.map(Text::into_owned),
        }
    }
}

impl<'a> From<&'a PolicyRule> for RuleRow<'a> {
    fn from(rule: &'a PolicyRule) -> Self {
        Self {
            action: match rule.action {
                RuleAction::Allow => ActionRow::Allow,
                RuleAction::Ask => ActionRow::Ask,
                RuleAction::Deny => ActionRow::Deny,
            },
            tool: optional_text(&rule.tool),
            path: optional_text(&rule.path),
            command: optional_text(&rule.command),
            host: optional_text(&rule.host),
        }
    }
}

impl OutcomeRow<'_> {
    pub(super) fn into_outcome(self) -> QuestionOutcome {
        let answered = |answer, by: Option<SenderRow<'_>>| QuestionOutcome::Answered {
            answer,
            by: by.map(SenderRow::into_sender),
        };
        match self {
            Self::Once { by } => answered(QuestionAnswer::AllowOnce, by),
            Self::Always { by } => answered(QuestionAnswer::AllowAlways, by),
            Self::Deny { message, by } => {
                answered(QuestionAnswer::Deny { message: message.map(Text::into_owned) }, by)
            }
            Self::Expired => QuestionOutcome::Expired,
            Self::Withdrawn => QuestionOutcome::Withdrawn,
        }
    }
}

impl<'a> From<&'a QuestionOutcome> for OutcomeRow<'a> {
    fn from(outcome: &'a QuestionOutcome) -> Self {
        match outcome {
            QuestionOutcome::Answered { answer, by } => {
                let by = by.as_ref().map(SenderRow::from);
                match answer {
                    QuestionAnswer::AllowOnce => Self::Once { by },
                    QuestionAnswer::AllowAlways => Self::Always { by },
                    QuestionAnswer::Deny { message } => Self::Deny { message: optional_text(message), by },
                }
            }
            QuestionOutcome::Expired => Self::Expired,
            QuestionOutcome::Withdrawn => Self::Withdrawn,
        }
    }
}
