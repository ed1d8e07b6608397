//! Too much goes out, or too little is read.

use std::time::Duration;

use serde_json::json;

use crate::server::{Server, chunk, exec};
use crate::soak;
use crate::system::{peak_memory_kib, standstill};

/// The server never needs more memory than this, whatever its children write.
const MEMORY_KIB: u64 = 16 * 1024;

/// What `yes` is told to say. A piece of the stream is checked by its place in it.
const LINE: &[u8] = b"0123456789abcde\n";

#[tokio::test]
async fn last_words_are_never_lost_and_never_late() {
    let mut server = Server::start().await;
    for round in 0..200 {
        let id = server.request("command/exec", exec("p", "echo last", false)).await;
        assert_eq!(server.frame().await["id"], id, "round {round}: the response is first");
        let life = server.rest_of("p").await;
        assert_eq!((life.stdout.as_slice(), life.exit_code), (&b"last\n"[..], 0), "round {round}");
    }
}

#[tokio::test]
async fn much_then_nothing_then_more_arrives_whole() {
    let mut server = Server::start().await;
    let script = "head -c 5000000 /dev/zero | tr '\\0' a; sleep 0.3; head -c 300000 /dev/zero | tr '\\0' b";
    server.start_process("p", script, false).await;
    let life = server.rest_of("p").await;
    let (much, more) = life.stdout.split_at_checked(5_000_000).expect("much arrived");
    assert!(much.iter().all(|byte| *byte == b'a'));
    assert!(more.len() == 300_000 && more.iter().all(|byte| *byte == b'b'));
    assert_eq!((life.stderr.len(), life.exit_code), (0, 0));
}

#[tokio::test]
async fn a_slow_reader_gets_every_byte_and_costs_no_memory() {
    /// The client reads this much, then does something else for a while.
    const BURST: usize = 1 << 20;
    const BREAK: Duration = Duration::from_millis(10);
    let size: usize = soak(64 << 20, 1 << 30);
    let mut expected = LINE.to_vec();

    let mut server = Server::start().await;
    server.start_process("p", &format!("yes 0123456789abcde | head -c {size}"), false).await;
    let (mut arrived, mut burst) = (0, 0);
    loop {
        let frame = server.frame().await;
        if frame["method"] == "command/exec/exited" {
            assert_eq!(frame["params"], json!({"processId": "p", "exitCode": 0}));
            break;
        }
        let bytes = chunk(&frame);
        let place = arrived % LINE.len();
        while expected.len() < place + bytes.len() {
            expected.extend_from_within(..);
        }
        assert!(bytes == expected[place..place + bytes.len()], "wrong bytes after {arrived}");
        arrived += bytes.len();
        burst += bytes.len();
        if burst >= BURST {
            burst = 0;
            tokio::time::sleep(BREAK).await;
        }
    }
    assert_eq!(arrived, size);
    let peak = peak_memory_kib(server.pid());
    assert!(peak < MEMORY_KIB, "{peak} KiB");
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_no_memory_and_is_served_when_it_does() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let mut server = Server::start().await;
    for (number, name) in NAMES.into_iter().enumerate() {
        let tty = number % 2 == 0;
        server.request("command/exec", exec(name, "yes & exec yes >&2", tty)).await;
    }
    standstill(server.pid()).await;
    let peak = peak_memory_kib(server.pid());
    assert!(peak < MEMORY_KIB, "{peak} KiB");

    let mut asked = Vec::new();
    for name in NAMES {
        asked.push(server.request("command/exec/terminate", json!({"processId": name})).await);
    }
    let (mut terminated, mut exited) = (Vec::new(), Vec::new());
    while exited.len() < NAMES.len() {
        let frame = server.frame().await;
        if let Some(id) = frame["id"].as_i64().filter(|id| asked.contains(id)) {
            assert_eq!(frame["result"], json!({"running": true}), "{frame}");
            terminated.push(id);
        } else if frame["method"] == "command/exec/exited" {
            assert_eq!(frame["params"]["exitCode"], 137, "{frame}");
            exited.push(frame["params"]["processId"].as_str().expect("a name").to_owned());
        }
    }
    exited.sort_unstable();
    assert_eq!((terminated, exited), (asked, NAMES.map(str::to_owned).to_vec()));
    let peak = peak_memory_kib(server.pid());
    assert!(peak < MEMORY_KIB, "{peak} KiB");
}
