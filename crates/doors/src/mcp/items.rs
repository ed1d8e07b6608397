//! The events of a session, as `session_read` shows them.

use parlor_vocab::{
    Entry, Message, MessageEvent, QuestionEvent, Role, RunEnding, RunEvent, SessionEvent, ToolEvent,
    truncate_middle,
};
use serde_json::{Value, json};

use super::SESSION_ITEM_BYTES;
use crate::tool_details::tool_details_json;

/// The item for an event; `None` for an event that only clients with a screen need.
pub(super) fn item(entry: &Entry) -> Option<Value> {
    let mut item = json!({"seq": entry.seq.0, "at": entry.at.rfc3339()});
    let added = match &entry.event {
        SessionEvent::MessageAdded(message) | SessionEvent::Compacted { summary: message, .. } => {
            stored_message(message)
        }
        SessionEvent::Run { run, event, .. } => {
            item["run_id"] = run.as_str().into();
            run_item(event)?
        }
        SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::AgentChosen(_)
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Queued(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared => return None,
    };
    if let (Some(item), Value::Object(added)) = (item.as_object_mut(), added) {
        item.extend(added);
    }
    Some(item)
}

fn stored_message(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
    };
    json!({"kind": "message", "role": role, "text": shown(&message.text)})
}

fn run_item(event: &RunEvent) -> Option<Value> {
    Some(match event {
        RunEvent::Started { input, .. } | RunEvent::Steered { input, .. } => {
            json!({"kind": "message", "role": "user", "text": shown(&input.text)})
        }
        RunEvent::Message(MessageEvent::Completed { text, .. }) => {
            json!({"kind": "message", "role": "assistant", "text": shown(text)})
        }
        RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
            json!({"kind": "tool_call", "call_id": call.as_str(), "tool": tool, "text": shown(input)})
        }
        RunEvent::Tool(ToolEvent::Completed { call, output, details, .. }) => {
            let (call, text) = (call.as_str(), shown(output));
            let mut item =
                json!({"kind": "tool_result", "call_id": call, "status": "completed", "text": text});
            if let Some(details) = details {
                let details = tool_details_json(details);
                // Beyond the limit of one item, the agent that is being watched has them, but the reader does not.
                if details.to_string().len() <= SESSION_ITEM_BYTES {
                    item["details"] = details;
                }
            }
            item
        }
        RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) => {
            let text = shown(&failure.message);
            json!({"kind": "tool_result", "call_id": call.as_str(), "status": "failed", "text": text})
        }
        RunEvent::Ended { ending, .. } => match ending {
            RunEnding::Completed { .. } => json!({"kind": "run_ended", "status": "completed"}),
            RunEnding::Failed(failure) => {
                json!({"kind": "run_ended", "status": "failed", "text": shown(&failure.message)})
            }
            RunEnding::Stopped { cause, .. } => {
                json!({"kind": "run_ended", "status": "stopped", "text": shown(cause.reason())})
            }
        },
        RunEvent::Question(QuestionEvent::Asked(question)) => {
            let text = shown(&format!("{}: {}", question.title, question.reason));
            json!({"kind": "question", "call_id": question.call.as_str(), "tool": question.tool, "text": text})
        }
        RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Question(QuestionEvent::Settled { .. })
        | RunEvent::Step(_)
        | RunEvent::Tool(ToolEvent::Progressed { .. })
        | RunEvent::Subagent(_)
        | RunEvent::ErrorRaised { .. }
        | RunEvent::UsageAdded { .. } => return None,
    })
}

fn shown(text: &str) -> String {
    truncate_middle(text, SESSION_ITEM_BYTES).into_owned()
}
