//! Parents that send random bytes, endless lines, or many commands at once.

use parlor_testkit::RandomNumbers;
use serde_json::json;

use crate::child::Home;
use crate::proc_info::peak_memory_kib;
use crate::soak;

/// How much memory a child may use, in KiB. The tests send far more than that.
const MAX_MEMORY_KIB: u64 = 64 << 10;

/// Parts of frames, which random lines are mixed with.
const FRAGMENTS: [&str; 8] = ["{\"type\":", "\"prompt\"", ",\"id\":", "\"x\"", "}", "[", "\\u", "null"];

#[tokio::test]
async fn random_lines_get_errors_and_the_next_prompt_is_answered() {
    let lines = soak(10_000, 100_000);
    let home = Home::new();
    let mut child = home.child(&[]).await;
    let mut random = RandomNumbers(0x9e37_79b9_7f4a_7c15);
    let mut errors = 0;
    // A hundred lines and their errors always fit into the pipes, so one task can write first and read then.
    for _ in 0..lines / 100 {
        let batch: Vec<u8> = (0..100).flat_map(|_| random.line(&FRAGMENTS)).collect();
        child.write(&batch).await;
        child.send(json!({"type": "get_state", "id": "here"})).await;
        loop {
            let frame = child.frame().await;
            if frame["id"] == "here" {
                break;
            }
            assert_eq!(frame["type"], "error", "{frame}");
            errors += 1;
        }
    }
    assert!(errors > lines / 2, "{errors} of {lines} were errors");
    assert_eq!(child.run_turn("p", "/say still here").await, "still here");
    assert!(peak_memory_kib(child.pid()) < MAX_MEMORY_KIB);
}

#[tokio::test]
async fn an_endless_line_gets_one_error_and_takes_no_memory() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    let megabyte = vec![b'x'; 1 << 20];
    let count = soak(3, 300);
    for _ in 0..count {
        child.write(&megabyte).await;
    }
    let error = child.frame().await;
    assert_eq!(error, json!({"type": "error", "message": "frame exceeds 1 MiB limit"}));
    child.write(b"\n").await;
    let state = child.call(json!({"type": "get_state", "id": "s"})).await;
    assert_eq!(state["command"], "get_state", "{state}");
    assert!(peak_memory_kib(child.pid()) < MAX_MEMORY_KIB);
}

#[tokio::test]
async fn a_hundred_commands_in_one_write_are_answered_in_order() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    let commands: String =
        (0..100).map(|id| format!("{{\"type\":\"get_state\",\"id\":\"{id}\"}}\n")).collect();
    child.write(commands.as_bytes()).await;
    for id in 0..100 {
        let response = child.frame().await;
        assert_eq!(
            (&response["type"], &response["id"]),
            (&json!("response"), &json!(id.to_string())),
            "{response}"
        );
    }
}
