//! Facts about processes from `/proc`, and signals.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::child::within_timeout;

/// How often helpers check a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process that neither read nor wrote during this many polls is idle.
const IDLE_POLLS: usize = 50;

/// The number of threads of `pid`.
pub(crate) fn threads(pid: u32) -> u64 {
    number(pid, "Threads:")
}

/// The resident memory of a process, in KiB.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    number(pid, "VmRSS:")
}

/// The highest resident memory that a process ever had, in KiB.
pub(crate) fn peak_memory_kib(pid: u32) -> u64 {
    number(pid, "VmHWM:")
}

/// Waits until a process has stopped reading and writing.
pub(crate) async fn wait_until_idle(pid: u32) {
    let io_bytes = || number_in(pid, "io", "rchar:") + number_in(pid, "io", "wchar:");
    within_timeout("the process to become idle", async {
        let (mut before, mut idle_polls) = (io_bytes(), 0);
        while idle_polls < IDLE_POLLS {
            sleep(POLL_INTERVAL).await;
            let now = io_bytes();
            idle_polls = if now == before { idle_polls + 1 } else { 0 };
            before = now;
        }
    })
    .await;
}

fn number(pid: u32, name: &str) -> u64 {
    number_in(pid, "status", name)
}

fn number_in(pid: u32, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process exists");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the file has this line");
    line.split_whitespace().next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Whether a process runs. A zombie has ended; its new parent has just not reaped it yet.
pub(crate) fn is_running(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name is in parentheses and may contain parentheses itself.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// Waits until `file` has `count` process ids, one per line, and returns them.
pub(crate) async fn read_pids(file: &Path, count: usize) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().filter(|_| text.ends_with('\n'));
        lines.filter_map(|line| line.parse().ok()).collect()
    };
    wait_until("the process ids", || read().len() == count).await;
    read()
}

/// Polls until `condition` is true.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    within_timeout(what, async {
        while !condition() {
            sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("the process exists");
}
