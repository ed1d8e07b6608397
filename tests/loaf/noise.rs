//! Clients that say much, and anything at all.

use serde_json::{Value, json};

use crate::server::{Home, memory_kib};
use crate::soak;

/// More than a server needs that has answered, and far less than what is sent below.
const ENOUGH_KIB: u64 = 64 << 10;

#[tokio::test]
async fn twenty_thousand_pings_are_answered_in_order() {
    let home = Home::new();
    let mut server = home.server().await;
    let count: u64 = 20_000;
    let pings: String = (0..count)
        .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"system.ping\"}}\n"))
        .collect();
    // All at once: nothing more is sent, so what is not answered now never is.
    let writing = server.write_aside(pings.into_bytes());
    for id in 0..count {
        let line = server.line().await;
        assert_eq!((&line["id"], &line["result"]["ok"]), (&json!(id), &json!(true)));
    }
    let _stdin = writing.await.expect("the writer does not panic");
    assert!(memory_kib(server.pid()) < ENOUGH_KIB);
}

/// Numbers that look random and are the same each time: xorshift.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A line of up to 200 bytes, of which some look like JSON.
    fn line(&mut self) -> Vec<u8> {
        const PIECES: [&str; 8] =
            ["{\"jsonrpc\":\"2.0\"", ",\"id\":", "1", ",\"method\":", "\"state.get\"", "}", "[", "\\u"];
        let length = self.next() % 200;
        let mut line = Vec::new();
        while (line.len() as u64) < length {
            if self.next().is_multiple_of(4) {
                line.extend(PIECES[(self.next() % 8) as usize].bytes());
            } else {
                line.push(self.next() as u8);
            }
        }
        line.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        line.push(b'\n');
        line
    }
}

#[tokio::test]
async fn random_lines_cost_an_error_each_and_the_next_request_is_answered() {
    let home = Home::new();
    let mut server = home.server().await;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for _ in 0..soak(100, 1000) {
        let hundred: Vec<u8> = (0..100).flat_map(|_| noise.line()).collect();
        server.write(&hundred).await;
        let id = server.ask("system.ping", Value::Null).await;
        loop {
            let line = server.line().await;
            if line["id"] == json!(id) {
                break;
            }
            assert!(line["error"].is_object() && line["id"].is_null(), "{line}");
        }
    }
    assert!(memory_kib(server.pid()) < ENOUGH_KIB);
}
