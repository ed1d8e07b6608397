//! Parents that read late or not at all.

use serde_json::json;

use crate::child::{Home, answer_text};
use crate::proc_info::{peak_memory_kib, wait_until_idle};
use crate::soak;

/// How much memory a child may use, in KiB. The answers of these tests are larger.
const MAX_MEMORY_KIB: u64 = 64 << 10;

/// The longest piece of text in one frame, before it is escaped.
const MAX_DELTA_BYTES: usize = 64 << 10;

#[tokio::test]
async fn a_parent_that_does_not_read_for_a_while_loses_nothing() {
    // JSON escapes each euro sign in six bytes, so the answer is larger than all queues and pipes.
    let text = "\u{20ac}uro ".repeat(120_000);
    let home = Home::new();
    for _ in 0..soak(1, 20) {
        // Each round has its own child, since the history of earlier rounds would count as memory.
        let mut child = home.child(&[]).await;
        child.prompt("p", &format!("/say {text}")).await;
        wait_until_idle(child.pid()).await;
        let frames = child.until_response("p").await;
        assert!(answer_text(&frames) == text, "the answer differs from the requested text");
        let longest = frames.iter().filter_map(|frame| frame["event"]["delta"].as_str()).map(str::len).max();
        assert!(longest.is_some_and(|bytes| bytes <= MAX_DELTA_BYTES), "a delta of {longest:?} bytes");
        let peak = peak_memory_kib(child.pid());
        assert!(peak < MAX_MEMORY_KIB, "{peak} KiB");
    }
}

#[tokio::test]
async fn a_parent_that_reads_no_responses_is_blocked_until_it_reads() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.start_turn("p", "/wait 2").await;
    let pid = child.pid();
    let commands = soak(20_000, 200_000);
    let line = b"{\"type\":\"get_state\",\"id\":\"s\"}\n";
    let mut written = 0;
    // Write until the pipes and all queues are full.
    let write = async {
        while written < commands {
            child.write(line).await;
            written += 1;
        }
    };
    tokio::select! {
        () = write => {}
        () = wait_until_idle(pid) => {}
    }
    assert!(written < commands, "the writes of a parent that does not read must block");
    let peak = peak_memory_kib(pid);
    assert!(peak < MAX_MEMORY_KIB, "{peak} KiB");
    let mut responses = 0;
    let mut is_over = false;
    while responses < written || !is_over {
        let frame = child.frame().await;
        if frame["id"] == "s" {
            responses += 1;
        }
        is_over = is_over || (frame["id"] == "p" && frame["ok"] == true);
    }
    assert_eq!(child.call(json!({"type": "abort", "id": "a"})).await["ok"], true);
}
