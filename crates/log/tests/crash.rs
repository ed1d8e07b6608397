//! Acknowledged events and leases survive as they should when a process is killed.
//!
//! The killed process is this test program again; environment variables tell it to be the child.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![expect(clippy::disallowed_methods, reason = "these tests start processes that read environment variables")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parlor_log::{EventLog, LogError, SqliteLog};
use parlor_vocab::Seq;

use common::{assert_intact, new_entry, open, session, texts};

/// The variable with the folder of the child's log.
const HOME: &str = "PARLOR_LOG_TEST_HOME";

/// The variable with the prefix of the child's session names.
const PREFIX: &str = "PARLOR_LOG_TEST_PREFIX";

/// The number of sessions that the child writes concurrently.
const SESSIONS: usize = 8;

/// The child: writes its sessions until it is killed, and reports on standard error which events are durable.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let home = std::env::var_os(HOME).expect("the parent sets it");
    let prefix = std::env::var(PREFIX).expect("the parent sets it");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let log: &'static SqliteLog = Box::leak(Box::new(open(Path::new(&home)).unwrap()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..SESSIONS {
            let name = format!("{prefix}{number}");
            tasks.spawn(async move {
                let lease = log.acquire(&session(&name)).await.unwrap();
                let known = log.session(&session(&name)).await;
                let mut head = known.map_or(Seq::START, |record| record.head);
                report(&format!("has {name}"));
                loop {
                    let size = head.0 % 3 + 1;
                    let new: Vec<_> =
                        (1..=size).map(|number| new_entry((head.0 + number).to_string())).collect();
                    head = log.append(&lease, head, &new).await.unwrap();
                    report(&format!("{name} {}", head.0));
                }
            });
        }
        tasks.join_all().await;
    });
}

fn report(line: &str) {
    // One write for each line: a kill can only cut the last line short.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

struct ChildProcess {
    child: Child,
    output: BufReader<std::process::ChildStderr>,
}

impl ChildProcess {
    fn start(home: &Path, prefix: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child", "--nocapture"])
            .env(HOME, home)
            .env(PREFIX, prefix)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child has ended");
        line
    }

    /// Waits until the child holds all its sessions.
    fn wait_until_it_holds_all(&mut self) {
        let mut missing = SESSIONS;
        while missing > 0 {
            missing -= usize::from(self.line().starts_with("has "));
        }
    }

    /// Kills the child with SIGKILL and returns the rest of its output.
    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

#[tokio::test]
async fn acknowledged_events_survive_sigkill() {
    let rounds = if std::env::var_os("PARLOR_SOAK").is_some() { 200 } else { 20 };
    let home = tempfile::tempdir().unwrap();
    let mut acknowledged = [0; SESSIONS];
    for round in 0..rounds {
        let mut child_process = ChildProcess::start(home.path(), "s");
        // Kill after a different number of lines each time.
        let mut output: String = (0..SESSIONS + round * 7 % 50).map(|_| child_process.line()).collect();
        output.push_str(&child_process.kill());
        let complete = output.rsplit_once('\n').map_or("", |(complete, _)| complete);
        for line in complete.lines().filter(|line| !line.starts_with("has ")) {
            let (name, head) = line.split_once(' ').unwrap_or_else(|| panic!("the child printed: {line}"));
            let number: usize = name.strip_prefix('s').and_then(|number| number.parse().ok()).unwrap();
            acknowledged[number] = head.parse().unwrap();
        }
        // Open the log at once, without a pause.
        let log = open(home.path()).unwrap();
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            let name = format!("s{number}");
            let lease = log.acquire(&session(&name)).await.expect("a dead process holds nothing");
            match log.session(&session(&name)).await {
                Err(LogError::UnknownSession(_)) => assert_eq!(*acknowledged, 0),
                record => {
                    let record = record.unwrap();
                    let texts = texts(&log, &name).await;
                    assert!(texts.len() >= *acknowledged, "{name}: {} of {acknowledged}", texts.len());
                    assert_eq!(record.head, Seq(texts.len() as u64));
                    assert!(texts.iter().zip(1..).all(|(text, number)| *text == number.to_string()));
                }
            }
            log.release(lease).await.unwrap();
        }
        drop(log);
        assert_intact(home.path());
    }
    assert!(acknowledged.iter().all(|head| *head > 0), "{acknowledged:?}");
}

#[tokio::test]
async fn a_second_process_is_refused_while_the_first_is_alive() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let mut child_process = ChildProcess::start(home.path(), "s");
    child_process.wait_until_it_holds_all();
    let refused = log.acquire(&session("s0")).await;
    let error = refused.unwrap_err();
    let LogError::Held { by, .. } = &error else { panic!("{error:?}") };
    assert_eq!(by.pid, child_process.child.id());
    assert!(by.since.0 > 0);
    assert_eq!(
        error.to_string(),
        format!("session s0 is in use by process {}; close it there, or end that process", by.pid)
    );
    log.acquire(&session("free")).await.expect("other sessions are free");
    child_process.kill();
    log.acquire(&session("s0")).await.expect("a dead process holds nothing");
}

#[tokio::test]
async fn appends_of_another_process_wake_a_follower() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let child_process = ChildProcess::start(home.path(), "s");
    let mut head = log.head(&session("s0"));
    let mut seen = Seq::START;
    for _ in 0..3 {
        let next =
            tokio::time::timeout(std::time::Duration::from_secs(60), head.wait_for(|head| *head > seen));
        seen = *next.await.expect("a wake-up in time").unwrap();
        let entries = log.read(&session("s0"), Seq::START, usize::MAX).await.unwrap();
        assert!(entries.len() as u64 >= seen.0, "all events up to the announced head are readable");
    }
    child_process.kill();
}

#[test]
fn many_processes_can_open_a_new_log_at_once() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("new");
    let mut child_processes: Vec<_> =
        (0..10).map(|number| ChildProcess::start(&folder, &format!("{number}/"))).collect();
    for child_process in &mut child_processes {
        child_process.wait_until_it_holds_all();
    }
    for child_process in child_processes {
        child_process.kill();
    }
    assert_intact(&folder);
}
