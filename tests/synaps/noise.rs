//! Parents that say anything at all.

use serde_json::json;

use crate::child::Home;
use crate::soak;
use crate::system::peak_memory_kib;

/// Far less than what is sent below, and more than a child ever needs.
const ENOUGH_KIB: u64 = 64 << 10;

/// Numbers that look random and are the same each time: xorshift.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A line of up to 200 bytes, of which some look like JSON.
    fn line(&mut self) -> Vec<u8> {
        const PIECES: [&str; 8] = ["{\"type\":", "\"prompt\"", ",\"id\":", "\"x\"", "}", "[", "\\u", "null"];
        let length = self.next() % 200;
        let mut line = Vec::new();
        while (line.len() as u64) < length {
            if self.next().is_multiple_of(4) {
                line.extend(PIECES[(self.next() % 8) as usize].bytes());
            } else {
                line.push(self.next() as u8);
            }
        }
        line.retain(|byte| *byte != b'\n');
        line.push(b'\n');
        line
    }
}

#[tokio::test]
async fn random_lines_cost_an_error_each_and_the_next_prompt_is_answered() {
    let lines = soak(10_000, 100_000);
    let home = Home::new();
    let mut child = home.child(&[]).await;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut errors = 0;
    // Both sides at once would need two tasks; a hundred lines always fit into the pipes.
    for _ in 0..lines / 100 {
        let hundred: Vec<u8> = (0..100).flat_map(|_| noise.line()).collect();
        child.write(&hundred).await;
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
    assert_eq!(child.say("p", "/say still here").await, "still here");
    assert!(peak_memory_kib(child.pid()) < ENOUGH_KIB);
}

#[tokio::test]
async fn a_line_that_does_not_end_is_refused_once_and_not_kept() {
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
    assert!(peak_memory_kib(child.pid()) < ENOUGH_KIB);
}

#[tokio::test]
async fn a_hundred_commands_in_one_write_are_answered_in_order() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    let commands: String =
        (0..100).map(|id| format!("{{\"type\":\"get_state\",\"id\":\"{id}\"}}\n")).collect();
    child.write(commands.as_bytes()).await;
    for id in 0..100 {
        let answer = child.frame().await;
        assert_eq!(
            (&answer["type"], &answer["id"]),
            (&json!("response"), &json!(id.to_string())),
            "{answer}"
        );
    }
}
