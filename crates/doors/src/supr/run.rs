//! The state of an active run: what its later activities need of its earlier events.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use parlor_vocab::{
    Failure, MessageEvent, MessageId, RunEvent, RunId, StepId, ToolCallId, ToolEvent, Traceparent,
};

/// An active run.
#[derive(Debug)]
pub(super) struct Run {
    /// The run that started this one, if a subagent runs.
    pub(super) parent: Option<RunId>,
    /// The id of the agent that answers.
    pub(super) agent: String,
    /// Whether the client named the agent; otherwise the session's agent answers.
    pub(super) is_agent_explicit: bool,
    /// The model of the run, if the agent has one.
    pub(super) model: Option<String>,
    /// The trace id and the span id of the client that started the run.
    pub(super) trace: Option<(String, String)>,
    /// The key of a refused input. The activities of such a run are invented, so that the client sees an end.
    pub(super) refused_key: Option<String>,
    calls: HashMap<ToolCallId, Call>,
    /// A hash of the last tool's output, to recognise the output when the agent repeats it. The text itself may be long.
    tool_output_hash: Option<u64>,
    /// The message that the agent began last. The message of a stop is not one of the agent's.
    last_message: Option<MessageId>,
}

/// A tool call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) step: StepId,
    pub(super) tool: String,
}

impl Run {
    /// The run that `event` starts; `None` if it is not a start event.
    pub(super) fn from_start_event(event: &RunEvent) -> Option<Self> {
        let RunEvent::Started { parent, agent, model, input, .. } = event else { return None };
        Some(Self {
            parent: parent.clone(),
            agent: agent.to_string(),
            is_agent_explicit: input.choice.agent.is_some(),
            model: model.clone(),
            trace: input.traceparent.as_deref().and_then(Traceparent::parse).map(trace_and_span),
            refused_key: None,
            calls: HashMap::new(),
            tool_output_hash: None,
            last_message: None,
        })
    }

    /// A run that was refused and never began.
    pub(super) fn refused(is_agent_explicit: bool, agent: String, refused_key: Option<String>) -> Self {
        Self {
            parent: None,
            agent,
            is_agent_explicit,
            model: None,
            trace: None,
            refused_key,
            calls: HashMap::new(),
            tool_output_hash: None,
            last_message: None,
        }
    }

    /// Stores what later events need.
    pub(super) fn record(&mut self, event: &RunEvent) {
        if let RunEvent::Tool(ToolEvent::Called { step, call, tool, .. }) = event {
            self.calls.insert(call.clone(), Call { step: step.clone(), tool: tool.clone() });
        }
        if let RunEvent::Tool(ToolEvent::Completed { output, .. })
        | RunEvent::Tool(ToolEvent::Failed { failure: Failure { message: output, .. }, .. }) = event
        {
            self.tool_output_hash = Some(hash_of(output));
        }
        if let RunEvent::Message(MessageEvent::Started { message }) = event {
            self.last_message = Some(message.clone());
        }
    }

    /// Whether `text` is the agent's message and equals the output of the last tool.
    pub(super) fn repeats_tool_output(&self, message: &MessageId, text: &str) -> bool {
        self.last_message.as_ref() == Some(message) && self.tool_output_hash == Some(hash_of(text))
    }

    /// The tool call with this id.
    pub(super) fn call(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.get(id)
    }
}

/// A hash of a text. After a collision a client shows a message as plain text; nothing worse happens.
fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn trace_and_span(parent: Traceparent) -> (String, String) {
    (parent.trace_id().to_owned(), parent.parent_id().to_owned())
}
