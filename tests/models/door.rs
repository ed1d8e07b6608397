//! The loaf door of a child, for tests that need a process that stays.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::home::Home;

/// The loaf door of a child.
pub(crate) struct Door {
    child: std::process::Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Door {
    pub(crate) fn open(home: &Home) -> Self {
        let mut command = home.command(&["stdio", "loaf"]);
        command.env("HOME", home.folder());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    pub(crate) fn ask(&mut self, method: &str, params: &str) -> Value {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#);
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        loop {
            let said = self.line();
            if said["id"] == "q" {
                return said["result"].clone();
            }
        }
    }

    /// Says something in a new session, and waits until that is done.
    pub(crate) fn turn(&mut self, text: &str) {
        let created = self.ask("session.create", "{}");
        let session = created["session_id"].as_str().unwrap();
        self.ask("session.send", &format!(r#"{{"session_id":"{session}","text":"{text}"}}"#));
        while self.line()["params"]["payload"]["pending"] != false {}
    }

    /// The most memory that it ever had, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        crate::attacker::peak_of(self.child.id())
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it goes on");
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
