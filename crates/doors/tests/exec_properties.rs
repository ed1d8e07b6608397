//! Properties of the exec door that hold for any frames, in any order and in chunks of any size.
//!
//! The harness checks most of them at every step (`parlor_doors::fuzz_harness`). These tests generate whole conversations
//! and check the frames that the client received.

use std::collections::HashMap;

use parlor_doors::fuzz_harness::{Dialect, play};
use proptest::prelude::*;
use serde_json::{Value, json};

const HANDSHAKE: &str = concat!(
    r#"{"id":"hello","method":"initialize","params":{"clientName":"property"}}"#,
    "\n",
    r#"{"method":"initialized"}"#,
    "\n"
);

/// Few names, so that they are often reused.
fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "\u{e4} \"\n"])
}

/// One call without its id.
fn call() -> impl Strategy<Value = Value> {
    let start = |(name, tty)| {
        json!({"method": "command/exec", "params":
            {"processId": name, "argv": ["x"], "cwd": "/", "env": {}, "tty": tty}})
    };
    let write =
        |name| json!({"method": "command/exec/write", "params": {"processId": name, "chunk": "eA=="}});
    let end = |name| json!({"method": "command/exec/terminate", "params": {"processId": name}});
    prop_oneof![
        4 => (name(), any::<bool>()).prop_map(start),
        4 => name().prop_map(write),
        2 => name().prop_map(end),
        1 => Just(json!({"method": "command/exec", "params": {}})),
        1 => Just(json!({"method": "no/such"})),
    ]
}

/// Few ids of both types, so that two open requests often have the same id.
fn id() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![json!(1), json!("1"), json!(2), json!(-1)])
}

/// Any line: mostly a call, sometimes an invalid line.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let request = (id(), call()).prop_map(|(id, mut call)| {
        call["id"] = id;
        call.to_string().into_bytes()
    });
    let other =
        prop::sample::select(vec!["", "[]", r#"{"method":"m"}"#, r#"{"id":1,"result":2}"#, "\r", "\u{e4}"]);
    prop_oneof![
        12 => request,
        2 => other.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn count<T: std::hash::Hash + Eq>(of: impl IntoIterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for one in of {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_request_has_one_response_and_each_process_starts_and_exits_once(
        calls in prop::collection::vec((id(), call()), 0..60), choices in choices(),
    ) {
        let mut stream = HANDSHAKE.to_owned();
        for (id, call) in &calls {
            let mut request = call.clone();
            request["id"] = id.clone();
            stream.push_str(&request.to_string());
            stream.push('\n');
        }
        let received: Vec<Value> = play(Dialect::Exec, &[stream], &choices)
            .iter()
            .map(|frame| serde_json::from_slice(frame).unwrap())
            .collect();

        let expected_ids = calls.iter().map(|(id, _)| id.to_string()).chain(["\"hello\"".to_owned()]);
        let replied = received.iter().filter_map(|frame| frame.get("id")).map(ToString::to_string);
        prop_assert_eq!(count(replied), count(expected_ids));

        for name in ["a", "b", "\u{e4} \"\n"] {
            let its_frames = received.iter().filter_map(|frame| {
                let about = |part: &str| frame[part]["processId"] == name;
                match frame["method"].as_str() {
                    Some("command/exec/outputDelta") if about("params") => Some('o'),
                    Some("command/exec/exited") if about("params") => Some('e'),
                    None if about("result") => Some('r'),
                    _ => None,
                }
            });
            let lifecycle: String = its_frames.collect();
            let valid = lifecycle.split_inclusive('e').all(|lifecycle| {
                lifecycle.starts_with('r') && lifecycle.ends_with('e') && lifecycle.matches('r').count() == 1
            });
            prop_assert!(valid, "{:?} lived {}", name, lifecycle);
        }
    }

    #[test]
    fn frames_do_not_depend_on_the_sizes_of_chunks(
        lines in prop::collection::vec(line(), 0..30), with_handshake: bool, choices in choices(), last_newline: bool,
        cut_points in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut stream = if with_handshake { HANDSHAKE.as_bytes().to_vec() } else { Vec::new() };
        stream.extend(lines.join(&b'\n'));
        stream.extend(last_newline.then_some(b'\n'));
        let mut offsets: Vec<usize> = cut_points.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        offsets.extend([0, stream.len()]);
        offsets.sort_unstable();
        let chunks: Vec<&[u8]> = offsets.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        prop_assert_eq!(play(Dialect::Exec, &chunks, &choices), play(Dialect::Exec, &[&stream], &choices));
    }
}
