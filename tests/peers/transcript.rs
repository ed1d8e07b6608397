//! Makes scripts of the door's transcripts: the lines that the client sends, without the expected frames.
//!
//! Only transcripts that need no agent and in which the peer behaves the same.

use std::path::Path;

use crate::script::{Run, Script, Step};

/// The names of the transcripts.
const TRANSCRIPTS: &[&str] = &[
    "byte_order_mark",
    "commands_before_ready",
    "crlf_and_blank_lines",
    "deep_nesting",
    "frame_at_the_limit",
    "get_available_models",
    "get_messages_fresh",
    "get_session_stats_fresh",
    "get_state",
    "not_json",
    "oversize",
    "oversize_is_not_looked_at",
    "oversize_without_an_end",
    "ready",
    "shutdown",
    "shutdown_with_more",
    "two_objects_on_one_line",
];

/// The transcripts as scripts.
pub(crate) fn scripts() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/synaps");
    let script = |name: &&'static str| {
        let file = folder.join(format!("{name}.txt"));
        let text =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut steps: Vec<Step> = text.lines().filter_map(step).collect();
        // The peer drops unsent frames when its stdin ends, so end it with `shutdown`.
        steps.push(Step::Line(r#"{"type":"shutdown"}"#));
        let runs = Vec::leak(vec![Run { args: &["rpc"], steps: Vec::leak(steps) }]);
        Script { name, runs }
    };
    TRANSCRIPTS.iter().map(script).collect()
}

fn step(line: &str) -> Option<Step> {
    let sent = line.strip_prefix('>')?;
    let bytes = |bytes: Vec<u8>| Step::Bytes(Vec::leak(bytes));
    let byte = |text: &str| u8::from_str_radix(text, 16).expect("a byte");
    Some(match sent.split_once(' ').unwrap_or((sent, "")) {
        ("", text) => bytes(format!("{text}\n").into_bytes()),
        ("-", text) => bytes(text.as_bytes().to_vec()),
        ("x", text) => bytes(text.split_whitespace().map(byte).collect()),
        ("*", text) => {
            let (count, text) = text.split_once(' ').expect("a number and a byte");
            bytes(vec![byte(text); count.parse().expect("a number")])
        }
        _ => panic!("a script cannot have the line {line}"),
    })
}
