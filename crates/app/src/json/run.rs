//! The JSON lines of run events.

use parlor_doors::tool_details_json;
use parlor_vocab::{
    ErrorScope, MessageEvent, Question, QuestionAnswer, QuestionEvent, QuestionOutcome, RunEnding, RunEvent,
    StepEvent, StepKind, SubagentEvent, ToolEvent,
};
use serde::Serialize;

use super::parts::{Failure, Input, Media, Sender, Usage};

/// The members that only lines of run events have.
#[derive(Serialize)]
pub(super) struct RunMembers<'a> {
    pub(super) run: &'a str,
    pub(super) sequence: u64,
    #[serde(flatten)]
    pub(super) body: Body<'a>,
}

/// The members of each kind of event.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Body<'a> {
    Started {
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<&'a str>,
        agent: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        missing_agent: Option<&'a str>,
        input: Input<'a>,
        message: &'a str,
    },
    Steered {
        input: Input<'a>,
        message: &'a str,
    },
    MessageStarted {
        message: &'a str,
    },
    MessageCompleted {
        message: &'a str,
        text: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        media: Vec<Media<'a>>,
    },
    QuestionAsked {
        question: &'a str,
        call: &'a str,
        tool: &'a str,
        title: &'a str,
        reason: &'a str,
        detail: &'a str,
        options: Vec<&'static str>,
    },
    QuestionSettled {
        question: &'a str,
        answer: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<Sender<'a>>,
    },
    StepStarted {
        step: &'a str,
        kind: &'static str,
        title: &'a str,
    },
    StepUpdated {
        step: &'a str,
        headline: &'a str,
        percent: u8,
    },
    StepCompleted {
        step: &'a str,
        summary: &'a str,
        duration_ms: u64,
    },
    StepFailed {
        step: &'a str,
        failure: Failure<'a>,
        duration_ms: u64,
    },
    Reasoned {
        step: &'a str,
        text: &'a str,
    },
    ToolCalled {
        step: &'a str,
        call: &'a str,
        tool: &'a str,
        input: serde_json::Value,
    },
    ToolProgressed {
        call: &'a str,
        message: &'a str,
        percent: u8,
    },
    ToolCompleted {
        call: &'a str,
        output: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<serde_json::Value>,
        duration_ms: u64,
    },
    ToolFailed {
        call: &'a str,
        failure: Failure<'a>,
        duration_ms: u64,
    },
    SubagentStarted {
        child: &'a str,
        name: &'a str,
        task: &'a str,
    },
    SubagentUpdated {
        child: &'a str,
        status: &'a str,
    },
    SubagentDone {
        child: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failure<'a>>,
        duration_ms: u64,
    },
    ErrorRaised {
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<&'a str>,
        failure: Failure<'a>,
    },
    Consumed {
        usage: Usage,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<&'a str>,
    },
    Ended {
        ending: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failure<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        duration_ms: u64,
    },
}

/// The members of a question.
pub(super) fn asked(question: &Question) -> Body<'_> {
    let always = question.remembered.is_some().then_some("always");
    Body::QuestionAsked {
        question: question.id.as_str(),
        call: question.call.as_str(),
        tool: &question.tool,
        title: &question.title,
        reason: &question.reason,
        detail: &question.detail,
        options: ["once"].into_iter().chain(always).chain(["deny"]).collect(),
    }
}

/// The `type` of the line for an event, and its members.
pub(super) fn body(event: &RunEvent) -> (&'static str, Body<'_>) {
    match event {
        RunEvent::Started { parent, agent, model, missing_agent, input, message } => (
            "run.started",
            Body::Started {
                parent: parent.as_ref().map(|parent| parent.as_str()),
                agent: agent.as_str(),
                model: model.as_deref(),
                missing_agent: missing_agent.as_ref().map(|agent| agent.as_str()),
                input: input.into(),
                message: message.as_str(),
            },
        ),
        RunEvent::Steered { input, message } => {
            ("run.steered", Body::Steered { input: input.into(), message: message.as_str() })
        }
        RunEvent::Message(MessageEvent::Started { message }) => {
            ("message.started", Body::MessageStarted { message: message.as_str() })
        }
        RunEvent::Message(MessageEvent::Completed { message, text, media }) => (
            "message.completed",
            Body::MessageCompleted {
                message: message.as_str(),
                text,
                media: media.iter().map(Media::from).collect(),
            },
        ),
        RunEvent::Question(QuestionEvent::Asked(question)) => ("question.asked", asked(question)),
        RunEvent::Question(QuestionEvent::Settled { question, outcome }) => {
            let (message, by) = match outcome {
                QuestionOutcome::Answered { answer: QuestionAnswer::Deny { message }, by } => {
                    (message.as_deref(), by.as_ref())
                }
                QuestionOutcome::Answered { by, .. } => (None, by.as_ref()),
                QuestionOutcome::Expired | QuestionOutcome::Withdrawn => (None, None),
            };
            let (question, answer) = (question.as_str(), outcome.as_str());
            let by = by.map(Sender::from);
            ("question.settled", Body::QuestionSettled { question, answer, message, by })
        }
        RunEvent::Step(StepEvent::Started { step, kind, title }) => {
            ("step.started", Body::StepStarted { step: step.as_str(), kind: step_kind(*kind), title })
        }
        RunEvent::Step(StepEvent::Updated { step, headline, percent }) => {
            ("step.updated", Body::StepUpdated { step: step.as_str(), headline, percent: *percent })
        }
        RunEvent::Step(StepEvent::Completed { step, summary, duration_ms }) => (
            "step.completed",
            Body::StepCompleted { step: step.as_str(), summary, duration_ms: *duration_ms },
        ),
        RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }) => (
            "step.failed",
            Body::StepFailed { step: step.as_str(), failure: failure.into(), duration_ms: *duration_ms },
        ),
        RunEvent::Step(StepEvent::Reasoned { step, text }) => {
            ("step.reasoned", Body::Reasoned { step: step.as_str(), text })
        }
        RunEvent::Tool(ToolEvent::Called { step, call, tool, input }) => {
            // As a JSON value if it is JSON, which every tool requires; otherwise as a string.
            let input = serde_json::from_str(input).unwrap_or_else(|_| input.as_str().into());
            ("tool.called", Body::ToolCalled { step: step.as_str(), call: call.as_str(), tool, input })
        }
        RunEvent::Tool(ToolEvent::Progressed { call, message, percent }) => {
            ("tool.progressed", Body::ToolProgressed { call: call.as_str(), message, percent: *percent })
        }
        RunEvent::Tool(ToolEvent::Completed { call, output, details, duration_ms }) => {
            let details = details.as_deref().map(tool_details_json);
            let (call, duration_ms) = (call.as_str(), *duration_ms);
            ("tool.completed", Body::ToolCompleted { call, output, details, duration_ms })
        }
        RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => (
            "tool.failed",
            Body::ToolFailed { call: call.as_str(), failure: failure.into(), duration_ms: *duration_ms },
        ),
        RunEvent::Subagent(SubagentEvent::Started { child, name, task }) => {
            ("subagent.started", Body::SubagentStarted { child: child.as_str(), name, task })
        }
        RunEvent::Subagent(SubagentEvent::Updated { child, status }) => {
            ("subagent.updated", Body::SubagentUpdated { child: child.as_str(), status })
        }
        RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms }) => (
            "subagent.done",
            Body::SubagentDone {
                child: child.as_str(),
                result: result.as_deref().ok(),
                failure: result.as_ref().err().map(Failure::from),
                duration_ms: *duration_ms,
            },
        ),
        RunEvent::ErrorRaised { scope, failure } => {
            let call = match scope {
                ErrorScope::Run => None,
                ErrorScope::Tool(call) => Some(call.as_str()),
            };
            ("error.raised", Body::ErrorRaised { call, failure: failure.into() })
        }
        RunEvent::UsageAdded { usage, model } => {
            ("run.consumed", Body::Consumed { usage: usage.into(), model: model.as_deref() })
        }
        RunEvent::Ended { ending, duration_ms } => ("run.ended", ended(ending, *duration_ms)),
    }
}

fn ended(ending: &RunEnding, duration_ms: u64) -> Body<'_> {
    let (ending, message, failure, reason) = match ending {
        RunEnding::Completed { message } => ("completed", message.as_ref(), None, None),
        RunEnding::Failed(failure) => ("failed", None, Some(failure.into()), None),
        RunEnding::Stopped { cause, message } => ("stopped", Some(message), None, Some(cause.reason())),
    };
    let message = message.map(|message| message.as_str());
    Body::Ended { ending, message, failure, reason, duration_ms }
}

fn step_kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Planning => "planning",
        StepKind::Reasoning => "reasoning",
        StepKind::Tool => "tool",
    }
}
