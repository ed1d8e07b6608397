//! `parlor stdio mcp` as a program: the same list in every process, and its end.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::PARLOR;

struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    folder: TempDir,
}

impl Program {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(PARLOR)
            .args(["stdio", "mcp"])
            .env("PARLOR_HOME", folder.path().join("home"))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let mut program = Self { child, stdin, stdout, folder };
        program.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}));
        program.read();
        program
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    fn list(&mut self) -> String {
        self.send(&json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"}));
        self.read()
    }

    /// Starts a command that holds the file `lock` and never ends.
    fn start_command(&mut self) {
        let command = "exec 9>lock; flock 9; touch begun; exec sleep 600";
        let params = json!({"name": "shell", "arguments": {"command": command}});
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
        let begun = "while [ ! -e begun ]; do sleep 0.02; done";
        let params = json!({"name": "shell", "arguments": {"command": begun}});
        self.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}));
        assert!(self.read().contains("\"id\":2"), "the command has begun");
    }

    /// Waits until no process has the lock.
    fn wait_for_command(folder: &Path) {
        let freed = Command::new("flock").args(["lock", "true"]).current_dir(folder).status().unwrap();
        assert!(freed.success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_process_lists_the_same_tools_and_all_schemas_are_objects() {
    let (mut one, mut two) = (Program::start(), Program::start());
    let listed = one.list();
    assert_eq!(listed, one.list());
    assert_eq!(listed, two.list());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.len() > 10, "{listed}");
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["outputSchema"].is_null() || tool["outputSchema"]["type"] == "object", "{tool}");
    }
}

#[test]
fn sigterm_ends_the_program_with_its_calls() {
    let mut program = Program::start();
    program.start_command();
    kill_process(Pid::from_child(&program.child), Signal::TERM).unwrap();
    program.child.wait().unwrap();
    Program::wait_for_command(program.folder.path());
}

#[test]
fn a_client_that_closes_stdout_ends_the_program_without_a_panic() {
    let mut program = Program::start();
    program.stdout = None;
    program.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    // The program may be gone already.
    let _ =
        writeln!(program.stdin.as_mut().unwrap(), "{}", json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
    program.child.wait().unwrap();
    let mut stderr = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(!stderr.contains("panicked"), "{stderr}");
}
