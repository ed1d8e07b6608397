//! The wire types: commands of the parent and events of the child.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the wire format. The child sends it in `ready`, and a parent refuses any other version.
pub const RPC_PROTOCOL_VERSION: u32 = 1;

/// A command of the parent. Every command except `shutdown` has an id, which the answer repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RpcCommand {
    /// Starts a turn.
    Prompt {
        /// Repeated in the answer.
        id: String,
        /// The user's text.
        message: String,
        /// The files of the prompt, at most `MAX_ATTACHMENTS`.
        #[serde(default)]
        attachments: Vec<RpcAttachment>,
        /// Adds the text to the turn that runs, whoever began it, instead of starting one. An addition of parlor.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steer: bool,
    },
    /// Starts another turn in the same conversation.
    FollowUp {
        /// Repeated in the answer.
        id: String,
        /// The user's text.
        message: String,
    },
    /// Replaces the history with a summary.
    Compact {
        /// Repeated in the answer.
        id: String,
    },
    /// Starts a new conversation.
    NewSession {
        /// Repeated in the answer.
        id: String,
    },
    /// Asks for the history.
    GetMessages {
        /// Repeated in the answer.
        id: String,
    },
    /// Chooses the model of the next turns.
    SetModel {
        /// Repeated in the answer.
        id: String,
        /// The id of the model.
        model: String,
    },
    /// Asks for the models that can be chosen.
    GetAvailableModels {
        /// Repeated in the answer.
        id: String,
    },
    /// Stops the running turn.
    Abort {
        /// Repeated in the answer.
        id: String,
    },
    /// Asks for the usage of the conversation.
    GetSessionStats {
        /// Repeated in the answer.
        id: String,
    },
    /// Asks whether a turn is running, and for the model in use.
    GetState {
        /// Repeated in the answer.
        id: String,
    },
    /// Asks for the tools of the agent.
    ToolsList {
        /// Repeated in the answer; without an id the answer has an empty one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Ends the child. The exit of the process is the answer.
    Shutdown,
}

/// A file of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcAttachment {
    /// An absolute path without `..`.
    pub path: String,
    /// A display name. The child ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The MIME type. The child ignores it and looks at the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
}

/// An event of the child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RpcEvent {
    /// The child is ready. Always the first event.
    Ready {
        /// The id of the conversation, for `--continue`.
        session_id: String,
        /// The id of the model in use.
        model: String,
        /// [`RPC_PROTOCOL_VERSION`].
        protocol_version: u32,
    },
    /// The running turn has made progress.
    MessageUpdate {
        /// The progress.
        event: AssistantEvent,
    },
    /// A subagent of the turn has started.
    SubagentStart {
        /// Unique within the connection.
        subagent_id: u64,
        /// The name of the subagent.
        agent_name: String,
        /// The first characters of its task.
        task_preview: String,
    },
    /// A subagent has made progress.
    SubagentUpdate {
        /// The id from `subagent_start`.
        subagent_id: u64,
        /// The name of the subagent.
        agent_name: String,
        /// A short text for people.
        status: String,
    },
    /// A subagent has ended. A preview that begins with `error` means that it failed.
    SubagentDone {
        /// The id from `subagent_start`.
        subagent_id: u64,
        /// The name of the subagent.
        agent_name: String,
        /// The first characters of its result.
        result_preview: String,
        /// How long the subagent ran.
        duration_secs: f64,
    },
    /// The turn has ended. Sent once for each turn, before its response.
    AgentEnd {
        /// What the turn consumed.
        usage: TurnUsage,
    },
    /// The answer to a command.
    Response {
        /// The id of the command.
        id: String,
        /// The type of the command; `prompt` for `follow_up` too.
        command: String,
        /// The members of the answer, which depend on the command.
        #[serde(flatten)]
        body: Map<String, Value>,
    },
    /// The child refuses a command or a line.
    Error {
        /// The id of the command, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// A text for people; parents also search it for words.
        message: String,
    },
}

/// Progress of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AssistantEvent {
    /// More text of the answer.
    TextDelta {
        /// The new piece, without the text before it.
        delta: String,
    },
    /// More text of the reasoning.
    ThinkingDelta {
        /// The new piece, without the text before it.
        delta: String,
    },
    /// The agent begins a tool call.
    #[serde(rename = "toolcall_start")]
    ToolcallStart {
        /// The id of the call.
        tool_id: String,
        /// The name of the tool.
        tool_name: String,
    },
    /// More of the JSON text of the call's input.
    #[serde(rename = "toolcall_input_delta")]
    ToolcallInputDelta {
        /// The id of the call.
        tool_id: String,
        /// The new piece, without the text before it.
        delta: String,
    },
    /// The complete input of a call.
    #[serde(rename = "toolcall_input")]
    ToolcallInput {
        /// The id of the call.
        tool_id: String,
        /// The decoded JSON, or a string if the model wrote invalid JSON.
        input: Value,
    },
    /// The result of a call.
    #[serde(rename = "toolcall_result")]
    ToolcallResult {
        /// The id of the call.
        tool_id: String,
        /// The complete output, or the error text.
        result: String,
        /// What the result has beside the text. Only parlor sends it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Value>,
    },
}

/// The usage of a turn, over all its model calls. All numbers are integers: the parent reads a number with a decimal
/// point as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnUsage {
    /// Input tokens, without those of the caches below.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_input_tokens: u64,
    /// Tokens written to the provider's cache.
    #[serde(default)]
    pub cache_creation_input_tokens: u64,
    /// The part of these that the provider caches for five minutes, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_5m: Option<u64>,
    /// The part of these that the provider caches for an hour, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_1h: Option<u64>,
    /// The first model of the turn, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// Decodes each text and expects that encoding gives the same text.
    fn round_trip<T: Serialize + DeserializeOwned>(texts: &[&str]) {
        for text in texts {
            let frame: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(serde_json::to_string(&frame).unwrap(), *text);
        }
    }

    #[test]
    fn every_command_is_unchanged_by_decoding_and_encoding() {
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
    fn every_event_is_unchanged_by_decoding_and_encoding() {
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
    fn every_assistant_event_is_unchanged_by_decoding_and_encoding() {
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
    fn usage_is_unchanged_and_has_integers() {
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
