//! Many processes, and what is left of them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::server::{Life, Server};
use crate::soak;
use crate::system::{children_of, descriptors_of, left_of, until};

/// How many processes a connection may have, by `docs/protocols/exec.md`.
const MAX_PROCESSES: usize = 1024;

/// Chance that repeats itself: a linear congruential generator with Knuth's numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % limit
    }
}

#[tokio::test]
async fn short_processes_lose_nothing_and_leave_nothing() {
    const AT_ONCE: usize = 4;
    const MOST_BYTES: usize = 200_000;
    let rounds = soak(300, 10_000);
    let mut chance = Chance(rounds);
    // No newline, which a terminal would write in its own way.
    let text: Vec<u8> =
        (0..MOST_BYTES).map(|_| b"0123456789abcdefghijklmnopqrstuv"[chance.below(32)]).collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits-text");
    fs::write(&file, &text).expect("the text can be kept");

    let mut server = Server::start().await;
    // From the first process on others may look, through a descriptor that stays.
    server.start_process("first", ":", false).await;
    server.rest_of("first").await;
    let descriptors = descriptors_of(server.pid());
    let mut lives: HashMap<String, (Life, Life)> = HashMap::new();
    let mut next = 0;
    while next < rounds || !lives.is_empty() {
        if next < rounds && lives.len() < AT_ONCE {
            let (tty, code) = (chance.below(3) == 0, chance.below(256));
            // Sizes of all magnitudes, nothing at all among them.
            let mut size = || chance.below(MOST_BYTES) >> chance.below(18);
            let (out, err) = (size(), if tty { 0 } else { size() });
            let name = format!("p{next}");
            let file = file.display();
            let script = format!("head -c {out} {file}; head -c {err} {file} >&2; exit {code}");
            let reply = server.start_process(&name, &script, tty).await;
            assert_eq!(reply["result"]["processId"], json!(name), "{reply}");
            let expected = Life {
                stdout: text[..out].to_vec(),
                stderr: text[..err].to_vec(),
                exit_code: code.try_into().expect("a byte"),
            };
            lives.insert(name, (Life::default(), expected));
            next += 1;
            continue;
        }
        let frame = server.frame().await;
        let name = frame["params"]["processId"].as_str().expect("a notification").to_owned();
        let (life, _) =
            lives.get_mut(&name).unwrap_or_else(|| panic!("nothing comes after the exit: {frame}"));
        if life.take(&frame) {
            let (life, expected) = lives.remove(&name).expect("it was there a moment ago");
            let brief = |life: &Life| (life.stdout.len(), life.stderr.len(), life.exit_code);
            assert!(life == expected, "{name}: {:?}, not {:?}", brief(&life), brief(&expected));
        }
    }
    assert!(children_of(server.pid()).is_empty(), "who is reported as exited is not even a zombie");
    let pid = server.pid();
    until("all descriptors are closed", || descriptors_of(pid) == descriptors).await;
}

#[tokio::test]
async fn one_more_than_the_limit_of_processes_is_refused() {
    let mut server = Server::start_after("ulimit -n 4096").await;
    let params = |name: String| json!({"processId": name, "argv": ["/bin/sleep", "300"], "cwd": "/", "env": {}, "tty": false});
    for number in 0..MAX_PROCESSES {
        let reply = server.call("command/exec", params(number.to_string())).await;
        assert_eq!(reply["result"]["running"], true, "{number}: {reply}");
    }
    let refused = server.call("command/exec", params("more".to_owned())).await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("limit")), "{refused}");

    assert_eq!(server.terminate("7").await["result"], json!({"running": true}));
    assert_eq!(server.rest_of("7").await.exit_code, 137);
    let reply = server.call("command/exec", params("more".to_owned())).await;
    assert_eq!(reply["result"]["running"], true, "{reply}");

    let children = children_of(server.pid());
    assert_eq!(children.len(), MAX_PROCESSES);
    server.close_stdin();
    assert!(server.end().await.success());
    assert!(left_of(&children).is_empty(), "each is a group of its own");
}
