//! Properties of the supr door that hold for any frames, in any order and in chunks of any size.
//!
//! The harness checks most of them at every step (`parlor_doors::fuzz_harness`). These tests generate whole conversations
//! and check the frames that the client received.

use std::collections::HashMap;

use parlor_doors::fuzz_harness::{Dialect, play};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any payload: mostly a valid one.
fn payload() -> impl Strategy<Value = Value> {
    let attachment = prop::sample::select(vec![
        json!({"data": "aGk=", "filename": "a.png", "content_type": "image/png"}),
        json!({"data": "***"}),
        json!({"url": "http://h/x", "caption": "\u{e4}"}),
        json!({}),
        json!(7),
    ]);
    prop_oneof![
        8 => Just(json!({"content": "hello \u{e4}"})),
        2 => Just(json!({"content": "hi", "agent_id": "Nobody", "reasoning": " High "})),
        1 => Just(json!({"content": " \n"})),
        1 => Just(json!({"content": "x", "reasoning": "ultra"})),
        3 => prop::collection::vec(attachment, 0..4).prop_map(|items| json!({"attachments": items, "caption": "c"})),
        2 => Just(json!({"data": "aGk="})),
        2 => Just(json!({"run_id": "n7", "reason": " enough "})),
        2 => Just(json!({})),
        1 => Just(Value::Null),
    ]
}

/// Any frame, and whether it is a ping.
fn frame() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let kind = prop::sample::select(vec![
        "message.send",
        "message.send",
        "message.send",
        "media.send",
        "run.stop",
        "ping",
        "nope",
    ]);
    let session =
        prop::sample::select(vec![json!("own"), json!("other"), json!("third"), json!(""), Value::Null]);
    let valid = (kind, payload(), session).prop_map(|(kind, payload, session)| {
        let frame = json!({"type": kind, "id": "i", "session_id": session, "payload": payload});
        (kind == "ping", frame.to_string().into_bytes())
    });
    let other =
        prop::sample::select(vec!["", "{", "[]", "null", "5", "{\"type\":\"ping\",\"id\":7}", "\u{feff}{}"]);
    prop_oneof![
        20 => valid,
        2 => other.prop_map(|text| (false, text.as_bytes().to_vec())),
    ]
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

fn received(frames: &[(bool, Vec<u8>)], choices: &[u8]) -> Vec<Value> {
    let mut stream = Vec::new();
    for (_, frame) in frames {
        stream.extend_from_slice(frame);
        stream.push(b'\n');
    }
    play(Dialect::Supr, &[stream], choices)
        .iter()
        .map(|frame| serde_json::from_slice(frame).expect("a frame is JSON"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_ping_has_a_pong_and_other_frames_at_most_one_error(
        frames in prop::collection::vec(frame(), 0..60), choices in choices(),
    ) {
        let received = received(&frames, &choices);
        let count = |kind: &str| received.iter().filter(|frame| frame["type"] == kind).count();
        let pings = frames.iter().filter(|(is_ping, _)| *is_ping).count();
        prop_assert_eq!(count("agent.list"), 1);
        prop_assert_eq!(&received[0]["type"], "agent.list");
        prop_assert_eq!(count("pong"), pings);
        prop_assert!(count("error") <= frames.len() - pings);
    }

    #[test]
    fn each_run_has_no_gaps_and_one_end(
        frames in prop::collection::vec(frame(), 0..60), choices in choices(),
    ) {
        let received = received(&frames, &choices);
        let mut runs: HashMap<String, Vec<&Value>> = HashMap::new();
        for event in received.iter().filter(|frame| frame["event_type"].is_string()) {
            runs.entry(event["run_id"].as_str().unwrap().to_owned()).or_default().push(event);
        }
        for events in runs.values() {
            let first = events[0]["sequence"].as_u64().unwrap();
            for (event, sequence) in events.iter().zip(first..) {
                prop_assert_eq!(event["sequence"].as_u64(), Some(sequence));
            }
            let ends = |event: &&&Value| matches!(event["event_type"].as_str(), Some("run.completed" | "run.failed"));
            let count = events.iter().filter(ends).count();
            prop_assert!(count <= 1 && (count == 0 || events.last().iter().any(ends)));
            // Replayed events come before new ones.
            let replays: Vec<bool> = events.iter().map(|event| event["replay"].as_bool().unwrap()).collect();
            prop_assert!(replays.is_sorted_by(|before, after| before >= after));
        }
    }

    #[test]
    fn frames_do_not_depend_on_the_sizes_of_chunks(
        frames in prop::collection::vec(frame(), 0..20), choices in choices(),
        cut_points in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let lines: Vec<&[u8]> = frames.iter().map(|(_, frame)| frame.as_slice()).collect();
        let stream = lines.join(&b'\n');
        let mut offsets: Vec<usize> = cut_points.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        offsets.extend([0, stream.len()]);
        offsets.sort_unstable();
        let chunks: Vec<&[u8]> = offsets.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        prop_assert_eq!(play(Dialect::Supr, &chunks, &choices), play(Dialect::Supr, &[&stream], &choices));
    }
}
