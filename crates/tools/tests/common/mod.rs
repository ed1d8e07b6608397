//! The fixture of the tool tests: a working folder, a toolbox and a context.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this module")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_tools::{ShellTool, ToolContext, Toolbox};
use parlor_vocab::{Failure, FailureCode, ToolOutput};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

/// A toolbox whose policy allows the folder `inside` of a temporary folder, which also has a folder `outside`.
pub struct Fixture {
    top: TempDir,
    pub toolbox: Toolbox,
    pub context: ToolContext,
}

impl Fixture {
    pub fn new() -> Self {
        let top = tempfile::tempdir().expect("a folder");
        let inside = fs::canonicalize(top.path()).expect("it exists").join("inside");
        fs::create_dir(&inside).expect("a folder");
        fs::create_dir(top.path().join("outside")).expect("a folder");
        let mut context = ToolContext::new(&inside).expect("a context");
        context.env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into();
        Self { top, toolbox: Toolbox::standard(ShellTool::default()), context }
    }

    /// A path in the working folder.
    pub fn inside(&self, path: &str) -> PathBuf {
        self.context.folder.join(path)
    }

    /// A path that the policy refuses.
    pub fn outside(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.top.path()).expect("it exists").join("outside").join(path)
    }

    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(&path, content).expect("a file");
        path
    }

    pub fn content(&self, path: &str) -> String {
        fs::read_to_string(self.inside(path)).expect("a readable file")
    }

    pub async fn call(&self, tool: &str, input: Value) -> Result<ToolOutput, Failure> {
        self.toolbox.call(tool, &input.to_string(), &self.context).await
    }

    /// The text of a call that must succeed.
    pub async fn text(&self, tool: &str, input: Value) -> String {
        self.call(tool, input).await.expect("success").text
    }

    /// The code and the message of a call that must fail.
    pub async fn fail(&self, tool: &str, input: Value) -> (FailureCode, String) {
        let failure = self.call(tool, input).await.expect_err("a failure");
        (failure.code, failure.message)
    }

    /// The sorted names in a subfolder of the working folder.
    pub fn names(&self, path: &str) -> Vec<String> {
        names(&self.inside(path))
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Whether the process exists and is not a zombie.
pub fn is_running(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// How long a test waits before it fails. Successful tests take much less.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a process has ended.
pub async fn wait_for_end(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a number");
    // The process has ended already if it has no pidfd. A pidfd becomes readable when its process ends.
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let wait = move || {
        let timeout = Timespec::try_from(TEST_TIMEOUT).expect("it fits");
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))
            .expect("a descriptor that can be polled")
    };
    let ready = tokio::task::spawn_blocking(wait).await.expect("no panic");
    assert_eq!(ready, 1, "the process still runs");
}

/// The number after `name=` in a text.
pub fn number(text: &str, name: &str) -> i32 {
    let after = text.split(&format!("{name}=")).nth(1).expect("the name is there");
    after.split_whitespace().next().expect("a number follows").parse().expect("a number")
}
