//! The size of the texts in an event.

use parlor_vocab::{
    MessageEvent, NewSession, QuestionEvent, RunEnding, RunEvent, SessionEvent, StepEvent, SubagentEvent,
    ToolEvent, UserInput,
};

/// The bytes of all texts in `event` that can be long. Ids and names are not counted.
pub fn text_bytes(event: &SessionEvent) -> usize {
    match event {
        SessionEvent::Created(NewSession { system, .. }) => system.as_ref().map_or(0, String::len),
        SessionEvent::Renamed { title } => title.len(),
        SessionEvent::Queued(queued) => input_bytes(&queued.input),
        SessionEvent::Compacted { summary: message, .. } | SessionEvent::MessageAdded(message) => {
            message.text.len()
        }
        SessionEvent::AgentChosen(_)
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared => 0,
        SessionEvent::Run { event, .. } => run_bytes(event),
    }
}

fn run_bytes(event: &RunEvent) -> usize {
    match event {
        RunEvent::Started { input, .. } | RunEvent::Steered { input, .. } => input_bytes(input),
        RunEvent::Message(MessageEvent::Completed { text, .. })
        | RunEvent::Step(StepEvent::Reasoned { text, .. }) => text.len(),
        RunEvent::Step(StepEvent::Started { title: text, .. })
        | RunEvent::Step(StepEvent::Updated { headline: text, .. })
        | RunEvent::Step(StepEvent::Completed { summary: text, .. })
        | RunEvent::Tool(ToolEvent::Called { input: text, .. })
        | RunEvent::Tool(ToolEvent::Progressed { message: text, .. })
        | RunEvent::Subagent(SubagentEvent::Started { task: text, .. })
        | RunEvent::Subagent(SubagentEvent::Updated { status: text, .. }) => text.len(),
        RunEvent::Tool(ToolEvent::Completed { output, details, .. }) => {
            output.len() + details.as_ref().map_or(0, |details| details.text_bytes())
        }
        RunEvent::Question(QuestionEvent::Asked(question)) => question.title.len() + question.detail.len(),
        RunEvent::Step(StepEvent::Failed { failure, .. })
        | RunEvent::Tool(ToolEvent::Failed { failure, .. })
        | RunEvent::ErrorRaised { failure, .. }
        | RunEvent::Subagent(SubagentEvent::Done { result: Err(failure), .. })
        | RunEvent::Ended { ending: RunEnding::Failed(failure), .. } => failure.message.len(),
        RunEvent::Subagent(SubagentEvent::Done { result: Ok(text), .. }) => text.len(),
        RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Question(QuestionEvent::Settled { .. })
        | RunEvent::UsageAdded { .. }
        | RunEvent::Ended { ending: RunEnding::Completed { .. } | RunEnding::Stopped { .. }, .. } => 0,
    }
}

fn input_bytes(input: &UserInput) -> usize {
    input.text.len()
}
