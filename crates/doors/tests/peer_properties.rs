//! Properties of the peer door that hold for any frames, in any order and in chunks of any size.
//!
//! The harness checks most of them at every step (`parlor_doors::fuzz_harness`). These tests generate whole connections
//! and check the frames that the other process received.

use parlor_doors::fuzz_harness::{Dialect, play};
use proptest::prelude::*;
use serde_json::{Value, json};

const HELLO: &str = r#"{"hello":{"versions":[1],"program":"0.1.0","pid":1}}"#;

/// One command to a session.
fn command() -> impl Strategy<Value = Value> {
    let when_busy = prop::sample::select(vec!["refuse", "enqueue", "steer"]);
    let key = prop::sample::select(vec![json!(null), json!("peer:1"), json!("")]);
    let send = (when_busy, key, "[a\u{e4}\n\"]{0,3}").prop_map(|(when_busy, key, text)| {
        json!({"send": {"input": {"text": text, "key": key, "choice": {"reasoning": "low"}}, "when_busy": when_busy}})
    });
    let plain = prop::sample::select(vec![
        json!("clear_queue"),
        json!("clear_history"),
        json!({"stop": {}}),
        json!({"stop": {"run": "run_1", "reason": "r"}}),
        json!({"compact": {"keep": 2}}),
        json!({"rename": {"title": "t"}}),
        json!({"choose_agent": {"agent": "a", "model": null}}),
    ]);
    prop_oneof![3 => send, 4 => plain]
}

/// One request. Few ids and sessions, so that both are often used twice.
fn request() -> impl Strategy<Value = Value> {
    let session = prop::sample::select(vec!["s", "t", ""]);
    let id = prop::sample::select(vec![0, 1, u64::MAX]);
    let kind = prop::sample::select(vec!["watch", "watch", "unwatch", "delete"]);
    let command = (id.clone(), session.clone(), command()).prop_map(
        |(id, session, command)| json!({"command": {"id": id, "session": session, "command": command}}),
    );
    let other =
        (id, session, kind).prop_map(|(id, session, kind)| json!({kind: {"id": id, "session": session}}));
    prop_oneof![3 => command, 4 => other]
}

/// Any line: mostly a request, rarely one that ends the connection.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let invalid = prop::sample::select(vec![
        "",
        "[]",
        "\r",
        HELLO,
        r#"{"watch":{"id":1}}"#,
        r#"{"closed":{"session":"s"}}"#,
        r#"{"command":{"id":1,"session":"s","command":"explode"}}"#,
    ]);
    prop_oneof![
        60 => request().prop_map(|request| request.to_string().into_bytes()),
        1 => invalid.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// The lines after a hello.
fn stream(lines: &[Vec<u8>]) -> Vec<u8> {
    [&[HELLO.as_bytes().to_vec()], lines].concat().join(&b'\n')
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_request_is_answered_once_until_a_line_ends_the_connection(
        lines in prop::collection::vec(request(), 0..60), choices in prop::collection::vec(0..255_u8, 0..400),
    ) {
        let lines: Vec<Vec<u8>> = lines.iter().map(|line| line.to_string().into_bytes()).collect();
        let received = play(Dialect::Peer, &[stream(&lines)], &choices);
        let frames: Vec<Value> =
            received.iter().map(|frame| serde_json::from_slice(frame).expect("a frame is JSON")).collect();
        let is_answer = |frame: &&Value| frame.get("reply").or(frame.get("refusal")).is_some();
        prop_assert!(frames[0].get("hello").is_some());
        prop_assert_eq!(frames.iter().filter(is_answer).count(), lines.len());
    }

    #[test]
    fn frames_do_not_depend_on_the_sizes_of_chunks(
        lines in prop::collection::vec(line(), 0..30), choices in choices(),
        cut_points in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream = stream(&lines);
        let mut offsets: Vec<usize> = cut_points.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        offsets.extend([0, stream.len()]);
        offsets.sort_unstable();
        let chunks: Vec<&[u8]> = offsets.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        prop_assert_eq!(play(Dialect::Peer, &chunks, &choices), play(Dialect::Peer, &[&stream], &choices));
    }
}
