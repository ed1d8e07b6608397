//! Another process that holds a lease: this test program again; an environment variable tells it to be the child.
#![expect(clippy::disallowed_methods, reason = "the child is started and reads an environment variable")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

use parlor_log::{EventLog, LogError};
use parlor_vocab::Seq;

use super::{new_entry, open, quick_options, session};

/// The variable with the URL of the child's log.
const URL: &str = "PARLOR_LOG_TEST_URL";

/// The child: takes the lease of the session `s`. For each line that it reads, it appends an event and reports what came of
/// it. It also reports when the lease is lost.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    // With --include-ignored it is also run without a parent.
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let log = open(quick_options(&url, "child")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        let mut lost = log.lost(&lease);
        tokio::spawn(async move {
            lost.wait_for(|is_lost| *is_lost).await.unwrap();
            report("lost");
        });
        report("has s");
        let mut head = Seq::START;
        for line in std::io::stdin().lock().lines() {
            match log.append(&lease, head, &[new_entry(&line.unwrap())]).await {
                Ok(new_head) => {
                    head = new_head;
                    report("appended");
                }
                Err(LogError::NotHeld { .. }) => report("not held"),
                Err(error) => report(&error.to_string()),
            }
        }
    });
}

fn report(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

pub(crate) struct ChildProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStderr>,
}

impl ChildProcess {
    /// Starts the child, and returns when it has the lease.
    pub(crate) fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child::child", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
        let mut this = Self { child, input, output };
        assert_eq!(this.line(), "has s");
        this
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the child reports.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Makes the child append an event.
    pub(crate) fn append(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
