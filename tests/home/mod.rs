//! A temporary state folder for a test, and commands on it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses only some of the helpers")]
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

pub const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A temporary working folder that contains the state folder `state`. The last clone deletes it.
#[derive(Clone)]
pub struct Home(Arc<tempfile::TempDir>);

impl Home {
    pub fn new() -> Self {
        Self(Arc::new(tempfile::tempdir().unwrap()))
    }

    /// A folder whose path is longer than the 107 bytes of a socket address.
    pub fn with_long_path() -> Self {
        Self(Arc::new(tempfile::Builder::new().prefix(&"long".repeat(30)).tempdir().unwrap()))
    }

    /// The working folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The state folder, which the program creates.
    pub fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// Writes a file into the state folder.
    pub fn configure(&self, file: &str, text: &str) {
        std::fs::create_dir_all(self.state()).unwrap();
        std::fs::write(self.state().join(file), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PARLOR);
        command.args(args).env("PARLOR_HOME", self.state()).current_dir(self.folder());
        command.stdin(Stdio::null()).env("SOME_API_KEY", "s3cret").env_remove("NO_COLOR");
        // With a key of the developer parlor would use a real model, and it must not write to the developer's keyring.
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "GEMINI_API_KEY",
            "OPENROUTER_API_KEY",
            "DBUS_SESSION_BUS_ADDRESS",
            "XDG_RUNTIME_DIR",
        ] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub fn prints(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail with exit code 1, and returns its stderr.
    pub fn refuses(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs a command that must succeed, and parses each line of its stdout as JSON.
    pub fn json(&self, args: &[&str]) -> Vec<serde_json::Value> {
        self.prints(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The id of the session that was used last.
    pub fn last_session(&self) -> String {
        self.json(&["sessions", "--json", "--limit", "1"])[0]["session"].as_str().unwrap().to_owned()
    }

    /// Changes the database as if a session was last used `days` days ago.
    pub fn age(&self, session: &str, days: i64) {
        let database = rusqlite::Connection::open(self.state().join("parlor.db")).unwrap();
        database.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        let change = "UPDATE sessions SET updated = updated - ?1 WHERE id = ?2";
        assert_eq!(database.execute(change, (days * 24 * 60 * 60 * 1000, session)).unwrap(), 1);
    }

    /// Starts `parlor chat` with a message and waits for its first output.
    pub fn start_waiting(&self, text: &str) -> Child {
        let mut child = self.command(&["chat", text]).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        assert!(!stdout.fill_buf().unwrap().is_empty());
        child.stdout = Some(stdout.into_inner());
        child
    }
}
