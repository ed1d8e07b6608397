//! The tools by which a client delegates work to sessions, as it sees them.

use parlor_vocab::{ToolAnnotations, ToolInfo};
use serde_json::{Value, json};

use super::{DEFAULT_SESSION_WAIT, MAX_SESSION_WAIT};

/// The names of the tools for sessions.
pub const SESSION_TOOLS: [&str; 6] =
    ["session_start", "session_send", "session_wait", "session_read", "session_list", "session_stop"];

/// Changes sessions, and lets an agent do anything that its own tools allow.
const DELEGATES: ToolAnnotations =
    ToolAnnotations { read_only: false, destructive: false, idempotent: false, open_world: true };

/// Ends work that cannot be continued.
const STOPS: ToolAnnotations =
    ToolAnnotations { read_only: false, destructive: true, idempotent: true, open_world: false };

/// The tools for sessions, in the order of [`SESSION_TOOLS`].
pub(super) fn session_tools() -> [ToolInfo; 6] {
    [start(), send(), wait(), read(), list(), stop()]
}

/// The arguments of one of these tools in a short form: `{"session_id": string, "after"?: integer}`.
pub(super) fn usage(name: &str) -> String {
    let Some(tool) = session_tools().into_iter().find(|tool| tool.name == name) else { return String::new() };
    let schema: Value = serde_json::from_str(&tool.schema).unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let member = |(name, property): (&String, &Value)| {
        let optional = if required.iter().any(|required| required == name) { "" } else { "?" };
        format!("\"{name}\"{optional}: {}", property["type"].as_str().unwrap_or("any"))
    };
    let members: Vec<String> = schema["properties"].as_object().into_iter().flatten().map(member).collect();
    format!("{{{}}}", members.join(", "))
}

fn tool(
    name: &str,
    title: &str,
    description: String,
    input: Value,
    output: Value,
    annotations: ToolAnnotations,
) -> ToolInfo {
    ToolInfo {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description,
        schema: input.to_string(),
        output_schema: Some(output.to_string()),
        annotations,
    }
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn result(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn session_id() -> Value {
    json!({"type": "string", "description": "The session_id that session_start or session_list returned."})
}

fn string(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn start() -> ToolInfo {
    let description =
        "Starts a session with an agent of parlor and gives it a task. Returns at once; the agent goes on \
                       working. Use session_wait to get its answer."
            .to_owned();
    let input = object(
        json!({
            "message": string("The task, as the agent reads it. Without it the session waits for session_send."),
            "agent": string("The name of a configured agent; the default agent if absent."),
            "model": string("The name of a model; the agent's own model if absent."),
            "folder": string("The working folder of the agent's tools: an absolute path; the server's folder if absent."),
            "title": string("A short title for people."),
        }),
        &[],
    );
    let output = result(
        json!({
            "session_id": string("The new session."),
            "run_id": string("The run that carries out the task; absent without a message."),
            "status": {"type": "string", "enum": ["running", "queued", "idle"]},
        }),
        &["session_id", "status"],
    );
    tool("session_start", "Start a session", description, input, output, DELEGATES)
}

fn send() -> ToolInfo {
    let description =
        "Sends a message to the agent of a session. If the agent is working, the message waits until it has \
                       finished, or with steer it reaches the agent at its next step. Returns at once."
            .to_owned();
    let input = object(
        json!({
            "session_id": session_id(),
            "message": string("What to tell the agent."),
            "steer": {"type": "boolean", "description": "Add the message to the work in progress instead of queueing it."},
        }),
        &["session_id", "message"],
    );
    let output = result(
        json!({
            "session_id": session_id(),
            "run_id": string("The run that answers the message."),
            "status": {"type": "string", "enum": ["running", "queued", "steered"]},
        }),
        &["session_id", "run_id", "status"],
    );
    tool("session_send", "Send to a session", description, input, output, DELEGATES)
}

fn wait() -> ToolInfo {
    let (default, max) = (DEFAULT_SESSION_WAIT.as_secs(), MAX_SESSION_WAIT.as_secs());
    let description = format!(
        "Waits until the agent of a session has finished, for at most {max} seconds, and returns what it has written. With \
         the status running or queued the agent is not done: call session_wait again. The agent goes on either way."
    );
    let input = object(
        json!({
            "session_id": session_id(),
            "run_id": string("The run to wait for; the active or the last run if absent."),
            "timeout_s": {
                "type": "integer",
                "minimum": 0,
                "description": format!("Seconds to wait: at most {max}; {default} if absent."),
            },
        }),
        &["session_id"],
    );
    let output = result(
        json!({
            "session_id": session_id(),
            "run_id": string("The run."),
            "status": {"type": "string", "enum": ["queued", "running", "completed", "failed", "stopped"]},
            "text": string("What the agent has written in this run so far."),
            "reason": string("Why the run failed or was stopped."),
            "note": string("What this call did differently from what was asked."),
        }),
        &["session_id", "run_id", "status", "text"],
    );
    tool("session_wait", "Wait for a session", description, input, output, ToolAnnotations::READ_ONLY)
}

fn read() -> ToolInfo {
    let description = "Reads what happened in a session: messages, tool calls and ends of runs, oldest first. Pass the next \
                       of one call as after to the following call to read on without gaps."
        .to_owned();
    let input = object(
        json!({
            "session_id": session_id(),
            "after": {"type": "integer", "minimum": 0, "description": "The next of the call before; 0 or absent reads from the beginning."},
        }),
        &["session_id"],
    );
    let item = result(
        json!({
            "seq": {"type": "integer"},
            "at": string("When it happened."),
            "kind": {"type": "string", "enum": ["message", "tool_call", "tool_result", "run_ended"]},
            "run_id": string("The run that it belongs to."),
            "role": {"type": "string", "enum": ["user", "assistant", "system"]},
            "text": string("The message, the tool's input or output, or the reason."),
            "tool": string("The tool's name."),
            "call_id": string("Joins a tool_result with its tool_call."),
            "status": {"type": "string", "enum": ["completed", "failed", "stopped"]},
        }),
        &["seq", "at", "kind"],
    );
    let output = result(
        json!({
            "session_id": session_id(),
            "items": {"type": "array", "items": item},
            "next": {"type": "integer", "description": "What to pass as after next time."},
            "has_more": {"type": "boolean", "description": "Whether more can be read at once."},
        }),
        &["session_id", "items", "next", "has_more"],
    );
    tool("session_read", "Read a session", description, input, output, ToolAnnotations::READ_ONLY)
}

fn list() -> ToolInfo {
    let description = "Lists sessions of all clients, the last updated first.".to_owned();
    let input =
        object(json!({"after": string("The next of the page before; absent for the first page.")}), &[]);
    let session = result(
        json!({
            "session_id": string("The session."),
            "title": string("Its title."),
            "folder": string("Its working folder."),
            "updated": string("When something last happened in it."),
        }),
        &["session_id", "folder", "updated"],
    );
    let output = result(
        json!({
            "sessions": {"type": "array", "items": session},
            "next": string("What to pass as after for the next page; absent on the last one."),
        }),
        &["sessions"],
    );
    tool("session_list", "List sessions", description, input, output, ToolAnnotations::READ_ONLY)
}

fn stop() -> ToolInfo {
    let description =
        "Stops the work of a session's agent. What it has done and written so far stays.".to_owned();
    let input = object(
        json!({"session_id": session_id(), "reason": string("Why, for people who read the session.")}),
        &["session_id"],
    );
    let output = result(
        json!({
            "session_id": session_id(),
            "run_id": string("The run that was told to stop."),
            "status": {"type": "string", "enum": ["stopping"]},
        }),
        &["session_id", "run_id", "status"],
    );
    tool("session_stop", "Stop a session", description, input, output, STOPS)
}
