//! How much text an event holds.

use parlor_vocab::{Birth, Input, RunEnding, RunEvent, SessionEvent};

/// The bytes of all texts in `event` that can be long.
pub(super) fn weight(event: &SessionEvent) -> usize {
    match event {
        SessionEvent::Created(Birth { system, .. }) => system.as_ref().map_or(0, String::len),
        SessionEvent::Renamed { title } => title.len(),
        SessionEvent::Queued(queued) => of_input(&queued.input),
        SessionEvent::Compacted { summary: message, .. } | SessionEvent::MessageAdded(message) => {
            message.text.len()
        }
        SessionEvent::Chosen(_) | SessionEvent::Unqueued { .. } | SessionEvent::Cleared => 0,
        SessionEvent::Run { event, .. } => of_run(event),
    }
}

fn of_run(event: &RunEvent) -> usize {
    match event {
        RunEvent::Started { input, .. } | RunEvent::Steered { input, .. } => of_input(input),
        RunEvent::MessageCompleted { text, .. } | RunEvent::Reasoned { text, .. } => text.len(),
        RunEvent::StepStarted { title: text, .. }
        | RunEvent::StepUpdated { headline: text, .. }
        | RunEvent::StepCompleted { summary: text, .. }
        | RunEvent::ToolCalled { input: text, .. }
        | RunEvent::ToolProgressed { message: text, .. }
        | RunEvent::ToolCompleted { output: text, .. }
        | RunEvent::SubagentStarted { task: text, .. }
        | RunEvent::SubagentUpdated { status: text, .. } => text.len(),
        RunEvent::StepFailed { failure, .. }
        | RunEvent::ToolFailed { failure, .. }
        | RunEvent::ErrorRaised { failure, .. }
        | RunEvent::SubagentDone { result: Err(failure), .. }
        | RunEvent::Ended { ending: RunEnding::Failed(failure), .. } => failure.message.len(),
        RunEvent::SubagentDone { result: Ok(text), .. } => text.len(),
        RunEvent::MessageStarted { .. }
        | RunEvent::Consumed { .. }
        | RunEvent::Ended { ending: RunEnding::Completed { .. } | RunEnding::Stopped { .. }, .. } => 0,
    }
}

fn of_input(input: &Input) -> usize {
    input.text.len()
}
