//! A Node program as the parent: it decodes each chunk of output separately, and it may be killed.

use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::child::{Home, PARLOR, answer_text, within_timeout};
use crate::proc_info::{is_running, read_pids, signal, wait_until};
use crate::shutdown::{PROCESS_TREE, PROCESS_TREE_SIZE};

/// A Node process and its parlor child. Node is killed on drop, and the child ends since it loses its parent.
struct NodeParent {
    node: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    child_pid: u32,
}

impl NodeParent {
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
        let mut parent = Self { node, stdin, stdout, child_pid: 0 };
        parent.child_pid = parent.line().await.trim().parse().expect("a process id");
        assert_eq!(parent.frame().await["type"], "ready");
        parent
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        within_timeout("a line", self.stdout.read_line(&mut line)).await.expect("stdout can be read");
        line
    }

    async fn frame(&mut self) -> Value {
        serde_json::from_str(&self.line().await).expect("a frame is JSON")
    }

    async fn prompt(&mut self, message: &str) {
        let prompt = format!("{}\n", json!({"type": "prompt", "id": "p", "message": message}));
        within_timeout("node to read", self.stdin.write_all(prompt.as_bytes())).await.expect("node runs");
    }
}

#[tokio::test]
async fn no_character_is_split_for_a_parent_that_decodes_each_chunk() {
    let home = Home::new();
    let mut parent = NodeParent::start(&home).await;
    // Characters of two, three and four bytes, so that chunks can end inside of one.
    let text = "\u{e4}\u{20ac}\u{1f600}\u{4e2d} ".repeat(50_000);
    assert_eq!(text.chars().filter(|letter| !letter.is_ascii()).count(), 200_000);
    parent.prompt(&format!("/say {text}")).await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["type"] != "response") {
        let line = parent.line().await;
        assert!(!line.contains('\u{fffd}'));
        frames.push(serde_json::from_str(&line).expect("a frame is JSON"));
    }
    assert!(answer_text(&frames) == text, "the answer differs from the requested text");
}

#[tokio::test]
async fn when_the_parent_is_killed_the_child_and_its_tools_end() {
    let home = Home::new();
    let mut parent = NodeParent::start(&home).await;
    parent.prompt(PROCESS_TREE).await;
    let mut pids = read_pids(&home.folder().join("processes"), PROCESS_TREE_SIZE).await;
    pids.push(parent.child_pid);
    assert!(pids.iter().all(|pid| is_running(*pid)), "{pids:?}");
    signal(parent.node.id().expect("the process was not reaped yet"), Signal::KILL);
    let killed = Instant::now();
    within_timeout("the end of node", parent.node.wait()).await.expect("node can be waited for");
    wait_until("the child and its tools have ended", || !pids.iter().any(|pid| is_running(*pid))).await;
    eprintln!("all had ended {:?} after their parent was killed", killed.elapsed());
}
