//! What the system knows of processes: `/proc`, and signals.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::server::soon;

/// How often something is looked at that cannot be awaited.
const LOOK: Duration = Duration::from_millis(10);

/// This many looks without a change are a standstill.
const STANDSTILL_LOOKS: usize = 50;

/// A row of the process table.
#[derive(Debug)]
struct Row {
    pid: u32,
    state: String,
    parent: u32,
    group: u32,
}

/// All processes, zombies too.
fn table() -> Vec<Row> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats.filter_map(|stat| row(&stat)).collect()
}

fn row(stat: &str) -> Option<Row> {
    // The name stands in parentheses and may hold some itself.
    let (head, rest) = stat.rsplit_once(')')?;
    let pid = head.split_whitespace().next()?.parse().ok()?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.to_owned();
    Some(Row { pid, state, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// The children of `pid`, zombies too.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    table().iter().filter(|row| row.parent == pid).map(|row| row.pid).collect()
}

/// Those of `groups` in which somebody runs. A zombie does not: who adopted it is slow, that is all.
pub(crate) fn left_of(groups: &[u32]) -> Vec<u32> {
    let table = table();
    let runs =
        |group: u32| table.iter().any(|row| row.group == group && row.state != "Z" && row.state != "X");
    groups.iter().copied().filter(|group| runs(*group)).collect()
}

/// The number of open descriptors of `pid`.
pub(crate) fn descriptors_of(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}

/// The memory that `pid` has, in KiB, without what is only its program's file.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = format!("/proc/{pid}/status");
    number_in(&status, "VmRSS:") - number_in(&status, "RssFile:")
}

/// The most memory that `pid` ever had, in KiB, without what is only its program's file: that belongs to the
/// system, and is several times larger without optimisation.
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

/// Awaits that `pid` has stopped reading and writing.
pub(crate) async fn standstill(pid: u32) {
    let path = format!("/proc/{pid}/io");
    let moved = || number_in(&path, "rchar:") + number_in(&path, "wchar:");
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

fn number_in(path: &str, name: &str) -> u64 {
    value_in(path, name).parse().expect("a number")
}

fn value_in(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).expect("the process lives");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the line is there");
    line.split_whitespace().next().expect("a value").to_owned()
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
