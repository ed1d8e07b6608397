//! What the tool tests share: a folder, a toolbox, and a context for both.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_tools::{ShellTool, ToolContext, ToolResultOutput, Toolbox};
use parlor_vocab::Failure;
use parlor_vocab::FailureCode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

/// A working folder in a folder of its own, so that there is an outside next to it.
pub struct Desk {
    top: TempDir,
    pub toolbox: Toolbox,
    pub context: ToolContext,
}

impl Desk {
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

    /// A path where nobody may go.
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

    pub async fn call(&self, tool: &str, input: Value) -> Result<ToolResultOutput, Failure> {
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

    /// Names in a folder of the working folder, sorted.
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

/// Whether a process of that number exists and is not a zombie.
pub fn is_running(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// How long a test waits for what must come. Nothing here takes as long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a process is gone.
pub async fn ended(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a number");
    // Without a descriptor it is gone already; one becomes readable when its process ends.
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let wait = move || {
        let timeout = Timespec::try_from(PATIENCE).expect("it fits");
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))
            .expect("a descriptor that can be polled")
    };
    let ready = tokio::task::spawn_blocking(wait).await.expect("no panic");
    assert_eq!(ready, 1, "it is still there");
}

/// The number after `name=` in a text.
pub fn number(text: &str, name: &str) -> i32 {
    let after = text.split(&format!("{name}=")).nth(1).expect("the name is there");
    after.split_whitespace().next().expect("a number follows").parse().expect("a number")
}
