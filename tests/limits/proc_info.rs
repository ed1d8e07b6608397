//! Facts about processes from `/proc`, and signals.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::server::within_timeout;

/// How often helpers check a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process that neither read nor wrote during this many polls is idle.
const IDLE_POLLS: usize = 50;

/// A row of the process table.
#[derive(Debug)]
struct Row {
    pid: u32,
    state: String,
    parent: u32,
    group: u32,
}

/// All processes, including zombies.
fn table() -> Vec<Row> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats.filter_map(|stat| row(&stat)).collect()
}

fn row(stat: &str) -> Option<Row> {
    // The name is in parentheses and may contain parentheses itself.
    let (head, rest) = stat.rsplit_once(')')?;
    let pid = head.split_whitespace().next()?.parse().ok()?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.to_owned();
    Some(Row { pid, state, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// The children of a process, including zombies.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    table().iter().filter(|row| row.parent == pid).map(|row| row.pid).collect()
}

/// Those of `groups` that have a running process. A zombie has ended; its new parent has just not reaped it yet.
pub(crate) fn running_groups(groups: &[u32]) -> Vec<u32> {
    let table = table();
    let runs =
        |group: u32| table.iter().any(|row| row.group == group && row.state != "Z" && row.state != "X");
    groups.iter().copied().filter(|group| runs(*group)).collect()
}

/// The number of open descriptors of `pid`.
pub(crate) fn descriptors_of(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process exists").count()
}

/// The resident memory of a process in KiB, without file-backed pages.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = format!("/proc/{pid}/status");
    number_in(&status, "VmRSS:") - number_in(&status, "RssFile:")
}

/// The highest resident memory that a process ever had in KiB, without file-backed pages. Those are mostly the program's
/// code, which is several times larger in a debug build.
pub(crate) fn peak_memory_kib(pid: u32) -> u64 {
    let status = format!("/proc/{pid}/status");
    number_in(&status, "VmHWM:") - number_in(&status, "RssFile:")
}

/// Whether `pid` ignores SIGCHLD.
pub(crate) fn ignores_sigchld(pid: u32) -> bool {
    let set = value_in(&format!("/proc/{pid}/status"), "SigIgn:");
    let set = u64::from_str_radix(&set, 16).expect("a set of signals");
    set & (1 << (Signal::CHILD.as_raw() - 1)) != 0
}

/// Waits until a process has stopped reading and writing.
pub(crate) async fn wait_until_idle(pid: u32) {
    let path = format!("/proc/{pid}/io");
    let io_bytes = || number_in(&path, "rchar:") + number_in(&path, "wchar:");
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

fn number_in(path: &str, name: &str) -> u64 {
    value_in(path, name).parse().expect("a number")
}

fn value_in(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).expect("the process exists");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the file has this line");
    line.split_whitespace().next().expect("a value").to_owned()
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
