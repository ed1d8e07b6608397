//! What holds for the supr door whatever is said, in whatever order and whatever happens meanwhile.
//!
//! Most of it is checked by the harness at every step (`parlor_doors::talk`). Here whole conversations are
//! made up, and what the client heard is looked at once more from outside.

use std::collections::HashMap;

use parlor_doors::fuzz_harness::{Dialect, play};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A payload of any kind: mostly one that is right for something.
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

/// A frame of any kind, and whether it is a ping.
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
    let whole = (kind, payload(), session).prop_map(|(kind, payload, session)| {
        let frame = json!({"type": kind, "id": "i", "session_id": session, "payload": payload});
        (kind == "ping", frame.to_string().into_bytes())
    });
    let stray =
        prop::sample::select(vec!["", "{", "[]", "null", "5", "{\"type\":\"ping\",\"id\":7}", "\u{feff}{}"]);
    prop_oneof![
        20 => whole,
        2 => stray.prop_map(|text| (false, text.as_bytes().to_vec())),
    ]
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

fn heard(frames: &[(bool, Vec<u8>)], choices: &[u8]) -> Vec<Value> {
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
        let heard = heard(&frames, &choices);
        let count = |kind: &str| heard.iter().filter(|frame| frame["type"] == kind).count();
        let pings = frames.iter().filter(|(is_ping, _)| *is_ping).count();
        prop_assert_eq!(count("agent.list"), 1);
        prop_assert_eq!(&heard[0]["type"], "agent.list");
        prop_assert_eq!(count("pong"), pings);
        prop_assert!(count("error") <= frames.len() - pings);
    }

    #[test]
    fn a_client_that_sorts_and_dedupes_has_each_run_without_gaps_and_with_one_end(
        frames in prop::collection::vec(frame(), 0..60), choices in choices(),
    ) {
        let heard = heard(&frames, &choices);
        let mut runs: HashMap<String, Vec<&Value>> = HashMap::new();
        for event in heard.iter().filter(|frame| frame["event_type"].is_string()) {
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
            // What was told before the connection began comes before what happens.
            let replays: Vec<bool> = events.iter().map(|event| event["replay"].as_bool().unwrap()).collect();
            prop_assert!(replays.is_sorted_by(|before, after| before >= after));
        }
    }

    #[test]
    fn any_cut_of_the_bytes_gives_the_same_frames(
        frames in prop::collection::vec(frame(), 0..20), choices in choices(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let lines: Vec<&[u8]> = frames.iter().map(|(_, frame)| frame.as_slice()).collect();
        let stream = lines.join(&b'\n');
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        prop_assert_eq!(play(Dialect::Supr, &pieces, &choices), play(Dialect::Supr, &[&stream], &choices));
    }
}
