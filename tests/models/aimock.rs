//! Runs aimock as a child process.
#![expect(clippy::disallowed_methods, reason = "starts a third-party server, as a shell would")]
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models");

/// A running aimock that serves `fixtures.json`. Killed on drop.
pub(crate) struct Aimock {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Aimock {
    pub(crate) fn start() -> Self {
        let mut node = Command::new("node");
        let mut child = node
            .arg("server.mjs")
            .current_dir(FOLDER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node must be installed; scripts/setup.sh installs the packages");
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut aimock = Self { child, stdin, stdout: BufReader::new(stdout), url: String::new() };
        aimock.url = aimock.read_line();
        assert!(aimock.url.starts_with("http://127.0.0.1:"), "{}", aimock.url);
        aimock
    }

    /// All requests so far, as aimock records them: it converts the bodies to the format of OpenAI chat.
    pub(crate) fn requests(&mut self) -> Vec<Value> {
        self.stdin.write_all(b"\n").unwrap();
        self.stdin.flush().unwrap();
        let line = self.read_line();
        serde_json::from_str(&line).unwrap()
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
