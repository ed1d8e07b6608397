//! The frames, as the parent and the child spell them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the wire format. The child names it in `ready`, and a parent refuses any other.
pub const RPC_PROTOCOL_VERSION: u32 = 1;

/// What the parent tells the child. Every command but `shutdown` has an id, which its answer repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RpcCommand {
    /// Begin a turn.
    Prompt {
        /// Repeated in the answer.
        id: String,
        /// What the user says.
        message: String,
        /// Files that come along.
        #[serde(default)]
        attachments: Vec<RpcAttachment>,
    },
    /// Begin another turn in the same conversation.
    FollowUp {
        /// Repeated in the answer.
        id: String,
        /// What the user says.
        message: String,
    },
    /// Put a summary in the place of the history.
    Compact {
        /// Repeated in the answer.
        id: String,
    },
    /// Begin a new conversation.
    NewSession {
        /// Repeated in the answer.
        id: String,
    },
    /// Tell the history.
    GetMessages {
        /// Repeated in the answer.
        id: String,
    },
    /// Use another model from now on.
    SetModel {
        /// Repeated in the answer.
        id: String,
        /// Which one.
        model: String,
    },
    /// Tell which models there are.
    GetAvailableModels {
        /// Repeated in the answer.
        id: String,
    },
    /// Stop the running turn.
    Abort {
        /// Repeated in the answer.
        id: String,
    },
    /// Tell what the conversation has consumed.
    GetSessionStats {
        /// Repeated in the answer.
        id: String,
    },
    /// Tell how things are.
    GetState {
        /// Repeated in the answer.
        id: String,
    },
    /// Tell which tools there are.
    ToolsList {
        /// Repeated in the answer, which has an empty one if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// End. The exit is the answer.
    Shutdown,
}

/// A file that comes along with a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcAttachment {
    /// Where it is: absolute, without `..`.
    pub path: String,
    /// What it is called. A hint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is. A hint: its bytes decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
}

/// What the child tells the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RpcEvent {
    /// The child is there. Always the first.
    Ready {
        /// The conversation; `--continue` takes it.
        session_id: String,
        /// The model in use.
        model: String,
        /// [`RPC_PROTOCOL_VERSION`].
        protocol_version: u32,
    },
    /// Something happened in the running turn.
    MessageUpdate {
        /// What.
        event: AssistantEvent,
    },
    /// Another agent begins to work for the turn.
    SubagentStart {
        /// Its number.
        subagent_id: u64,
        /// Its name.
        agent_name: String,
        /// The beginning of what it is to do.
        task_preview: String,
    },
    /// It is at work.
    SubagentUpdate {
        /// Its number.
        subagent_id: u64,
        /// Its name.
        agent_name: String,
        /// A few words.
        status: String,
    },
    /// It is done. A preview that begins with `error` means that it failed.
    SubagentDone {
        /// Its number.
        subagent_id: u64,
        /// Its name.
        agent_name: String,
        /// The beginning of what came of it.
        result_preview: String,
        /// How long it took.
        duration_secs: f64,
    },
    /// The turn is over. Once for each turn, before its response.
    AgentEnd {
        /// What it consumed.
        usage: TurnUsage,
    },
    /// The answer to a command.
    Response {
        /// The command's.
        id: String,
        /// What was answered; `prompt` for `follow_up` too.
        command: String,
        /// The answer's members.
        #[serde(flatten)]
        body: Map<String, Value>,
    },
    /// Something is wrong with a command, or with a line.
    Error {
        /// The command's, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// What is wrong.
        message: String,
    },
}

/// What happens in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AssistantEvent {
    /// More of the answer.
    TextDelta {
        /// The piece.
        delta: String,
    },
    /// More of the reasoning.
    ThinkingDelta {
        /// The piece.
        delta: String,
    },
    /// A tool is going to be called.
    #[serde(rename = "toolcall_start")]
    ToolcallStart {
        /// The call.
        tool_id: String,
        /// The tool.
        tool_name: String,
    },
    /// More of the input's JSON text.
    #[serde(rename = "toolcall_input_delta")]
    ToolcallInputDelta {
        /// The call.
        tool_id: String,
        /// The piece.
        delta: String,
    },
    /// The whole input.
    #[serde(rename = "toolcall_input")]
    ToolcallInput {
        /// The call.
        tool_id: String,
        /// The input.
        input: Value,
    },
    /// What the tool gave back.
    #[serde(rename = "toolcall_result")]
    ToolcallResult {
        /// The call.
        tool_id: String,
        /// All of it.
        result: String,
    },
}

/// What a turn consumed, over all its model calls. Whole numbers: the metering parent reads a number
/// with a point as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnUsage {
    /// Tokens read, without those below.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_input_tokens: u64,
    /// Tokens written to the provider's cache.
    #[serde(default)]
    pub cache_creation_input_tokens: u64,
    /// Of these, those kept for five minutes, where the provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_5m: Option<u64>,
    /// Of these, those kept for an hour, where the provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_1h: Option<u64>,
    /// The first model that was used, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// Each text is one frame, and comes back as it was.
    fn round_trip<T: Serialize + DeserializeOwned>(texts: &[&str]) {
        for text in texts {
            let frame: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(serde_json::to_string(&frame).unwrap(), *text);
        }
    }

    #[test]
    fn every_command_comes_back_as_it_was() {
        round_trip::<RpcCommand>(&[
            r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"/a","name":"a","mime":"t/p"}]}"#,
            r#"{"type":"prompt","id":"","message":"","attachments":[{"path":"/a"}]}"#,
            r#"{"type":"follow_up","id":"f","message":"m"}"#,
            r#"{"type":"compact","id":"c"}"#,
            r#"{"type":"new_session","id":"n"}"#,
            r#"{"type":"get_messages","id":"g"}"#,
            r#"{"type":"set_model","id":"s","model":"m"}"#,
            r#"{"type":"get_available_models","id":"g"}"#,
            r#"{"type":"abort","id":"a"}"#,
            r#"{"type":"get_session_stats","id":"g"}"#,
            r#"{"type":"get_state","id":"g"}"#,
            r#"{"type":"tools_list","id":"t"}"#,
            r#"{"type":"tools_list"}"#,
            r#"{"type":"shutdown"}"#,
        ]);
        let without: RpcCommand =
            serde_json::from_str(r#"{"type":"prompt","id":"p","message":"m"}"#).unwrap();
        let RpcCommand::Prompt { attachments, .. } = without else { panic!("{without:?}") };
        assert!(attachments.is_empty());
    }

    #[test]
    fn every_event_comes_back_as_it_was() {
        round_trip::<RpcEvent>(&[
            r#"{"type":"ready","session_id":"s","model":"m","protocol_version":1}"#,
            r#"{"type":"message_update","event":{"type":"text_delta","delta":"d"}}"#,
            r#"{"type":"subagent_start","subagent_id":1,"agent_name":"a","task_preview":"t"}"#,
            r#"{"type":"subagent_update","subagent_id":1,"agent_name":"a","status":"s"}"#,
            r#"{"type":"subagent_done","subagent_id":1,"agent_name":"a","result_preview":"r","duration_secs":2.0}"#,
            r#"{"type":"response","id":"i","command":"get_state","model":"m","streaming":false}"#,
            r#"{"type":"error","id":"i","message":"m"}"#,
            r#"{"type":"error","message":"m"}"#,
        ]);
    }

    #[test]
    fn every_assistant_event_comes_back_as_it_was() {
        round_trip::<AssistantEvent>(&[
            r#"{"type":"text_delta","delta":"d"}"#,
            r#"{"type":"thinking_delta","delta":"d"}"#,
            r#"{"type":"toolcall_start","tool_id":"t","tool_name":"n"}"#,
            r#"{"type":"toolcall_input_delta","tool_id":"t","delta":"{\"a\""}"#,
            r#"{"type":"toolcall_input","tool_id":"t","input":{"a":1}}"#,
            r#"{"type":"toolcall_result","tool_id":"t","result":"r"}"#,
        ]);
    }

    #[test]
    fn usage_comes_back_as_it_was_and_is_whole_numbers() {
        round_trip::<RpcEvent>(&[
            r#"{"type":"agent_end","usage":{"input_tokens":812,"output_tokens":64,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"model":"m"}}"#,
        ]);
        round_trip::<TurnUsage>(&[
            r#"{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4,"cache_creation_5m":5,"cache_creation_1h":6,"model":"m"}"#,
        ]);
        let old: TurnUsage = serde_json::from_str(r#"{"input_tokens":1,"output_tokens":2}"#).unwrap();
        assert_eq!(old, TurnUsage { input_tokens: 1, output_tokens: 2, ..TurnUsage::default() });
    }
}
