//! The kinds and titles that parlor gives to the steps of a run, also to those of an imported session.

use parlor_vocab::StepKind;

/// The kind and title of a step in which the agent reasons or writes. `is_first` means the first step of its run.
pub fn writing_step(is_first: bool) -> (StepKind, String) {
    let (kind, title) =
        if is_first { (StepKind::Planning, "Answering") } else { (StepKind::Reasoning, "Going on") };
    (kind, title.to_owned())
}

/// The kind and title of the step of a tool call.
pub fn tool_step(tool: &str) -> (StepKind, String) {
    (StepKind::Tool, format!("Using {tool}"))
}
