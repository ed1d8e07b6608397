//! A real parent in between: Node, which decodes pieces, and which may be killed.

use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::child::{Home, PARLOR, said, soon};
use crate::ending::{FAMILY, FAMILY_SIZE};
use crate::system::{pids_in, runs, signal, until};

/// Node with a child of its own, both killed when this is dropped: the child by the loss of its parent.
struct Parent {
    node: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The child's.
    pid: u32,
}

impl Parent {
    async fn start(home: &Home) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/synaps/parent.mjs");
        let mut node = Command::new("node")
            .args([script, PARLOR, "stdio", "synaps"])
            .current_dir(home.folder())
            .env("PARLOR_HOME", home.state())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node is installed");
        let stdin = node.stdin.take().expect("a pipe");
        let stdout = node.stdout.take().map(BufReader::new).expect("a pipe");
        let mut parent = Self { node, stdin, stdout, pid: 0 };
        parent.pid = parent.line().await.trim().parse().expect("a process number");
        assert_eq!(parent.frame().await["type"], "ready");
        parent
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        soon("a line", self.stdout.read_line(&mut line)).await.expect("stdout can be read");
        line
    }

    async fn frame(&mut self) -> Value {
        serde_json::from_str(&self.line().await).expect("a frame is JSON")
    }

    async fn prompt(&mut self, message: &str) {
        let prompt = format!("{}\n", json!({"type": "prompt", "id": "p", "message": message}));
        soon("node reads", self.stdin.write_all(prompt.as_bytes())).await.expect("node lives");
    }
}

#[tokio::test]
async fn no_letter_is_lost_on_a_parent_that_decodes_each_piece() {
    let home = Home::new();
    let mut parent = Parent::start(&home).await;
    // Letters of two, three and four bytes, in a word each, so that pieces end inside of them.
    let text = "\u{e4}\u{20ac}\u{1f600}\u{4e2d} ".repeat(50_000);
    assert_eq!(text.chars().filter(|letter| !letter.is_ascii()).count(), 200_000);
    parent.prompt(&format!("/say {text}")).await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["type"] != "response") {
        let line = parent.line().await;
        assert!(!line.contains('\u{fffd}'));
        frames.push(serde_json::from_str(&line).expect("a frame is JSON"));
    }
    assert!(said(&frames) == text, "not what was to be said");
}

#[tokio::test]
async fn a_parent_that_is_killed_takes_the_child_and_its_tools_along() {
    let home = Home::new();
    let mut parent = Parent::start(&home).await;
    parent.prompt(FAMILY).await;
    let mut everybody = pids_in(&home.folder().join("family"), FAMILY_SIZE).await;
    everybody.push(parent.pid);
    assert!(everybody.iter().all(|pid| runs(*pid)), "{everybody:?}");
    signal(parent.node.id().expect("it was not waited for yet"), Signal::KILL);
    let killed = Instant::now();
    soon("node's end", parent.node.wait()).await.expect("node can be waited for");
    until("the child and its tools are gone", || !everybody.iter().any(|pid| runs(*pid))).await;
    eprintln!("all were gone {:?} after their parent was killed", killed.elapsed());
}
