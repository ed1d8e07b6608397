//! What the system knows of processes: `/proc`, and signals.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::child::soon;

/// How often something is looked at that cannot be awaited.
const LOOK: Duration = Duration::from_millis(10);

/// This many looks without a change are a standstill.
const STANDSTILL_LOOKS: usize = 50;

/// The number of threads of `pid`.
pub(crate) fn threads(pid: u32) -> u64 {
    number(pid, "Threads:")
}

/// The memory of `pid`, in KiB: what is resident now.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    number(pid, "VmRSS:")
}

/// The most memory that `pid` ever had, in KiB.
pub(crate) fn peak_memory_kib(pid: u32) -> u64 {
    number(pid, "VmHWM:")
}

/// Awaits that `pid` has stopped reading and writing.
pub(crate) async fn standstill(pid: u32) {
    let moved = || number_in(pid, "io", "rchar:") + number_in(pid, "io", "wchar:");
    soon("a standstill", async {
        let (mut before, mut looks) = (moved(), 0);
        while looks < STANDSTILL_LOOKS {
            sleep(LOOK).await;
            let now = moved();
            looks = if now == before { looks + 1 } else { 0 };
            before = now;
        }
    })
    .await;
}

fn number(pid: u32, name: &str) -> u64 {
    number_in(pid, "status", name)
}

fn number_in(pid: u32, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process lives");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the line is there");
    line.split_whitespace().next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Whether `pid` runs. A zombie does not: who adopted it is slow, that is all.
pub(crate) fn runs(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name stands in parentheses and may hold some itself.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// The process numbers that were written to `file`, one a line, once there are `count`.
pub(crate) async fn pids_in(file: &Path, count: usize) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let whole = text.lines().filter(|_| text.ends_with('\n'));
        whole.filter_map(|line| line.parse().ok()).collect()
    };
    until("processes that say who they are", || read().len() == count).await;
    read()
}

/// Awaits what nobody reports.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    soon(what, async {
        while !is_so() {
            sleep(LOOK).await;
        }
    })
    .await;
}

/// Sends a signal.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("the process is there");
}
