//! Long lines, and writes to a process that does not read.

use std::time::Duration;

use serde_json::{Value, json};

use crate::proc_info::memory_kib;
use crate::server::{Server, within_timeout};

/// The longest line that is accepted, without its newline.
const MAX_LINE_BYTES: usize = 64 << 20;

#[tokio::test]
async fn writes_to_a_terminal_that_never_reads_do_not_block_the_server() {
    const WRITES: usize = 400;
    let mut server = Server::start().await;
    // In raw mode, since a terminal in line mode drops the bytes of a line that is too long.
    server.start_ready("blocked", "stty raw -echo; echo ready; exec sleep 300", true).await;
    let chunk = base64_simd::STANDARD.encode_to_string(vec![b'x'; 64 * 1024]);
    let mut writes = Vec::new();
    for _ in 0..WRITES {
        writes.push(
            server.request("command/exec/write", json!({"processId": "blocked", "chunk": chunk})).await,
        );
    }
    let terminate = server.request("command/exec/terminate", json!({"processId": "blocked"})).await;

    let (mut responses, mut terminated, mut accepted) = (Vec::new(), Value::Null, 0);
    let exited = loop {
        let frame = server.frame().await;
        match frame["id"].as_i64() {
            Some(id) if id == terminate => terminated = frame,
            Some(id) => {
                responses.push(id);
                if frame["result"]["accepted"] == true {
                    accepted += 1;
                } else {
                    assert_eq!(frame["error"]["code"], -32603, "{frame}");
                }
            }
            None if frame["method"] == "command/exec/exited" => break frame,
            None => {} // The last output of the terminal.
        }
    };
    assert_eq!(terminated["result"], json!({"running": true}));
    assert_eq!(exited["params"]["exitCode"], 137);
    responses.sort_unstable();
    assert_eq!(responses, writes, "one response for each write");
    assert!(0 < accepted && accepted < WRITES, "{accepted} were accepted; the terminal must have been full");
    assert_eq!(
        server.terminate("blocked").await["result"],
        json!({"running": false}),
        "the server still serves"
    );
}

#[tokio::test]
async fn a_line_of_the_largest_allowed_size_is_handled_and_a_longer_one_gets_one_error() {
    let mut server = Server::start().await;
    server.start_ready("cat", "stty -echo; echo ready; exec cat", true).await;

    server.send(&line_of(MAX_LINE_BYTES)).await;
    assert_eq!(server.frame().await, json!({"id": "long", "result": {"running": false}}));

    // One byte too long, and so long that much of the line arrives after the server has noticed.
    for excess in [1, 1 << 20] {
        server.send(&line_of(MAX_LINE_BYTES + excess)).await;
        let error = server.frame().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(-1), &json!(-32600)), "{error}");
    }

    let write = json!({"processId": "cat", "chunk": "c3RpbGwgaGVyZQo="});
    assert_eq!(server.call("command/exec/write", write).await["result"], json!({"accepted": true}));
    assert_eq!(server.line_of("cat").await, "still here");
}

/// How many large lines the test sends.
const LARGE_LINES: usize = 10;
const LARGE_LINE_BYTES: usize = 15 << 20;
/// How much memory the server may keep after them, in KiB. It is less than one line takes.
const REMAINING_KIB: u64 = 8 << 10;

#[tokio::test]
async fn memory_of_large_lines_is_freed() {
    let mut server = Server::start().await;
    let before = memory_kib(server.pid());
    for _ in 0..LARGE_LINES {
        server.send(&line_of(LARGE_LINE_BYTES)).await;
        assert_eq!(server.frame().await["id"], "long");
    }
    within_timeout("the server to free the memory of large lines", async {
        while memory_kib(server.pid()) > before + REMAINING_KIB {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A request of `size` bytes, most of them in a field that the server ignores.
fn line_of(size: usize) -> String {
    let (head, tail) =
        (r#"{"id":"long","method":"command/exec/terminate","params":{"processId":"none","pad":""#, r#""}}"#);
    let line = format!("{head}{}{tail}", "x".repeat(size - head.len() - tail.len()));
    assert_eq!(line.len(), size);
    line
}
