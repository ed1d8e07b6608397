//! The intended differences between parlor and its peer, and their reasons.

/// A script in which parlor and the peer differ.
pub(crate) struct Difference {
    /// The name of the script.
    pub(crate) script: &'static str,
    pub(crate) reason: &'static str,
    /// The lines that only parlor has, see `difference` in `main.rs`.
    pub(crate) parlor: &'static [&'static str],
    /// The lines that the peer has instead.
    pub(crate) peer: &'static [&'static str],
}

const SCHEMA: &str =
    "Parents forward tools over MCP, which spells the key of the schema differently; parlor sends both keys.";
const ID: &str = "The parent waits for a response with that id; an error without an id would end the parent.";
const NO_OBJECT: &str = "Only the error texts for what is no object differ, and no program reads them.";
const MODEL: &str = "Parlor accepts any model at any time; the peer repeats a name that it does not know, and does not use it.";
const NOTED: &str = "The sender of a file would see nothing if the prompt were refused, so parlor names the file to the model.";
const FAILED: &str = "Parlor names the model although no tokens were used; no program reads the outcome.";

const PARLOR_END: &str = r#"{"type":"agent_end","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":0,"model":"MODEL","output_tokens":0}}"#;
const PEER_END: &str = r#"{"type":"agent_end","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":0,"output_tokens":0}}"#;
const PARLOR_FAILED: &str = r#"{"command":"prompt","error":"FAILURE","id":"p","ok":false,"type":"response"}"#;
const PEER_FAILED: &str = r#"{"command":"prompt","error":"FAILURE","id":"p","ok":false,"outcome":{"code":"CODE","correlation_id":"CORRELATION","kind":"provider_failed"},"type":"response"}"#;
const NOTED_TURN: &[&str] = &[
    r#"{"event":{"delta":"DELTA","type":"text_delta"},"type":"message_update"}"#,
    PARLOR_END,
    r#"{"command":"prompt","id":"p","ok":true,"type":"response"}"#,
];

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        script: "tools",
        reason: SCHEMA,
        parlor: &[
            r#"{"command":"tools_list","id":"t","ok":true,"tools":["description","inputSchema","input_schema","name"],"type":"response"}"#,
        ],
        peer: &[
            r#"{"command":"tools_list","id":"t","ok":true,"tools":["description","input_schema","name"],"type":"response"}"#,
        ],
    },
    Difference {
        script: "tools without an id",
        reason: SCHEMA,
        parlor: &[
            r#"{"command":"tools_list","id":"","ok":true,"tools":["description","inputSchema","input_schema","name"],"type":"response"}"#,
        ],
        peer: &[
            r#"{"command":"tools_list","id":"","ok":true,"tools":["description","input_schema","name"],"type":"response"}"#,
        ],
    },
    Difference {
        script: "tools with a null id",
        reason: SCHEMA,
        parlor: &[
            r#"{"command":"tools_list","id":"","ok":true,"tools":["description","inputSchema","input_schema","name"],"type":"response"}"#,
        ],
        peer: &[
            r#"{"command":"tools_list","id":"","ok":true,"tools":["description","input_schema","name"],"type":"response"}"#,
        ],
    },
    Difference {
        script: "set model",
        reason: MODEL,
        parlor: &[
            r#"{"command":"get_state","id":"state","message_count":0,"model":"zzz","session_id":"SESSION 1","streaming":false,"type":"response"}"#,
            r#"{"command":"get_session_stats","cost":0.0,"id":"s","input_tokens":0,"message_count":0,"model":"zzz","output_tokens":0,"session_id":"SESSION 1","type":"response"}"#,
        ],
        peer: &[
            r#"{"command":"get_state","id":"state","message_count":0,"model":"MODEL","session_id":"SESSION 1","streaming":false,"type":"response"}"#,
            r#"{"command":"get_session_stats","cost":0.0,"id":"s","input_tokens":0,"message_count":0,"model":"MODEL","output_tokens":0,"session_id":"SESSION 1","type":"response"}"#,
        ],
    },
    Difference {
        script: "new session keeps the model",
        reason: MODEL,
        parlor: &[
            r#"{"command":"get_state","id":"state","message_count":0,"model":"zzz","session_id":"SESSION 2","streaming":false,"type":"response"}"#,
        ],
        peer: &[
            r#"{"command":"get_state","id":"state","message_count":0,"model":"MODEL","session_id":"SESSION 2","streaming":false,"type":"response"}"#,
        ],
    },
    Difference {
        script: "not an object",
        reason: NO_OBJECT,
        parlor: &[
            r#"{"message":"invalid type: string \"shutdown\", expected a JSON object","type":"error"}"#,
            r#"{"message":"invalid type: integer `42`, expected a JSON object","type":"error"}"#,
            r#"{"message":"invalid type: null, expected a JSON object","type":"error"}"#,
            r#"{"message":"invalid type: boolean `true`, expected a JSON object","type":"error"}"#,
        ],
        peer: &[
            r#"{"message":"invalid type: string \"shutdown\", expected internally tagged enum RpcCommand","type":"error"}"#,
            r#"{"message":"invalid type: integer `42`, expected internally tagged enum RpcCommand","type":"error"}"#,
            r#"{"message":"invalid type: null, expected internally tagged enum RpcCommand","type":"error"}"#,
            r#"{"message":"invalid type: boolean `true`, expected internally tagged enum RpcCommand","type":"error"}"#,
        ],
    },
    Difference {
        script: "an array",
        reason: NO_OBJECT,
        parlor: &[r#"{"message":"invalid type: sequence, expected a JSON object","type":"error"}"#],
        peer: &[r#"{"message":"missing field `type`","type":"error"}"#],
    },
    Difference {
        script: "an array that could be a command",
        reason: NO_OBJECT,
        parlor: &[r#"{"message":"invalid type: sequence, expected a JSON object","type":"error"}"#],
        peer: &[r#"{"message":"invalid type: map, expected a string","type":"error"}"#],
    },
    Difference {
        script: "not UTF-8",
        reason: "Parlor answers a malformed line with an error; the peer exits without a frame and without saving.",
        parlor: &[
            r#"{"message":"expected value","type":"error"}"#,
            r#"{"command":"get_state","id":"state","message_count":0,"model":"MODEL","session_id":"SESSION 1","streaming":false,"type":"response"}"#,
        ],
        peer: &[],
    },
    Difference {
        script: "no type",
        reason: ID,
        parlor: &[r#"{"id":"q","message":"missing field `type`","type":"error"}"#],
        peer: &[r#"{"message":"missing field `type`","type":"error"}"#],
    },
    Difference {
        script: "a type that is not a string",
        reason: ID,
        parlor: &[r#"{"id":"q","message":"expected value","type":"error"}"#],
        peer: &[r#"{"message":"invalid type: integer `7`, expected variant identifier","type":"error"}"#],
    },
    Difference {
        script: "unknown type",
        reason: ID,
        parlor: &[
            r#"{"id":"q","message":"unknown variant `bogus`, expected one of `prompt`, `follow_up`, `compact`, `new_session`, `get_messages`, `set_model`, `get_available_models`, `abort`, `get_session_stats`, `get_state`, `tools_list`, `shutdown`","type":"error"}"#,
        ],
        peer: &[
            r#"{"message":"unknown variant `bogus`, expected one of `prompt`, `follow_up`, `compact`, `new_session`, `get_messages`, `set_model`, `get_available_models`, `abort`, `get_session_stats`, `get_state`, `tools_list`, `shutdown`","type":"error"}"#,
        ],
    },
    Difference {
        script: "missing message",
        reason: ID,
        parlor: &[r#"{"id":"q","message":"missing field `message`","type":"error"}"#],
        peer: &[r#"{"message":"missing field `message`","type":"error"}"#],
    },
    Difference {
        script: "attachments that are null",
        reason: ID,
        parlor: &[r#"{"id":"q","message":"invalid type: null, expected a sequence","type":"error"}"#],
        peer: &[r#"{"message":"invalid type: null, expected a sequence","type":"error"}"#],
    },
    Difference {
        script: "attachment without a path",
        reason: ID,
        parlor: &[r#"{"id":"p","message":"missing field `path`","type":"error"}"#],
        peer: &[r#"{"message":"missing field `path`","type":"error"}"#],
    },
    Difference {
        script: "a very long blank line",
        reason: "Parlor does not keep a line over the limit, so it does not know that the line is blank.",
        parlor: &[r#"{"message":"frame exceeds 1 MiB limit","type":"error"}"#],
        peer: &[],
    },
    Difference {
        script: "huge attachment",
        reason: NOTED,
        parlor: NOTED_TURN,
        peer: &[r#"{"id":"p","message":"Attachment exceeds the 10 MiB file limit","type":"error"}"#],
    },
    Difference {
        script: "long text as attachment",
        reason: NOTED,
        parlor: NOTED_TURN,
        peer: &[
            r#"{"id":"p","message":"Text attachment exceeds 256 KiB; select a smaller file","type":"error"}"#,
        ],
    },
    Difference {
        script: "binary attachment",
        reason: NOTED,
        parlor: NOTED_TURN,
        peer: &[
            r#"{"id":"p","message":"Unsupported binary attachment; use an image, PDF, or UTF-8 text file","type":"error"}"#,
        ],
    },
    Difference {
        script: "control characters in an attachment",
        reason: NOTED,
        parlor: NOTED_TURN,
        peer: &[r#"{"id":"p","message":"Attachment is not plain UTF-8 text","type":"error"}"#],
    },
    Difference {
        script: "broken image",
        reason: NOTED,
        parlor: NOTED_TURN,
        peer: &[
            r#"{"id":"p","message":"Invalid or oversized image: use valid PNG/JPEG/GIF/WebP, at most 3.5 MiB and 8000 pixels per side","type":"error"}"#,
        ],
    },
    Difference {
        script: "broken document",
        reason: NOTED,
        parlor: NOTED_TURN,
        peer: &[r#"{"id":"p","message":"Invalid or oversized PDF (10 MiB maximum)","type":"error"}"#],
    },
    Difference {
        script: "text attachment in a turn that fails",
        reason: "The parent takes the first response with an id for the last one, so parlor sends no disclosure first.",
        parlor: &[r#"{"id":"p","message":"FAILURE","type":"error"}"#, PARLOR_END, PARLOR_FAILED],
        peer: &[
            r#"{"command":"attachments.disclosure","count":1,"id":"p","message":"1 attachment(s) loaded from local filesystem","type":"response"}"#,
            r#"{"id":"p","message":"FAILURE","type":"error"}"#,
            PEER_END,
            PEER_FAILED,
        ],
    },
    Difference {
        script: "a turn that fails",
        reason: FAILED,
        parlor: &[PARLOR_END, PARLOR_FAILED],
        peer: &[PEER_END, PEER_FAILED],
    },
    Difference {
        script: "a follow-up that fails",
        reason: FAILED,
        parlor: &[PARLOR_END, PARLOR_FAILED],
        peer: &[PEER_END, PEER_FAILED],
    },
    Difference {
        script: "a turn with an id like that of an automatic one",
        reason: "Parlor starts no turn by itself, so every id is from the parent; the peer ignores this prompt.",
        parlor: &[
            r#"{"id":"auto:1","message":"FAILURE","type":"error"}"#,
            PARLOR_END,
            r#"{"command":"prompt","error":"FAILURE","id":"auto:1","ok":false,"type":"response"}"#,
        ],
        peer: &[r#"no answer to "auto:1""#],
    },
    Difference {
        script: "compact a fresh session",
        reason: "There are no messages to summarize, and nothing to disclose to a model.",
        parlor: &[
            r#"{"id":"c","message":"the session was not compacted: there are no older messages","type":"error"}"#,
        ],
        peer: &[
            r#"{"approx_conversation_bytes":0,"command":"compact.disclosure","excluded_classes":[],"id":"c","included_classes":[],"message_count":0,"mode":"remote","model":"MODEL","provider":"anthropic","type":"response"}"#,
            r#"{"id":"c","message":"FAILURE","type":"error"}"#,
        ],
    },
    Difference {
        script: "instructions that begin with a dash",
        reason: "People write instructions, and a list begins with a dash.",
        parlor: &[
            r#"{"model":"MODEL","protocol_version":1,"session_id":"SESSION 1","type":"ready"}"#,
            "exits with Some(0)",
        ],
        peer: &["exits with Some(2) and writes to stderr"],
    },
    Difference {
        script: "continue after a turn",
        reason: FAILED,
        parlor: &[PARLOR_END, PARLOR_FAILED],
        peer: &[PEER_END, PEER_FAILED],
    },
    Difference {
        script: "continue with another model",
        reason: MODEL,
        parlor: &[
            PARLOR_END,
            PARLOR_FAILED,
            "exits with Some(0)",
            r#"{"model":"yyy","protocol_version":1,"session_id":"SESSION 1","type":"ready"}"#,
            r#"{"command":"get_state","id":"state","message_count":1,"model":"yyy","session_id":"SESSION 1","streaming":false,"type":"response"}"#,
        ],
        peer: &[
            PEER_END,
            PEER_FAILED,
            "exits with Some(0)",
            r#"{"model":"MODEL","protocol_version":1,"session_id":"SESSION 1","type":"ready"}"#,
            r#"{"command":"get_state","id":"state","message_count":1,"model":"MODEL","session_id":"SESSION 1","streaming":false,"type":"response"}"#,
        ],
    },
    Difference {
        script: "continue with another model that the peer knows",
        reason: FAILED,
        parlor: &[PARLOR_END, PARLOR_FAILED],
        peer: &[PEER_END, PEER_FAILED],
    },
    Difference {
        script: "continue a session without messages",
        reason: "A session can be continued from `ready` on, also after a child that died in its first turn.",
        parlor: &[
            r#"{"model":"MODEL","protocol_version":1,"session_id":"SESSION 1","type":"ready"}"#,
            r#"{"command":"get_state","id":"state","message_count":0,"model":"MODEL","session_id":"SESSION 1","streaming":false,"type":"response"}"#,
            "exits with Some(0)",
        ],
        peer: &["exits with Some(1) and writes to stderr"],
    },
];
