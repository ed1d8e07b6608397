//! `parlor stdio synaps` as a child process.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::home::Home;

/// A child process that serves the synaps door on its stdio.
pub(crate) struct SynapsChild {
    child: std::process::Child,
    stdout: BufReader<std::process::ChildStdout>,
    /// The first frame.
    pub(crate) ready: Value,
}

impl SynapsChild {
    /// Starts the child with these arguments.
    pub(crate) fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.command(&[&["stdio", "synaps"], arguments].concat());
        command.env("HOME", home.folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self { child, stdout, ready: Value::Null };
        this.ready = this.read_frame();
        this
    }

    pub(crate) fn send(&mut self, command: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Sends a command and returns its response; frames in between are skipped.
    pub(crate) fn request(&mut self, command: &str, members: Value) -> Value {
        let mut frame = members;
        (frame["type"], frame["id"]) = (command.into(), command.into());
        self.send(&frame);
        self.until(|frame| frame["type"] == "response" && frame["id"] == command).pop().unwrap()
    }

    /// Sends a prompt and returns all frames up to its response.
    pub(crate) fn prompt(&mut self, message: &str) -> Vec<Value> {
        self.send(&json!({"type": "prompt", "id": "p", "message": message}));
        self.until(|frame| frame["type"] == "response" && frame["id"] == "p")
    }

    /// Reads frames up to the first one that `is_last` accepts.
    pub(crate) fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            frames.push(self.read_frame());
            if is_last(frames.last().unwrap()) {
                return frames;
            }
        }
    }

    fn read_frame(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child closed its stdout");
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for SynapsChild {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The model in the usage of the turn that these frames end.
pub(crate) fn usage_model(frames: &[Value]) -> String {
    let end = frames.iter().find(|frame| frame["type"] == "agent_end").expect("the turn ends");
    end["usage"]["model"].as_str().expect("the usage names a model").to_owned()
}
