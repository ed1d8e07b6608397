//! What holds for the loaf door whatever is said, in whatever order and in whatever pieces.
//!
//! Most of it is checked by the harness at every step (`parlor_doors::talk`). Here whole conversations are made
//! up, in sessions whose ids are known because the harness gives them out in order.

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

/// A line of any kind: mostly a request, now and then something that is none.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let ids = prop::sample::select(vec![json!(1), json!("a"), json!(null), json!(1.5), json!("\u{e4}\n")]);
    let whole = (ids, request(), 0..2_usize).prop_map(|(id, (method, mut params), session)| {
        params["session_id"] = json!(sessions()[session]);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().into_bytes()
    });
    let stray = prop::sample::select(vec![
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
        30 => whole,
        2 => stray.prop_map(|text| text.as_bytes().to_vec()),
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
fn the_seeds_of_the_fuzzer_speak_to_sessions_that_there_are() {
    let seeds = include_str!("../../../fuzz/seed.sh");
    assert!(sessions().iter().all(|id| seeds.contains(id)), "{:?}", sessions());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_request_is_answered_once_and_each_turn_ends_once(
        lines in prop::collection::vec(line(), 0..60), choices in choices(),
    ) {
        let heard = play(Dialect::Loaf, &[stream(&lines)], &choices);
        prop_assert!(heard.len() >= 4, "two sessions were created");
    }

    #[test]
    fn any_cut_of_the_bytes_gives_the_same_frames(
        lines in prop::collection::vec(line(), 0..30), choices in choices(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream = stream(&lines);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        prop_assert_eq!(play(Dialect::Loaf, &pieces, &choices), play(Dialect::Loaf, &[&stream], &choices));
    }
}
