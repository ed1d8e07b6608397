//! Kills workers at random under load: every call is answered once and runs at most once.
//!
//! Alone in its file, because it kills all child processes of this program.
#![expect(clippy::unwrap_used, reason = "a panic fails the test and shows the line")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{answer, host, value};
use parlor_ruby::{RubyError, RubyHost};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::Notify;

/// How many tasks call the host at the same time.
const CALLERS: usize = 8;

/// How many calls had which outcome.
#[derive(Debug, Default)]
struct Tally {
    calls: AtomicUsize,
    with_value: AtomicUsize,
    lost: AtomicUsize,
    not_started: AtomicUsize,
    reported_losses: AtomicUsize,
}

#[tokio::test]
async fn every_call_is_answered_once_however_often_the_worker_is_killed() {
    let kills = if is_soak() { 500 } else { 25 };
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let (host, tally, over) = (host(), Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let answered = Arc::new(Notify::new());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (host, tally, over, record) = (host.clone(), tally.clone(), over.clone(), record.clone());
            let answered = answered.clone();
            tokio::spawn(async move {
                let mut with_value = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    if let Some(number) = call(&host, &tally, &record).await {
                        with_value.push(number);
                    }
                    answered.notify_waiters();
                }
                with_value
            })
        })
        .collect();

    let mut killed = 0;
    while killed < kills {
        // Waits for zero to five answers, then for a random moment within a call.
        for _ in 0..random(6) {
            answered.notified().await;
        }
        for _ in 0..random(200) {
            tokio::task::yield_now().await;
        }
        for child in children() {
            killed += usize::from(pidfd_send_signal(&child, Signal::KILL).is_ok());
        }
        tokio::task::yield_now().await;
    }
    over.store(true, Ordering::Relaxed);
    let mut with_value = Vec::new();
    for caller in callers {
        with_value.extend(caller.await.unwrap());
    }

    let (calls, lost, not_started) = (&tally.calls, &tally.lost, &tally.not_started);
    let [calls, lost, not_started] = [calls, lost, not_started].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(with_value.len() + lost + not_started, calls, "{tally:?}");
    assert!(lost > 0, "no call lost its worker: {tally:?}");
    let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
    for line in fs::read_to_string(&record).unwrap().lines() {
        *runs.entry(line.parse().unwrap()).or_default() += 1;
    }
    assert!(runs.values().all(|times| *times == 1), "no code ran twice");
    assert!(with_value.iter().all(|number| runs.contains_key(number)), "a call with a value has run");
    assert_eq!(value(&host, "1 + 1").await, "2");
    report(killed, &tally);
}

/// Makes one call. Returns its number if it has a value.
async fn call(host: &RubyHost, tally: &Tally, record: &Path) -> Option<usize> {
    let number = tally.calls.fetch_add(1, Ordering::Relaxed);
    let code = format!("File.write('{}', \"{number}\\n\", mode: 'a'); {number} * 2", record.display());
    let answer = answer(host, &code).await;
    tally.reported_losses.fetch_add(usize::from(answer.restart_reason.is_some()), Ordering::Relaxed);
    let count = match answer.outcome {
        Ok(text) => {
            assert_eq!(text, (number * 2).to_string(), "the answer is to this call");
            tally.with_value.fetch_add(1, Ordering::Relaxed);
            return Some(number);
        }
        Err(RubyError::WorkerLost { .. }) => &tally.lost,
        Err(RubyError::NotStarted { reason }) if reason.contains("signal 9") => &tally.not_started,
        Err(error) => panic!("{error:?}"),
    };
    count.fetch_add(1, Ordering::Relaxed);
    None
}

/// The child processes of this program, as pidfds, which stay valid when a process id is reused.
fn children() -> Vec<OwnedFd> {
    let own_pid = getpid().as_raw_nonzero().get();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    pids.into_iter()
        .filter_map(|pid| {
            let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            // The id cannot be reused while the pidfd is open, so this checks the process of the pidfd.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let (state, parent) = (fields.next()?, fields.next()?);
            (state != "Z" && parent.parse() == Ok(own_pid)).then_some(handle)
        })
        .collect()
}

fn random(below: u8) -> u8 {
    let mut byte = [0];
    getrandom(&mut byte, GetRandomFlags::empty()).unwrap();
    byte[0] % below
}

#[expect(clippy::disallowed_methods, reason = "a setting of this test only")]
fn is_soak() -> bool {
    std::env::var("PARLOR_SOAK").is_ok_and(|value| value == "1")
}

#[expect(clippy::print_stdout, reason = "the figures are the result of a long run")]
fn report(killed: usize, tally: &Tally) {
    println!("{killed} kills: {tally:?}");
}
