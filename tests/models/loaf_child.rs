//! `parlor stdio loaf` as a child process, for tests that need a long-running process.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::home::Home;

/// A child process that serves the loaf door on its stdio.
pub(crate) struct LoafChild {
    child: std::process::Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl LoafChild {
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_with(home, &[])
    }

    /// Starts the child with these environment variables.
    pub(crate) fn start_with(home: &Home, environment: &[(&str, String)]) -> Self {
        let mut command = home.command(&["stdio", "loaf"]);
        command.env("HOME", home.folder()).envs(environment.iter().cloned());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Sends a request and returns its result; frames in between are skipped.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> Value {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#);
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        loop {
            let frame = self.read_frame();
            if frame["id"] == "q" {
                return frame["result"].clone();
            }
        }
    }

    /// Sends a message in a new session, and waits until its run has ended.
    pub(crate) fn run_turn(&mut self, text: &str) {
        let created = self.request("session.create", "{}");
        self.run_turn_in(created["session_id"].as_str().unwrap(), text);
    }

    /// Sends a message in a session, and waits until its run has ended.
    pub(crate) fn run_turn_in(&mut self, session: &str, text: &str) {
        self.request("session.send", &format!(r#"{{"session_id":"{session}","text":"{text}"}}"#));
        while self.read_frame()["params"]["payload"]["pending"] != false {}
    }

    /// The peak memory of the process, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        crate::attacking_server::peak_memory_of(self.child.id())
    }

    fn read_frame(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child closed its stdout");
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for LoafChild {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
