//! Too much comes in.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Server, soon};
use crate::system::memory_kib;

/// The longest line that is accepted, without its newline.
const MAX_LINE_BYTES: usize = 64 << 20;

#[tokio::test]
async fn writes_to_a_terminal_that_never_reads_hold_up_nobody() {
    const WRITES: usize = 400;
    let mut server = Server::start().await;
    // Not a terminal that throws away what nobody reads, which it does with endless lines.
    server.start_ready("deaf", "stty raw -echo; echo ready; exec sleep 300", true).await;
    let chunk = base64_simd::STANDARD.encode_to_string(vec![b'x'; 64 * 1024]);
    let mut writes = Vec::new();
    for _ in 0..WRITES {
        writes.push(server.request("command/exec/write", json!({"processId": "deaf", "chunk": chunk})).await);
    }
    let terminate = server.request("command/exec/terminate", json!({"processId": "deaf"})).await;

    let (mut answered, mut terminated, mut accepted) = (Vec::new(), Value::Null, 0);
    let exited = loop {
        let frame = server.frame().await;
        match frame["id"].as_i64() {
            Some(id) if id == terminate => terminated = frame,
            Some(id) => {
                answered.push(id);
                if frame["result"]["accepted"] == true {
                    accepted += 1;
                } else {
                    assert_eq!(frame["error"]["code"], -32603, "{frame}");
                }
            }
            None if frame["method"] == "command/exec/exited" => break frame,
            None => {} // The terminal's last words.
        }
    };
    assert_eq!(terminated["result"], json!({"running": true}));
    assert_eq!(exited["params"]["exitCode"], 137);
    answered.sort_unstable();
    assert_eq!(answered, writes, "one answer for each write");
    assert!(0 < accepted && accepted < WRITES, "{accepted} were accepted; the terminal must have been full");
    assert_eq!(server.terminate("deaf").await["result"], json!({"running": false}), "it still serves");
}

#[tokio::test]
async fn the_longest_line_is_served_and_a_longer_one_costs_one_error() {
    let mut server = Server::start().await;
    server.start_ready("cat", "stty -echo; echo ready; exec cat", true).await;

    server.send(&line_of(MAX_LINE_BYTES)).await;
    assert_eq!(server.frame().await, json!({"id": "long", "result": {"running": false}}));

    // Just too long, and so long that much of it comes after it was found too long.
    for excess in [1, 1 << 20] {
        server.send(&line_of(MAX_LINE_BYTES + excess)).await;
        let error = server.frame().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(-1), &json!(-32600)), "{error}");
    }

    let write = json!({"processId": "cat", "chunk": "c3RpbGwgaGVyZQo="});
    assert_eq!(server.call("command/exec/write", write).await["result"], json!({"accepted": true}));
    assert_eq!(server.line_of("cat").await, "still here");
}

/// How many lines of this size are sent, and what may be left of them, in KiB: less than one of them has.
const LARGE_LINES: usize = 10;
const LARGE_LINE_BYTES: usize = 15 << 20;
const LEFT_KIB: u64 = 8 << 10;

#[tokio::test]
async fn what_large_lines_took_is_given_back() {
    let mut server = Server::start().await;
    let before = memory_kib(server.pid());
    for _ in 0..LARGE_LINES {
        server.send(&line_of(LARGE_LINE_BYTES)).await;
        assert_eq!(server.frame().await["id"], "long");
    }
    soon("the memory of large lines is given back", async {
        while memory_kib(server.pid()) > before + LEFT_KIB {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A request of `size` bytes, most of them in a member that nobody knows.
fn line_of(size: usize) -> String {
    let (head, tail) =
        (r#"{"id":"long","method":"command/exec/terminate","params":{"processId":"none","pad":""#, r#""}}"#);
    let line = format!("{head}{}{tail}", "x".repeat(size - head.len() - tail.len()));
    assert_eq!(line.len(), size);
    line
}
