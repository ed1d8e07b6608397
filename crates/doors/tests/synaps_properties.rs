//! Properties of the synaps door that hold for any frames, in any order and in chunks of any size.
//!
//! The harness checks most of them at every step (`parlor_doors::fuzz_harness`). These tests generate whole conversations
//! and check the frames that the client received.

use std::collections::HashMap;

use parlor_doors::fuzz_harness::{Dialect, play};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Few ids, so that two open commands often have the same id.
fn id() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "auto:1", "", "\u{e4} \"\n"])
}

/// One command without its id.
fn command() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec!["/f", "relative", "/a/../b"]);
    let prompt = prop::collection::vec(path, 0..3).prop_map(|paths| {
        let files: Vec<Value> = paths.iter().map(|path| json!({"path": path})).collect();
        json!({"type": "prompt", "message": "\u{e4}", "attachments": files})
    });
    let plain = prop::sample::select(vec![
        "abort",
        "compact",
        "new_session",
        "get_messages",
        "get_state",
        "get_session_stats",
        "get_available_models",
        "tools_list",
    ]);
    prop_oneof![
        5 => prompt,
        2 => Just(json!({"type": "follow_up", "message": "m"})),
        8 => plain.prop_map(|kind| json!({"type": kind})),
        1 => Just(json!({"type": "set_model", "model": "m\u{e4}"})),
    ]
}

/// Any line: mostly a command, sometimes an invalid line.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let valid = (id(), command()).prop_map(|(id, mut command)| {
        command["id"] = json!(id);
        command.to_string().into_bytes()
    });
    let other = prop::sample::select(vec![
        "",
        "[]",
        "\r",
        "\u{feff}{}",
        r#"{"type":"bogus","id":"q"}"#,
        r#"{"type":"tools_list"}"#,
        r#"{"type":"prompt","id":7,"message":"x"}"#,
        r#"{"type":"shutdown"}"#,
    ]);
    prop_oneof![
        20 => valid,
        2 => other.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

fn received(stream: String, choices: &[u8]) -> Vec<Value> {
    play(Dialect::Synaps, &[stream], choices)
        .iter()
        .map(|frame| serde_json::from_slice(frame).expect("a frame is JSON"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_command_is_settled_once_and_each_turn_ends_once(
        commands in prop::collection::vec((id(), command()), 0..60), choices in choices(),
    ) {
        let mut stream = String::new();
        let mut expected: HashMap<&str, usize> = HashMap::new();
        for (id, command) in &commands {
            let mut command = command.clone();
            command["id"] = json!(id);
            stream.push_str(&command.to_string());
            stream.push('\n');
            *expected.entry(*id).or_default() += 1;
        }
        let received = received(stream, &choices);

        // An error settles a command, except the error of a failed turn, which the response repeats.
        let mut settled: HashMap<&str, usize> = HashMap::new();
        let (mut ends, mut turns) = (0, 0);
        for (offsets, frame) in received.iter().enumerate() {
            let after = |distance: usize| received.get(offsets + distance).unwrap_or(&Value::Null);
            match frame["type"].as_str() {
                Some("error") if after(1)["type"] == "agent_end" && after(2)["error"] == frame["message"] => {}
                Some("response" | "error") => *settled.entry(frame["id"].as_str().unwrap()).or_default() += 1,
                Some("agent_end") => {
                    ends += 1;
                    prop_assert_eq!(&after(1)["type"], "response");
                    prop_assert_eq!(&after(1)["command"], "prompt");
                }
                _ => {}
            }
            // A prompt that is refused late has a response instead of an error, and no turn.
            let is_refused = frame["ok"] == false
                && offsets.checked_sub(1).is_none_or(|before| received[before]["type"] != "agent_end");
            let is_prompt = frame["type"] == "response" && frame["command"] == "prompt";
            turns += usize::from(is_prompt && !is_refused);
        }
        prop_assert_eq!(settled, expected);
        prop_assert_eq!(ends, turns);
        prop_assert_eq!(received.iter().filter(|frame| frame["type"] == "ready").count(), 1);
    }

    #[test]
    fn frames_do_not_depend_on_the_sizes_of_chunks(
        lines in prop::collection::vec(line(), 0..30), choices in choices(), last_newline: bool,
        cut_points in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut stream = lines.join(&b'\n');
        stream.extend(last_newline.then_some(b'\n'));
        let mut offsets: Vec<usize> = cut_points.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        offsets.extend([0, stream.len()]);
        offsets.sort_unstable();
        let chunks: Vec<&[u8]> = offsets.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        let (cut, valid) = (play(Dialect::Synaps, &chunks, &choices), play(Dialect::Synaps, &[&stream], &choices));
        prop_assert_eq!(cut, valid);
    }
}
