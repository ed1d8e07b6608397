//! Helpers of the process tests: a process under test and its output.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::time::Duration;

use parlor_process::{ChildEvent, Process, ProcessNumber, ProcessReport, SpawnError, spawn, spawn_sequenced};
use parlor_vocab::{OutputStream, ProcessExit, ProcessId, StartProcess, StdioKind};
use tokio::sync::mpsc;

/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A shell script on pipes.
pub fn script(text: &str) -> StartProcess {
    StartProcess {
        process: ProcessId::parse("test").expect("short"),
        program: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), text.to_owned()],
        arg0: None,
        folder: "/".into(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        stdio: StdioKind::Pipes,
        retain_bytes: 1 << 20,
    }
}

/// A shell script on a terminal.
pub fn terminal(text: &str) -> StartProcess {
    StartProcess { stdio: StdioKind::Terminal, ..script(text) }
}

/// A process with all its output so far.
pub struct TestProcess {
    pub process: Process,
    reports: mpsc::Receiver<ProcessReport>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub terminal: Vec<u8>,
    /// All events except output and exit.
    pub other: Vec<ChildEvent>,
}

impl TestProcess {
    pub fn start(start: &StartProcess) -> Result<Self, SpawnError> {
        let (sender, reports) = mpsc::channel(4);
        Ok(Self::new(spawn(start, ProcessNumber(7), sender)?, reports))
    }

    pub fn start_sequenced(start: &StartProcess) -> Result<Self, SpawnError> {
        let (sender, reports) = mpsc::channel(4);
        Ok(Self::new(spawn_sequenced(start, ProcessNumber(7), sender)?, reports))
    }

    pub fn new(process: Process, reports: mpsc::Receiver<ProcessReport>) -> Self {
        let (stdout, stderr, terminal) = (Vec::new(), Vec::new(), Vec::new());
        Self { process, reports, stdout, stderr, terminal, other: Vec::new() }
    }

    /// Waits for the next report. Returns the exit if it was the last.
    pub async fn step(&mut self) -> Option<ProcessExit> {
        let next = tokio::time::timeout(TIMEOUT, self.reports.recv());
        let report = next.await.expect("a report in time").expect("an exit before the end of reports");
        assert_eq!(report.process, ProcessNumber(7));
        match report.event {
            ChildEvent::Output { stream, bytes } => {
                assert!(!bytes.is_empty());
                match stream {
                    OutputStream::Stdout => self.stdout.extend(bytes),
                    OutputStream::Stderr => self.stderr.extend(bytes),
                    OutputStream::Terminal => self.terminal.extend(bytes),
                }
                None
            }
            ChildEvent::Exited(ending) => Some(ending),
            event @ (ChildEvent::WriteAccepted(_)
            | ChildEvent::WriteLost(_)
            | ChildEvent::LeaderExited(_)) => {
                self.other.push(event);
                None
            }
        }
    }

    /// Reads until stdout or the terminal has shown `text`.
    pub async fn until(&mut self, text: &str) {
        while !self.shown().contains(text) {
            assert_eq!(self.step().await, None, "ended before {text:?}; so far: {:?}", self.shown());
        }
    }

    /// Reads until the exit, and checks that nothing follows it.
    pub async fn end(&mut self) -> ProcessExit {
        loop {
            if let Some(ending) = self.step().await {
                let after = tokio::time::timeout(TIMEOUT, self.reports.recv()).await;
                assert!(matches!(after, Ok(None)), "something came after the exit: {after:?}");
                return ending;
            }
        }
    }

    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&[&self.stdout[..], &self.terminal[..]].concat()).into_owned()
    }

    /// The number after `name=` in the output.
    pub fn number(&self, name: &str) -> i32 {
        let shown = self.shown();
        let after = shown.split(&format!("{name}=")).nth(1).expect("the output has the name");
        after.split_whitespace().next().expect("a number follows").parse().expect("a number")
    }
}

/// Runs a process to its end.
pub async fn run(start: &StartProcess) -> (TestProcess, ProcessExit) {
    let mut test = TestProcess::start(start).expect("the process starts");
    let ending = test.end().await;
    (test, ending)
}

/// Whether a process with this pid exists and is not a zombie.
pub fn is_running(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}
