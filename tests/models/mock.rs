//! aimock as a child of the test.
#![expect(clippy::disallowed_methods, reason = "a server of others is started as a shell would")]
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models");

/// A server with `fixtures.json`, and nothing seen yet. Ends with the test.
pub(crate) struct Mock {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Mock {
    pub(crate) fn start() -> Self {
        let mut node = Command::new("node");
        let mut child = node
            .arg("server.mjs")
            .current_dir(FOLDER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is there; scripts/setup.sh installs the packages");
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut mock = Self { child, stdin, stdout: BufReader::new(stdout), url: String::new() };
        mock.url = mock.line();
        assert!(mock.url.starts_with("http://127.0.0.1:"), "{}", mock.url);
        mock
    }

    /// The bodies of all requests so far, in the form in which aimock keeps them.
    pub(crate) fn requests(&mut self) -> Vec<Value> {
        self.stdin.write_all(b"\n").unwrap();
        self.stdin.flush().unwrap();
        let line = self.line();
        serde_json::from_str(&line).unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
