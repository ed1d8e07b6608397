//! The stored form of the events of a run.

use parlor_vocab::{
    AgentId, ErrorScope, MessageEvent, MessageId, QuestionEvent, QuestionId, RunEnding, RunEvent, RunId,
    StepEvent, StepId, StepKind, StopCause, SubagentEvent, ToolCallId, ToolEvent,
};
use serde::{Deserialize, Serialize};

use super::RowError;
use super::parts::{FailureRow, InputRow, MediaRow, Text, UsageRow, all_media, optional_text, text};
use super::question::{OutcomeRow, QuestionRow};
use super::tool_details::ToolDetailsRow;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunRow<'a> {
    Started {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(borrow)]
        parent: Option<Text<'a>>,
        agent: Text<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Text<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing_agent: Option<Text<'a>>,
        input: Box<InputRow<'a>>,
        message: Text<'a>,
    },
    Steered {
        input: Box<InputRow<'a>>,
        message: Text<'a>,
    },
    MessageStarted {
        message: Text<'a>,
    },
    MessageCompleted {
        message: Text<'a>,
        text: Text<'a>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        media: Vec<MediaRow<'a>>,
    },
    StepStarted {
        step: Text<'a>,
        kind: KindRow,
        title: Text<'a>,
    },
    StepUpdated {
        step: Text<'a>,
        headline: Text<'a>,
        percent: u8,
    },
    StepCompleted {
        step: Text<'a>,
        summary: Text<'a>,
        duration_ms: u64,
    },
    StepFailed {
        step: Text<'a>,
        failure: FailureRow<'a>,
        duration_ms: u64,
    },
    Reasoned {
        step: Text<'a>,
        text: Text<'a>,
    },
    ToolCalled {
        step: Text<'a>,
        call: Text<'a>,
        tool: Text<'a>,
        input: Text<'a>,
    },
    ToolProgressed {
        call: Text<'a>,
        message: Text<'a>,
        percent: u8,
    },
    ToolCompleted {
        call: Text<'a>,
        output: Text<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Box<ToolDetailsRow<'a>>>,
        duration_ms: u64,
    },
    ToolFailed {
        call: Text<'a>,
        failure: FailureRow<'a>,
        duration_ms: u64,
    },
    QuestionAsked(Box<QuestionRow<'a>>),
    QuestionSettled {
        question: Text<'a>,
        outcome: OutcomeRow<'a>,
    },
    SubagentStarted {
        child: Text<'a>,
        name: Text<'a>,
        task: Text<'a>,
    },
    SubagentUpdated {
        child: Text<'a>,
        status: Text<'a>,
    },
    SubagentDone {
        child: Text<'a>,
        result: ResultRow<'a>,
        duration_ms: u64,
    },
    ErrorRaised {
        scope: ScopeRow<'a>,
        failure: FailureRow<'a>,
    },
    Consumed {
        usage: UsageRow,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Text<'a>>,
    },
    Ended {
        ending: EndingRow<'a>,
        duration_ms: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindRow {
    Planning,
    Reasoning,
    Tool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResultRow<'a> {
    #[serde(borrow)]
    Found(Text<'a>),
    Failed(FailureRow<'a>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScopeRow<'a> {
    Run,
    #[serde(borrow)]
    Tool(Text<'a>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EndingRow<'a> {
    Completed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(borrow)]
        message: Option<Text<'a>>,
    },
    Failed(FailureRow<'a>),
    Stopped {
        reason: Text<'a>,
        message: Text<'a>,
        /// Set if a client gave the reason that parlor itself gives at a shutdown. For all other rows, the reason
        /// alone tells the cause.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_client: bool,
    },
}

impl RunRow<'_> {
    pub(super) fn into_event(self) -> Result<RunEvent, RowError> {
        let owned = Text::into_owned;
        Ok(match self {
            Self::Started { parent, agent, model, missing_agent, input, message } => RunEvent::Started {
                parent: parent.map(|id| RunId::parse(&id)).transpose()?,
                agent: AgentId::parse(&agent)?,
                model: model.map(owned),
                missing_agent: missing_agent.map(|id| AgentId::parse(&id)).transpose()?,
                input: input.into_input()?,
                message: MessageId::parse(&message)?,
            },
            Self::Steered { input, message } => {
                RunEvent::Steered { input: input.into_input()?, message: MessageId::parse(&message)? }
            }
            Self::MessageStarted { message } => {
                RunEvent::Message(MessageEvent::Started { message: MessageId::parse(&message)? })
            }
            Self::MessageCompleted { message, text, media } => RunEvent::Message(MessageEvent::Completed {
                message: MessageId::parse(&message)?,
                text: owned(text),
                media: all_media(media)?,
            }),
            Self::StepStarted { step, kind, title } => {
                let kind = match kind {
                    KindRow::Planning => StepKind::Planning,
                    KindRow::Reasoning => StepKind::Reasoning,
                    KindRow::Tool => StepKind::Tool,
                };
                RunEvent::Step(StepEvent::Started { step: StepId::parse(&step)?, kind, title: owned(title) })
            }
            Self::StepUpdated { step, headline, percent } => RunEvent::Step(StepEvent::Updated {
                step: StepId::parse(&step)?,
                headline: owned(headline),
                percent,
            }),
            Self::StepCompleted { step, summary, duration_ms } => RunEvent::Step(StepEvent::Completed {
                step: StepId::parse(&step)?,
                summary: owned(summary),
                duration_ms,
            }),
            Self::StepFailed { step, failure, duration_ms } => {
                let failure = failure.into_failure();
                RunEvent::Step(StepEvent::Failed { step: StepId::parse(&step)?, failure, duration_ms })
            }
            Self::Reasoned { step, text } => {
                RunEvent::Step(StepEvent::Reasoned { step: StepId::parse(&step)?, text: owned(text) })
            }
            Self::ToolCalled { step, call, tool, input } => RunEvent::Tool(ToolEvent::Called {
                step: StepId::parse(&step)?,
                call: ToolCallId::parse(&call)?,
                tool: owned(tool),
                input: owned(input),
            }),
            Self::ToolProgressed { call, message, percent } => RunEvent::Tool(ToolEvent::Progressed {
                call: ToolCallId::parse(&call)?,
                message: owned(message),
                percent,
            }),
            Self::ToolCompleted { call, output, details, duration_ms } => {
                RunEvent::Tool(ToolEvent::Completed {
                    call: ToolCallId::parse(&call)?,
                    output: owned(output),
                    details: details.map(|details| details.into_details()).transpose()?.map(Box::new),
                    duration_ms,
                })
            }
            Self::ToolFailed { call, failure, duration_ms } => {
                let failure = failure.into_failure();
                RunEvent::Tool(ToolEvent::Failed { call: ToolCallId::parse(&call)?, failure, duration_ms })
            }
            Self::QuestionAsked(question) => {
                RunEvent::Question(QuestionEvent::Asked(question.into_question()?))
            }
            Self::QuestionSettled { question, outcome } => RunEvent::Question(QuestionEvent::Settled {
                question: QuestionId::parse(&question)?,
                outcome: outcome.into_outcome(),
            }),
            Self::SubagentStarted { child, name, task } => RunEvent::Subagent(SubagentEvent::Started {
                child: RunId::parse(&child)?,
                name: owned(name),
                task: owned(task),
            }),
            Self::SubagentUpdated { child, status } => RunEvent::Subagent(SubagentEvent::Updated {
                child: RunId::parse(&child)?,
                status: owned(status),
            }),
            Self::SubagentDone { child, result, duration_ms } => {
                let result = match result {
                    ResultRow::Found(text) => Ok(owned(text)),
                    ResultRow::Failed(failure) => Err(failure.into_failure()),
                };
                RunEvent::Subagent(SubagentEvent::Done { child: RunId::parse(&child)?, result, duration_ms })
            }
            Self::ErrorRaised { scope, failure } => {
                let scope = match scope {
                    ScopeRow::Run => ErrorScope::Run,
                    ScopeRow::Tool(call) => ErrorScope::Tool(ToolCallId::parse(&call)?),
                };
                RunEvent::ErrorRaised { scope, failure: failure.into_failure() }
            }
            Self::Consumed { usage, model } => {
                RunEvent::UsageAdded { usage: usage.into_usage(), model: model.map(owned) }
            }
            Self::Ended { ending, duration_ms } => {
                RunEvent::Ended { ending: ending.into_ending()?, duration_ms }
            }
        })
    }
}

impl<'a> From<&'a RunEvent> for RunRow<'a> {
    fn from(event: &'a RunEvent) -> Self {
        match event {
            RunEvent::Started { parent, agent, model, missing_agent, input, message } => Self::Started {
                parent: parent.as_ref().map(|id| text(id.as_str())),
                agent: text(agent.as_str()),
                model: optional_text(model),
                missing_agent: missing_agent.as_ref().map(|id| text(id.as_str())),
                input: Box::new(input.into()),
                message: text(message.as_str()),
            },
            RunEvent::Steered { input, message } => {
                Self::Steered { input: Box::new(input.into()), message: text(message.as_str()) }
            }
            RunEvent::Message(MessageEvent::Started { message }) => {
                Self::MessageStarted { message: text(message.as_str()) }
            }
            RunEvent::Message(MessageEvent::Completed { message, text: said, media }) => {
                Self::MessageCompleted {
                    message: text(message.as_str()),
                    text: text(said),
                    media: media.iter().map(MediaRow::from).collect(),
                }
            }
            RunEvent::Step(StepEvent::Started { step, kind, title }) => {
                let kind = match kind {
                    StepKind::Planning => KindRow::Planning,
                    StepKind::Reasoning => KindRow::Reasoning,
                    StepKind::Tool => KindRow::Tool,
                };
                Self::StepStarted { step: text(step.as_str()), kind, title: text(title) }
            }
            RunEvent::Step(StepEvent::Updated { step, headline, percent }) => {
                Self::StepUpdated { step: text(step.as_str()), headline: text(headline), percent: *percent }
            }
            RunEvent::Step(StepEvent::Completed { step, summary, duration_ms }) => Self::StepCompleted {
                step: text(step.as_str()),
                summary: text(summary),
                duration_ms: *duration_ms,
            },
            RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }) => Self::StepFailed {
                step: text(step.as_str()),
                failure: failure.into(),
                duration_ms: *duration_ms,
            },
            RunEvent::Step(StepEvent::Reasoned { step, text: thought }) => {
                Self::Reasoned { step: text(step.as_str()), text: text(thought) }
            }
            RunEvent::Tool(ToolEvent::Called { step, call, tool, input }) => Self::ToolCalled {
                step: text(step.as_str()),
                call: text(call.as_str()),
                tool: text(tool),
                input: text(input),
            },
            RunEvent::Tool(ToolEvent::Progressed { call, message, percent }) => {
                Self::ToolProgressed { call: text(call.as_str()), message: text(message), percent: *percent }
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, details, duration_ms }) => {
                Self::ToolCompleted {
                    call: text(call.as_str()),
                    output: text(output),
                    details: details.as_deref().map(|details| Box::new(details.into())),
                    duration_ms: *duration_ms,
                }
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => Self::ToolFailed {
                call: text(call.as_str()),
                failure: failure.into(),
                duration_ms: *duration_ms,
            },
            RunEvent::Question(QuestionEvent::Asked(question)) => {
                Self::QuestionAsked(Box::new(question.into()))
            }
            RunEvent::Question(QuestionEvent::Settled { question, outcome }) => {
                Self::QuestionSettled { question: text(question.as_str()), outcome: outcome.into() }
            }
            RunEvent::Subagent(SubagentEvent::Started { child, name, task }) => {
                Self::SubagentStarted { child: text(child.as_str()), name: text(name), task: text(task) }
            }
            RunEvent::Subagent(SubagentEvent::Updated { child, status }) => {
                Self::SubagentUpdated { child: text(child.as_str()), status: text(status) }
            }
            RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms }) => Self::SubagentDone {
                child: text(child.as_str()),
                result: match result {
                    Ok(found) => ResultRow::Found(text(found)),
                    Err(failure) => ResultRow::Failed(failure.into()),
                },
                duration_ms: *duration_ms,
            },
            RunEvent::ErrorRaised { scope, failure } => Self::ErrorRaised {
                scope: match scope {
                    ErrorScope::Run => ScopeRow::Run,
                    ErrorScope::Tool(call) => ScopeRow::Tool(text(call.as_str())),
                },
                failure: failure.into(),
            },
            RunEvent::UsageAdded { usage, model } => {
                Self::Consumed { usage: usage.into(), model: optional_text(model) }
            }
            RunEvent::Ended { ending, duration_ms } => {
                Self::Ended { ending: ending.into(), duration_ms: *duration_ms }
            }
        }
    }
}

impl EndingRow<'_> {
    pub(super) fn into_ending(self) -> Result<RunEnding, RowError> {
        Ok(match self {
            Self::Completed { message } => {
                RunEnding::Completed { message: message.map(|id| MessageId::parse(&id)).transpose()? }
            }
            Self::Failed(failure) => RunEnding::Failed(failure.into_failure()),
            Self::Stopped { reason, message, by_client } => {
                let cause = match *reason == *StopCause::Shutdown.reason() && !by_client {
                    true => StopCause::Shutdown,
                    false => StopCause::Client { reason: reason.into_owned() },
                };
                RunEnding::Stopped { cause, message: MessageId::parse(&message)? }
            }
        })
    }
}

impl<'a> From<&'a RunEnding> for EndingRow<'a> {
    fn from(ending: &'a RunEnding) -> Self {
        match ending {
            RunEnding::Completed { message } => {
                Self::Completed { message: message.as_ref().map(|id| text(id.as_str())) }
            }
            RunEnding::Failed(failure) => Self::Failed(failure.into()),
            RunEnding::Stopped { cause, message } => {
                let reason = cause.reason();
                let by_client = *cause != StopCause::Shutdown && reason == StopCause::Shutdown.reason();
                Self::Stopped { reason: text(reason), message: text(message.as_str()), by_client }
            }
        }
    }
}
