//! Clients that send very many requests, and clients that send random bytes.

use parlor_testkit::RandomNumbers;
use serde_json::{Value, json};

use crate::server::{Home, memory_kib};
use crate::soak;

/// How much memory the server may use after it has answered, in KiB. The tests send far more than that.
const MAX_MEMORY_KIB: u64 = 64 << 10;

#[tokio::test]
async fn twenty_thousand_pings_are_answered_in_order() {
    let home = Home::new();
    let mut server = home.server().await;
    let count: u64 = 20_000;
    let pings: String = (0..count)
        .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"system.ping\"}}\n"))
        .collect();
    // All at once: no later request can wake the server to answer a forgotten one.
    let writer = server.write_in_background(pings.into_bytes());
    for id in 0..count {
        let line = server.line().await;
        assert_eq!((&line["id"], &line["result"]["ok"]), (&json!(id), &json!(true)));
    }
    let _stdin = writer.await.expect("the writer does not panic");
    assert!(memory_kib(server.pid()) < MAX_MEMORY_KIB);
}

/// Parts of frames, which random lines are mixed with.
const FRAGMENTS: [&str; 8] =
    ["{\"jsonrpc\":\"2.0\"", ",\"id\":", "1", ",\"method\":", "\"state.get\"", "}", "[", "\\u"];

#[tokio::test]
async fn each_random_line_gets_an_error_and_the_next_request_is_answered() {
    let home = Home::new();
    let mut server = home.server().await;
    let mut random = RandomNumbers(0x9e37_79b9_7f4a_7c15);
    for _ in 0..soak(100, 1000) {
        let lines: Vec<u8> =
            (0..100).flat_map(|_| random.line(&FRAGMENTS)).filter(|byte| *byte != b'\r').collect();
        server.write(&lines).await;
        let id = server.send_request("system.ping", Value::Null).await;
        loop {
            let line = server.line().await;
            if line["id"] == json!(id) {
                break;
            }
            assert!(line["error"].is_object() && line["id"].is_null(), "{line}");
        }
    }
    assert!(memory_kib(server.pid()) < MAX_MEMORY_KIB);
}
