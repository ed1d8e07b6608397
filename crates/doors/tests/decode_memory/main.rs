//! Decoding a frame takes memory in proportion to its bytes, whatever the frame contains.
//!
//! A frame of many tiny values is an attack: as a tree it takes a hundred times its bytes, and two such frames of the
//! largest size once exhausted a server's memory. Every door gets hostile values in every member that it might build.

mod counting;
mod doors;

use counting::{CountingAllocator, peak_of};
use doors::{bridge, exec, loaf, repl, supr, synaps};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The most memory for decoding and answering a frame, as a multiple of its bytes. The frame itself is not counted.
const MAX_FACTOR: usize = 4;

/// The size of the hostile values. The measured factors do not depend on it, and every door accepts frames that are four
/// times larger.
const VALUE_BYTES: usize = 256 << 10;

/// JSON values of about `bytes` bytes whose trees are large.
fn hostile_values(bytes: usize) -> Vec<(&'static str, String)> {
    let repeated = |item: &str| vec![item; bytes / (item.len() + 1)].join(",");
    let numbered = |member: fn(usize) -> String| {
        let (mut text, mut number) = (String::with_capacity(bytes), 0);
        while text.len() < bytes - 64 {
            text.push_str(&member(number));
            text.push(',');
            number += 1;
        }
        text.pop();
        text
    };
    vec![
        ("tiny arrays", format!("[{}]", repeated("[0]"))),
        ("empty arrays", format!("[{}]", repeated("[]"))),
        ("tiny objects", format!("[{}]", repeated(r#"{"a":0}"#))),
        ("empty objects", format!("[{}]", repeated("{}"))),
        ("numbers", format!("[{}]", repeated("0"))),
        ("short strings", format!("[{}]", repeated(r#""x""#))),
        ("empty strings", format!("[{}]", repeated(r#""""#))),
        ("objects of paths", format!("[{}]", repeated(r#"{"path":"a"}"#))),
        ("many keys", format!("{{{}}}", numbered(|number| format!(r#""{number:x}":0"#)))),
        ("one key again and again", format!("{{{}}}", numbered(|_| r#""a":0"#.to_owned()))),
        ("one long string", format!("\"{}\"", "x".repeat(bytes))),
        ("one long string of escapes", format!("\"{}\"", r"\n".repeat(bytes / 2))),
        ("half pairs", format!("[{}]", repeated(r#""\ud800""#))),
    ]
}

/// Passes each frame to a machine of its own with `take`, and checks the memory that it takes.
fn assert_bounded(door: &str, frames: impl IntoIterator<Item = (String, String)>, take: fn(&[u8])) {
    let mut failures = Vec::new();
    for (what, frame) in frames {
        let peak = peak_of(|| take(frame.as_bytes()));
        if peak > MAX_FACTOR * frame.len() {
            let tenths = peak * 10 / frame.len();
            failures.push(format!("{what}: {}.{} times its bytes", tenths / 10, tenths % 10));
        }
    }
    assert!(failures.is_empty(), "{door}, more than {MAX_FACTOR} times:\n{}", failures.join("\n"));
}

/// Frames from templates: each hostile value in each template, in the place of `#`.
fn frames(templates: &[&str]) -> Vec<(String, String)> {
    let values = hostile_values(VALUE_BYTES);
    let frames = templates.iter().flat_map(|template| {
        values
            .iter()
            .map(move |(what, value)| (format!("{what} in {template}"), template.replacen('#', value, 1)))
    });
    frames.collect()
}

/// Frames from templates, with many members in the place of `#`.
fn with_many_keys(templates: &[&str]) -> Vec<(String, String)> {
    let object = hostile_values(VALUE_BYTES)
        .into_iter()
        .find(|(what, _)| *what == "many keys")
        .expect("it is one of the values")
        .1;
    let members = object.trim_start_matches('{').trim_end_matches('}').to_owned();
    templates
        .iter()
        .map(|template| (format!("many keys beside {template}"), template.replacen('#', &members, 1)))
        .collect()
}

#[test]
fn a_supr_frame_takes_a_small_multiple_of_its_bytes() {
    let templates = [
        r#"{"type":"ping","payload":#}"#,
        r#"{"type":"ping","payload":{"a":#}}"#,
        r#"{"payload":{"a":#},"type":"ping"}"#,
        r#"{"type":"ping","other":#}"#,
        r#"{"type":#}"#,
        r#"{"type":"ping","id":#}"#,
        r#"{"type":"message.send","payload":{"content":#}}"#,
        r#"{"type":"message.send","payload":{"content":"hi","reasoning":#}}"#,
        r#"{"type":"message.send","payload":{"content":"hi","agent_id":#,"model":#}}"#,
        r#"{"type":"media.send","payload":{"attachments":#}}"#,
        r#"{"type":"media.send","payload":{"attachments":[#]}}"#,
        r#"{"type":"media.send","payload":{"attachments":[{"data":#}]}}"#,
        r#"{"type":"media.send","payload":{"data":#}}"#,
        r#"{"type":"run.stop","payload":{"run_id":#}}"#,
        r#"{"type":"nobody knows","payload":#}"#,
        "#",
    ];
    let beside = [r#"{"type":"ping",#}"#, r#"{"type":"message.send","payload":{"content":"hi",#}}"#];
    let all = frames(&templates).into_iter().chain(with_many_keys(&beside));
    assert_bounded("supr", all, supr);
}

#[test]
fn a_loaf_line_takes_a_small_multiple_of_its_bytes() {
    let templates = [
        r#"{"jsonrpc":"2.0","id":1,"method":"session.send","params":#}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"session.send","params":{"session_id":"s","text":"t","images":#}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"session.send","params":{"session_id":"s","text":#}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"rpc.handshake","params":{"other":#}}"#,
        r#"{"jsonrpc":"2.0","id":#,"method":"rpc.handshake"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":#}"#,
        r#"{"jsonrpc":"2.0","id":1,"other":#,"method":"tools.list"}"#,
        "#",
    ];
    let beside = [
        r#"{"jsonrpc":"2.0","id":1,"method":"session.send","params":{"session_id":"s","text":"t",#}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"session.send","params":{"images":[{"path":"p",#}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools.list",#}"#,
    ];
    let all = frames(&templates).into_iter().chain(with_many_keys(&beside));
    assert_bounded("loaf", all, loaf);
}

#[test]
fn a_synaps_line_takes_a_small_multiple_of_its_bytes() {
    let templates = [
        r#"{"type":"get_state","id":"a","other":#}"#,
        r#"{"other":#,"type":"get_state","id":"a"}"#,
        r#"{"type":"bogus","id":"a","other":#}"#,
        r#"{"type":"prompt","id":"a","message":#}"#,
        r#"{"type":"prompt","id":"a","message":"m","attachments":#}"#,
        r#"{"type":"prompt","id":"a","message":"m","attachments":[{"path":"/p","other":#}]}"#,
        r#"{"type":"get_state","id":#}"#,
        r#"{"type":#,"id":"a"}"#,
        "#",
    ];
    let beside = [r#"{"type":"get_state","id":"a",#}"#];
    let all = frames(&templates).into_iter().chain(with_many_keys(&beside));
    assert_bounded("synaps", all, synaps);
}

#[test]
fn a_supex_line_takes_a_small_multiple_of_its_bytes() {
    let hello = [
        r#"{"jsonrpc":"2.0","id":1,"method":"hello","params":#}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"hello","params":{"name":"n","version":"v","agent":"a","pid":1,"features":#}}"#,
        r#"{"jsonrpc":"2.0","id":#,"method":"hello"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":#}"#,
        "#",
    ];
    let calls = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":#}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"eval_ruby","arguments":#}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take_batch_screenshots","arguments":{"shots":#}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"eval_ruby","arguments":{"code":#}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"command":"eval_ruby","parameters":#}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"eval","params":#}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"eval","params":{"code":#}}"#,
    ];
    let beside = [
        r#"{"jsonrpc":"2.0","id":1,"method":"hello","params":{"name":"n","version":"v","agent":"a","pid":1,#}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"eval_ruby","arguments":{"code":"1",#}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"eval","params":{"code":"1",#}}"#,
    ];
    let all = || {
        let placed = frames(&hello).into_iter().chain(frames(&calls));
        placed.chain(with_many_keys(&beside))
    };
    assert_bounded("the supex bridge", all(), bridge);
    assert_bounded("the supex console", all(), repl);
}

#[test]
fn an_exec_line_takes_a_small_multiple_of_its_bytes() {
    let templates = [
        r#"{"id":1,"method":"initialize","params":#}"#,
        r#"{"id":1,"method":"initialize","params":{"clientName":"c","other":#}}"#,
        r#"{"id":1,"method":"command/exec","params":#}"#,
        r#"{"id":1,"method":"command/exec","params":{"processId":"p","cwd":"/","argv":["a"],"tty":false,"other":#}}"#,
        r#"{"id":1,"method":"nobody knows","params":#}"#,
        r#"{"id":#,"method":"initialize"}"#,
        r#"{"id":1,"method":#}"#,
        "#",
    ];
    let beside = [r#"{"id":1,"method":"initialize","params":{"clientName":"c",#}}"#];
    let all = frames(&templates).into_iter().chain(with_many_keys(&beside));
    assert_bounded("exec", all, exec);
}
