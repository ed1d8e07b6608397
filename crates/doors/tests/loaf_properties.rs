//! Properties of the loaf door that hold for any frames, in any order and in chunks of any size.
//!
//! The harness checks most of them at every step (`parlor_doors::fuzz_harness`). These tests generate whole conversations
//! and check the frames that the client received.

use std::sync::OnceLock;

use parlor_doors::fuzz_harness::{Dialect, play};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The ids of the first two sessions.
fn sessions() -> &'static [String; 2] {
    static SESSIONS: OnceLock<[String; 2]> = OnceLock::new();
    SESSIONS.get_or_init(create_two)
}

fn create_two() -> [String; 2] {
    let create = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"session.create\"}\n".repeat(2);
    let frames = play(Dialect::Loaf, &[create], &[]);
    let mut ids = frames.iter().filter_map(|frame| {
        let frame: Value = serde_json::from_slice(frame).expect("a frame is JSON");
        frame["result"]["session_id"].as_str().map(str::to_owned)
    });
    [ids.next().expect("one"), ids.next().expect("another")]
}

/// One request of a session, without its id.
fn request() -> impl Strategy<Value = (&'static str, Value)> {
    let prompt = prop::sample::select(vec!["hi", "see $x", "\u{e4} \u{1f600}", ""]);
    let images = prop::sample::select(vec![
        json!(null),
        json!([{"path": "a.png"}]),
        json!([{"data_url": "data:image/png;base64,aGk="}, {"path": "b.txt"}]),
    ]);
    let send = (prompt, images, any::<bool>()).prop_map(|(text, images, enqueue)| {
        ("session.send", json!({"text": text, "images": images, "enqueue": enqueue}))
    });
    let command =
        prop::sample::select(vec!["/clear", "/compress", "/history x", "/forgeteverything", "/model", "hi"]);
    let plain = prop::sample::select(vec![
        "session.get",
        "session.interrupt",
        "session.queue.list",
        "session.queue.clear",
        "history.clear_session",
        "history.list",
        "model.list",
        "state.get",
        "events.replay",
        "auth.connect.openai",
        "session.list",
    ]);
    prop_oneof![
        8 => send,
        3 => Just(("session.steer", json!({"text": "left"}))),
        3 => command.prop_map(|command| ("command.execute", json!({"raw_command": command}))),
        6 => plain.prop_map(|method| (method, json!({}))),
        1 => Just(("session.rename", json!({"title": "t"}))),
        1 => Just(("model.select", json!({"model_id": "routed", "provider": "openrouter", "thinking_level": "LOW",
                                          "compress_immediately": true}))),
    ]
}

/// Any line: mostly a request, sometimes an invalid line.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let ids = prop::sample::select(vec![json!(1), json!("a"), json!(null), json!(1.5), json!("\u{e4}\n")]);
    let valid = (ids, request(), 0..2_usize).prop_map(|(id, (method, mut params), session)| {
        params["session_id"] = json!(sessions()[session]);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().into_bytes()
    });
    let other = prop::sample::select(vec![
        "",
        "[]",
        "{}",
        "\r",
        "\u{feff}{}",
        r#"{"jsonrpc":"2.0","method":"session.create"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"system.ping"}"#,
        r#"{"jsonrpc":"2.0","id":"\ud800","method":"system.ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"session.close","params":{"session_id":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"system.shutdown"}"#,
    ]);
    prop_oneof![
        30 => valid,
        2 => other.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn stream(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"session.create\"}\n".repeat(2);
    stream.extend(lines.join(&b'\n'));
    stream
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

#[test]
fn the_seeds_of_the_fuzzer_name_existing_sessions() {
    let seeds = include_str!("../../../fuzz/seed.sh");
    assert!(sessions().iter().all(|id| seeds.contains(id)), "{:?}", sessions());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_request_is_answered_once_and_each_turn_ends_once(
        lines in prop::collection::vec(line(), 0..60), choices in choices(),
    ) {
        let received = play(Dialect::Loaf, &[stream(&lines)], &choices);
        prop_assert!(received.len() >= 4, "two sessions were created");
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
        prop_assert_eq!(play(Dialect::Loaf, &chunks, &choices), play(Dialect::Loaf, &[&stream], &choices));
    }
}
