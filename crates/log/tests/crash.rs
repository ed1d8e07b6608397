//! What happens to others, and to what was acknowledged, when a process is killed.
//!
//! The process is this test program once more, told by its environment to be the child.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests start processes and are told what to do by their environment"
)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parlor_log::{EventLog, LogError, SqliteLog};
use parlor_vocab::Seq;

use common::{assert_intact, draft, open, session, texts};

/// Where the child finds the folder of its log.
const HOME: &str = "PARLOR_LOG_TEST_HOME";

/// Where the child finds how the names of its sessions begin.
const PREFIX: &str = "PARLOR_LOG_TEST_PREFIX";

/// How many sessions the child writes at the same time.
const SESSIONS: usize = 8;

/// The child: writes its sessions until it is killed, and says on standard error what is durable.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let home = std::env::var_os(HOME).expect("the parent says where");
    let prefix = std::env::var(PREFIX).expect("the parent says what");
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
                say(&format!("has {name}"));
                loop {
                    let size = head.0 % 3 + 1;
                    let new: Vec<_> = (1..=size).map(|place| draft((head.0 + place).to_string())).collect();
                    head = log.append(&lease, head, &new).await.unwrap();
                    say(&format!("{name} {}", head.0));
                }
            });
        }
        tasks.join_all().await;
    });
}

fn say(line: &str) {
    // One write for each line: a kill cuts between lines, or the last line short.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

struct Victim {
    child: Child,
    output: BufReader<std::process::ChildStderr>,
}

impl Victim {
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

    /// Reads until the child has all its sessions.
    fn holds_all(&mut self) {
        let mut missing = SESSIONS;
        while missing > 0 {
            missing -= usize::from(self.line().starts_with("has "));
        }
    }

    /// SIGKILL, and what it had still said.
    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_sigkill() {
    let rounds = if std::env::var_os("PARLOR_SOAK").is_some() { 200 } else { 20 };
    let home = tempfile::tempdir().unwrap();
    let mut acknowledged = [0; SESSIONS];
    for round in 0..rounds {
        let mut victim = Victim::start(home.path(), "s");
        // A different moment each time, measured in its own progress.
        let mut said: String = (0..SESSIONS + round * 7 % 50).map(|_| victim.line()).collect();
        said.push_str(&victim.kill());
        let complete = said.rsplit_once('\n').map_or("", |(complete, _)| complete);
        for line in complete.lines().filter(|line| !line.starts_with("has ")) {
            let (name, head) = line.split_once(' ').unwrap_or_else(|| panic!("the child says: {line}"));
            let number: usize = name.strip_prefix('s').and_then(|number| number.parse().ok()).unwrap();
            acknowledged[number] = head.parse().unwrap();
        }
        // At once, and without a pause for anything to be noticed.
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
                    assert!(texts.iter().zip(1..).all(|(text, place)| *text == place.to_string()));
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
async fn a_second_process_is_refused_while_the_first_lives() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let mut victim = Victim::start(home.path(), "s");
    victim.holds_all();
    let refused = log.acquire(&session("s0")).await;
    let Err(error @ LogError::Held { by, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(by.pid, victim.child.id());
    assert!(by.since.0 > 0);
    assert_eq!(
        error.to_string(),
        format!("session s0 is in use by process {}; close it there, or end that process", by.pid)
    );
    log.acquire(&session("free")).await.expect("other sessions can be had");
    victim.kill();
    log.acquire(&session("s0")).await.expect("a dead process holds nothing");
}

#[tokio::test]
async fn appends_of_another_process_wake_a_follower_here() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path()).unwrap();
    let victim = Victim::start(home.path(), "s");
    let mut head = log.head(&session("s0"));
    let mut seen = Seq::START;
    for _ in 0..3 {
        let next =
            tokio::time::timeout(std::time::Duration::from_secs(60), head.wait_for(|head| *head > seen));
        seen = *next.await.expect("news in time").unwrap();
        let entries = log.read(&session("s0"), Seq::START, usize::MAX).await.unwrap();
        assert!(entries.len() as u64 >= seen.0, "what is announced can be read");
    }
    victim.kill();
}

#[test]
fn many_processes_can_open_a_new_log_at_once() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("new");
    let mut victims: Vec<_> = (0..10).map(|number| Victim::start(&folder, &format!("{number}/"))).collect();
    for victim in &mut victims {
        victim.holds_all();
    }
    for victim in victims {
        victim.kill();
    }
    assert_intact(&folder);
}
