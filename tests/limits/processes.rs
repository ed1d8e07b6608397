//! Many short processes, and the limit of processes per connection.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::proc_info::{children_of, descriptors_of, running_groups, wait_until};
use crate::server::{ProcessOutput, Server};
use crate::soak;

/// How many processes a connection may have, by `docs/protocols/exec.md`.
const MAX_PROCESSES: usize = 1024;

/// A random number generator that gives the same numbers in each test run: linear congruential, with Knuth's constants.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % limit
    }
}

#[tokio::test]
async fn short_processes_lose_no_output_and_leave_no_zombies_or_descriptors() {
    const AT_ONCE: usize = 4;
    const MAX_OUTPUT_BYTES: usize = 200_000;
    let rounds = soak(300, 10_000);
    let mut random = RandomNumbers(rounds);
    // No newlines, since a terminal would write them as CR LF.
    let text: Vec<u8> =
        (0..MAX_OUTPUT_BYTES).map(|_| b"0123456789abcdefghijklmnopqrstuv"[random.below(32)]).collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits-text");
    fs::write(&file, &text).expect("the file can be written");

    let mut server = Server::start().await;
    // With the first process the server opens the socket that shares processes; its descriptor stays open.
    server.start_process("first", ":", false).await;
    server.output_of("first").await;
    let descriptors = descriptors_of(server.pid());
    let mut outputs: HashMap<String, (ProcessOutput, ProcessOutput)> = HashMap::new();
    let mut next = 0;
    while next < rounds || !outputs.is_empty() {
        if next < rounds && outputs.len() < AT_ONCE {
            let (tty, code) = (random.below(3) == 0, random.below(256));
            // Sizes of all magnitudes, including 0.
            let mut size = || random.below(MAX_OUTPUT_BYTES) >> random.below(18);
            let (out, err) = (size(), if tty { 0 } else { size() });
            let name = format!("p{next}");
            let file = file.display();
            let script = format!("head -c {out} {file}; head -c {err} {file} >&2; exit {code}");
            let reply = server.start_process(&name, &script, tty).await;
            assert_eq!(reply["result"]["processId"], json!(name), "{reply}");
            let expected = ProcessOutput {
                stdout: text[..out].to_vec(),
                stderr: text[..err].to_vec(),
                exit_code: code.try_into().expect("a byte"),
            };
            outputs.insert(name, (ProcessOutput::default(), expected));
            next += 1;
            continue;
        }
        let frame = server.frame().await;
        let name = frame["params"]["processId"].as_str().expect("a notification").to_owned();
        let (output, _) = outputs.get_mut(&name).unwrap_or_else(|| panic!("a frame after the exit: {frame}"));
        if output.add(&frame) {
            let (output, expected) = outputs.remove(&name).expect("the process is in the map");
            let summary =
                |output: &ProcessOutput| (output.stdout.len(), output.stderr.len(), output.exit_code);
            assert!(output == expected, "{name}: {:?}, not {:?}", summary(&output), summary(&expected));
        }
    }
    assert!(children_of(server.pid()).is_empty(), "a process is reaped before its exit is reported");
    let pid = server.pid();
    wait_until("all descriptors are closed", || descriptors_of(pid) == descriptors).await;
}

#[tokio::test]
async fn a_process_beyond_the_limit_is_refused() {
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
    assert_eq!(server.output_of("7").await.exit_code, 137);
    let reply = server.call("command/exec", params("more".to_owned())).await;
    assert_eq!(reply["result"]["running"], true, "{reply}");

    let children = children_of(server.pid());
    assert_eq!(children.len(), MAX_PROCESSES);
    server.close_stdin();
    assert!(server.wait_for_exit().await.success());
    assert!(running_groups(&children).is_empty(), "each child is its own process group, and all have ended");
}
