//! A program on a terminal of its own, for tests that type and read what is shown.
#![allow(dead_code, reason = "each test file uses only some of the helpers")]

use std::time::Duration;

use parlor_process::{ChildEvent, Process, ProcessNumber, ProcessReport, WriteId, spawn};
use parlor_vocab::{ProcessExit, ProcessId, StartProcess, StdioKind};
use tokio::sync::mpsc;

use crate::home::{Home, PARLOR};

/// How long a test waits for expected output. A test that waits this long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The line editor prints this (bracketed paste on) when it has switched on raw mode and reads keys.
pub(crate) const READY: &str = "\x1b[?2004h";

pub(crate) const ENTER: &str = "\r";

/// A program on its own terminal, which is 80 columns wide.
pub(crate) struct Terminal {
    process: Process,
    reports: mpsc::Receiver<ProcessReport>,
    pub(crate) shown: String,
    /// The same, as it came: for a terminal emulator.
    pub(crate) bytes: Vec<u8>,
    /// The end of the last text that a test waited for, as an offset in `shown`.
    mark: usize,
}

impl Terminal {
    pub(crate) fn start(home: &Home, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_program(home, PARLOR, args, env)
    }

    pub(crate) fn start_program(home: &Home, program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let state = home.state().to_str().unwrap().to_owned();
        let basics = [
            ("PARLOR_HOME", state.as_str()),
            ("PATH", "/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm"),
        ];
        let overridden = |name: &str| env.iter().any(|(other, _)| *other == name);
        let env = basics.iter().filter(|(name, _)| !overridden(name)).chain(env);
        let start = StartProcess {
            process: ProcessId::parse("chat").unwrap(),
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            arg0: None,
            folder: home.folder().to_owned(),
            env: env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            stdio: StdioKind::Terminal,
            retain_bytes: 0,
        };
        let (sender, reports) = mpsc::channel(4);
        let process = spawn(&start, ProcessNumber(0), sender).unwrap();
        Self { process, reports, shown: String::new(), bytes: Vec::new(), mark: 0 }
    }

    pub(crate) fn type_keys(&self, keys: &str) {
        self.process.write(WriteId(0), keys.as_bytes().to_vec()).unwrap();
    }

    /// Waits until `text` is shown after the last text that was waited for.
    pub(crate) async fn wait_for(&mut self, text: &str) {
        // A program that goes on printing must not make the test wait for ever.
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let rest = self.shown.get(self.mark..).unwrap();
            if let Some(offset) = rest.find(text) {
                self.mark += offset + text.len();
                return;
            }
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(!is_late, "timeout while waiting for {text:?}: {:?}", self.shown);
            assert_eq!(self.step().await, None, "ended before {text:?}: {:?}", self.shown);
        }
    }

    /// Waits for the prompt.
    pub(crate) async fn wait_for_prompt(&mut self) {
        self.wait_for(READY).await;
        self.wait_for("> ").await;
    }

    /// Types a line at the prompt.
    pub(crate) async fn type_line(&mut self, text: &str) {
        self.wait_for_prompt().await;
        self.type_keys(text);
        self.type_keys(ENTER);
        // The editor switches off bracketed paste once it has read the line.
        self.wait_for("\x1b[?2004l").await;
    }

    pub(crate) async fn step(&mut self) -> Option<ProcessExit> {
        let report = tokio::time::timeout(TIMEOUT, self.reports.recv()).await;
        let report = report.unwrap_or_else(|_| panic!("timeout; shown so far: {:?}", self.shown));
        match report.unwrap().event {
            ChildEvent::Output { bytes, .. } => {
                self.shown.push_str(&String::from_utf8_lossy(&bytes));
                self.bytes.extend_from_slice(&bytes);
            }
            ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
            ChildEvent::Exited(ending) => return Some(ending),
        }
        None
    }

    /// Waits until the program exits with success, and returns all that was shown.
    pub(crate) async fn wait_for_exit(mut self) -> String {
        loop {
            if let Some(ending) = self.step().await {
                assert_eq!(ending, ProcessExit::Code(0), "{:?}", self.shown);
                return self.shown;
            }
        }
    }
}
