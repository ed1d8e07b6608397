//! `parlor stdio acp` as a child process, as an editor starts it.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::home::Home;

/// An editor with one session, in the folder of the home.
pub(crate) struct AcpChild {
    child: Child,
    stdout: BufReader<ChildStdout>,
    session: Value,
    requests: u64,
}

impl AcpChild {
    pub(crate) fn start(home: &Home) -> Self {
        let mut command = home.command(&["stdio", "acp"]);
        command.env("HOME", home.folder());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut editor = Self { child, stdout, session: Value::Null, requests: 0 };
        editor.request("initialize", json!({"protocolVersion": 1}));
        editor.answer();
        editor.request("session/new", json!({"cwd": home.folder(), "mcpServers": []}));
        editor.session = editor.answer()["result"]["sessionId"].clone();
        editor
    }

    pub(crate) fn prompt(&mut self, text: &str) {
        let prompt = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        self.request("session/prompt", prompt);
    }

    /// Waits for a question.
    pub(crate) fn question(&mut self) -> Value {
        self.read_until(|frame| frame["method"] == "session/request_permission")
    }

    /// Chooses an option of a question.
    pub(crate) fn choose(&mut self, question: &Value, option: &str) {
        let outcome = json!({"outcome": "selected", "optionId": option});
        self.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}}));
    }

    /// Waits for the answer to the last request.
    pub(crate) fn answer(&mut self) -> Value {
        let id = self.requests;
        self.read_until(|frame| frame["id"] == id && frame["method"].is_null())
    }

    fn request(&mut self, method: &str, params: Value) {
        self.requests += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params}));
    }

    fn write(&mut self, frame: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{frame}").unwrap();
    }

    fn read_until(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child closed its stdout");
            let frame = serde_json::from_str(&line).unwrap();
            if is_wanted(&frame) {
                return frame;
            }
        }
    }
}

impl Drop for AcpChild {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
