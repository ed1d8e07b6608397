//! Processes that write much, and clients that read slowly or not at all.

use std::time::Duration;

use serde_json::json;

use crate::proc_info::{peak_memory_kib, wait_until_idle};
use crate::server::{Server, chunk, exec};
use crate::soak;

/// The most memory that the server may use, in KiB, whatever its children write.
const MEMORY_KIB: u64 = 16 * 1024;

/// The line that `yes` repeats. Each chunk of the stream is compared with the bytes expected at its position.
const LINE: &[u8] = b"0123456789abcde\n";

#[tokio::test]
async fn the_last_output_of_a_process_precedes_its_exit() {
    let mut server = Server::start().await;
    for round in 0..200 {
        let id = server.request("command/exec", exec("p", "echo last", false)).await;
        assert_eq!(server.frame().await["id"], id, "round {round}: the response is first");
        let output = server.output_of("p").await;
        assert_eq!((output.stdout.as_slice(), output.exit_code), (&b"last\n"[..], 0), "round {round}");
    }
}

#[tokio::test]
async fn output_before_and_after_a_pause_arrives_complete() {
    let mut server = Server::start().await;
    let script = "head -c 5000000 /dev/zero | tr '\\0' a; sleep 0.3; head -c 300000 /dev/zero | tr '\\0' b";
    server.start_process("p", script, false).await;
    let output = server.output_of("p").await;
    let (before, after) = output.stdout.split_at_checked(5_000_000).expect("at least 5 MB of output");
    assert!(before.iter().all(|byte| *byte == b'a'));
    assert!(after.len() == 300_000 && after.iter().all(|byte| *byte == b'b'));
    assert_eq!((output.stderr.len(), output.exit_code), (0, 0));
}

#[tokio::test]
async fn a_slow_reader_gets_every_byte_and_takes_no_memory() {
    /// The client reads this many bytes, then pauses.
    const BURST: usize = 1 << 20;
    const PAUSE: Duration = Duration::from_millis(10);
    let size: usize = soak(64 << 20, 1 << 30);
    let mut expected = LINE.to_vec();

    let mut server = Server::start().await;
    server.start_process("p", &format!("yes 0123456789abcde | head -c {size}"), false).await;
    let (mut received, mut burst) = (0, 0);
    loop {
        let frame = server.frame().await;
        if frame["method"] == "command/exec/exited" {
            assert_eq!(frame["params"], json!({"processId": "p", "exitCode": 0}));
            break;
        }
        let bytes = chunk(&frame);
        let offset = received % LINE.len();
        while expected.len() < offset + bytes.len() {
            expected.extend_from_within(..);
        }
        assert!(bytes == expected[offset..offset + bytes.len()], "wrong bytes after {received}");
        received += bytes.len();
        burst += bytes.len();
        if burst >= BURST {
            burst = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
    assert_eq!(received, size);
    let peak = peak_memory_kib(server.pid());
    assert!(peak < MEMORY_KIB, "{peak} KiB");
}

#[tokio::test]
async fn a_client_that_does_not_read_takes_no_memory_and_is_served_once_it_reads() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let mut server = Server::start().await;
    for (number, name) in NAMES.into_iter().enumerate() {
        let tty = number % 2 == 0;
        server.request("command/exec", exec(name, "yes & exec yes >&2", tty)).await;
    }
    wait_until_idle(server.pid()).await;
    let peak = peak_memory_kib(server.pid());
    assert!(peak < MEMORY_KIB, "{peak} KiB");

    let mut requests = Vec::new();
    for name in NAMES {
        requests.push(server.request("command/exec/terminate", json!({"processId": name})).await);
    }
    let (mut terminated, mut exited) = (Vec::new(), Vec::new());
    while exited.len() < NAMES.len() {
        let frame = server.frame().await;
        if let Some(id) = frame["id"].as_i64().filter(|id| requests.contains(id)) {
            assert_eq!(frame["result"], json!({"running": true}), "{frame}");
            terminated.push(id);
        } else if frame["method"] == "command/exec/exited" {
            assert_eq!(frame["params"]["exitCode"], 137, "{frame}");
            exited.push(frame["params"]["processId"].as_str().expect("a name").to_owned());
        }
    }
    exited.sort_unstable();
    assert_eq!((terminated, exited), (requests, NAMES.map(str::to_owned).to_vec()));
    let peak = peak_memory_kib(server.pid());
    assert!(peak < MEMORY_KIB, "{peak} KiB");
}
