//! Workers are killed at random under load: every call is answered once and runs at most once.
//!
//! Alone in its file: it kills whatever child processes this program has.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

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

/// How many callers there are at once.
const CALLERS: usize = 8;

/// What became of calls, in numbers.
#[derive(Debug, Default)]
struct Tally {
    asked: AtomicUsize,
    valued: AtomicUsize,
    lost: AtomicUsize,
    not_started: AtomicUsize,
    told: AtomicUsize,
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
                let mut valued = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    if let Some(number) = call(&host, &tally, &record).await {
                        valued.push(number);
                    }
                    answered.notify_waiters();
                }
                valued
            })
        })
        .collect();

    let mut killed = 0;
    while killed < kills {
        // From not at all to some calls later, and then somewhere within a call.
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
    let mut valued = Vec::new();
    for caller in callers {
        valued.extend(caller.await.unwrap());
    }

    let (asked, lost, not_started) = (&tally.asked, &tally.lost, &tally.not_started);
    let [asked, lost, not_started] = [asked, lost, not_started].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(valued.len() + lost + not_started, asked, "{tally:?}");
    assert!(lost > 0, "no call was hit: {tally:?}");
    let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
    for line in fs::read_to_string(&record).unwrap().lines() {
        *runs.entry(line.parse().unwrap()).or_default() += 1;
    }
    assert!(runs.values().all(|times| *times == 1), "no code ran twice");
    assert!(valued.iter().all(|number| runs.contains_key(number)), "what has a value has run");
    assert_eq!(value(&host, "1 + 1").await, "2");
    report(killed, &tally);
}

/// One call. Gives its number if it has a value.
async fn call(host: &RubyHost, tally: &Tally, record: &Path) -> Option<usize> {
    let number = tally.asked.fetch_add(1, Ordering::Relaxed);
    let code = format!("File.write('{}', \"{number}\\n\", mode: 'a'); {number} * 2", record.display());
    let answer = answer(host, &code).await;
    tally.told.fetch_add(usize::from(answer.lost_before.is_some()), Ordering::Relaxed);
    let count = match answer.outcome {
        Ok(text) => {
            assert_eq!(text, (number * 2).to_string(), "the answer is to this call");
            tally.valued.fetch_add(1, Ordering::Relaxed);
            return Some(number);
        }
        Err(RubyError::WorkerLost { .. }) => &tally.lost,
        Err(RubyError::NotStarted { reason }) if reason.contains("signal 9") => &tally.not_started,
        Err(error) => panic!("{error:?}"),
    };
    count.fetch_add(1, Ordering::Relaxed);
    None
}

/// The child processes of this program, by handles that mean them and nobody else.
fn children() -> Vec<OwnedFd> {
    let us = getpid().as_raw_nonzero().get();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    pids.into_iter()
        .filter_map(|pid| {
            let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            // Whoever has that number now that the handle is open is who the handle means.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let (state, parent) = (fields.next()?, fields.next()?);
            (state != "Z" && parent.parse() == Ok(us)).then_some(handle)
        })
        .collect()
}

fn random(below: u8) -> u8 {
    let mut byte = [0];
    getrandom(&mut byte, GetRandomFlags::empty()).unwrap();
    byte[0] % below
}

#[expect(clippy::disallowed_methods, reason = "this is a setting of this test and of nothing else")]
fn is_soak() -> bool {
    std::env::var("PARLOR_SOAK").is_ok_and(|value| value == "1")
}

#[expect(clippy::print_stdout, reason = "the figures are for who asked for the long run")]
fn report(killed: usize, tally: &Tally) {
    println!("{killed} kills: {tally:?}");
}
