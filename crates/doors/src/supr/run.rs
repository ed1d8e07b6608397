//! What is known of the runs under way: what their events need of what happened before.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use parlor_vocab::{Failure, MessageEvent, MessageId, RunEvent, RunId, StepId, ToolCallId, ToolEvent};

/// A run under way.
#[derive(Debug)]
pub(super) struct Run {
    /// The run that it works for, if it is a subagent's.
    pub(super) parent: Option<RunId>,
    /// Who answers.
    pub(super) agent: String,
    /// Whether somebody asked for this agent.
    pub(super) is_agent_asked_for: bool,
    /// The model that is used.
    pub(super) model: Option<String>,
    /// The trace and the span of whoever started it.
    pub(super) trace: Option<(String, String)>,
    /// The key of an input that was refused: the run is told of, and never was.
    pub(super) refused_key: Option<String>,
    calls: HashMap<ToolCallId, Call>,
    /// What the last tool gave back, as far as it takes to know it again: the text itself may be long.
    given: Option<u64>,
    /// The message that the agent spoke last. The words of a stop are not the agent's.
    spoken: Option<MessageId>,
}

/// A tool at work.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) step: StepId,
    pub(super) tool: String,
}

impl Run {
    /// The run that begins with `event`, if it is a beginning.
    pub(super) fn begun_by(event: &RunEvent) -> Option<Self> {
        let RunEvent::Started { parent, agent, model, input, .. } = event else { return None };
        Some(Self {
            parent: parent.clone(),
            agent: agent.to_string(),
            is_agent_asked_for: input.choice.agent.is_some(),
            model: model.clone(),
            trace: input.traceparent.as_deref().and_then(trace),
            refused_key: None,
            calls: HashMap::new(),
            given: None,
            spoken: None,
        })
    }

    /// One that never began.
    pub(super) fn refused(is_agent_asked_for: bool, agent: String, refused_key: Option<String>) -> Self {
        Self {
            parent: None,
            agent,
            is_agent_asked_for,
            model: None,
            trace: None,
            refused_key,
            calls: HashMap::new(),
            given: None,
            spoken: None,
        }
    }

    /// Remembers what later events will need.
    pub(super) fn note(&mut self, event: &RunEvent) {
        if let RunEvent::Tool(ToolEvent::Called { step, call, tool, .. }) = event {
            self.calls.insert(call.clone(), Call { step: step.clone(), tool: tool.clone() });
        }
        if let RunEvent::Tool(ToolEvent::Completed { output: given, .. })
        | RunEvent::Tool(ToolEvent::Failed { failure: Failure { message: given, .. }, .. }) = event
        {
            self.given = Some(mark(given));
        }
        if let RunEvent::Message(MessageEvent::Started { message }) = event {
            self.spoken = Some(message.clone());
        }
    }

    /// Whether the agent only says again, word for word, what the last tool gave back.
    pub(super) fn is_given(&self, message: &MessageId, text: &str) -> bool {
        self.spoken.as_ref() == Some(message) && self.given.is_some_and(|given| given == mark(text))
    }

    /// The call of this id.
    pub(super) fn call(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.get(id)
    }
}

/// By what a text is known again. Two that have the same by accident would be shown alike, and nothing else.
fn mark(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The two ids in a W3C `traceparent`, if it is one.
fn trace(text: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags, ..] = parts.as_slice() else { return None };
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_set = |part: &str| part.bytes().any(|byte| byte != b'0');
    let is_known = is_hex(version, 2) && *version != "ff" && (*version != "00" || parts.len() == 4);
    let is_right = is_known && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    (is_right && is_set(trace) && is_set(span)).then(|| ((*trace).to_owned(), (*span).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_from_what_the_standard_allows() {
        let (ours, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for right in [format!("00-{ours}-{span}-01"), format!("cc-{ours}-{span}-01-what-comes-later")] {
            assert_eq!(trace(&right), Some((ours.to_owned(), span.to_owned())), "{right}");
        }
        for wrong in [
            String::new(),
            format!("ff-{ours}-{span}-01"),
            format!("00-{ours}-{span}-01-more"),
            format!("00-{}-{span}-01", ours.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{ours}-{}-01", "0".repeat(16)),
            format!("00-{ours}-{span}"),
        ] {
            assert_eq!(trace(&wrong), None, "{wrong}");
        }
    }
}
