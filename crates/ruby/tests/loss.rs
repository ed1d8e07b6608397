//! Calls that are cancelled, workers that are lost, and what is told about it.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

mod common;

use common::{Gate, answer, host, settings, snippet, value, waits};
use parlor_ruby::{RubyError, RubyHost};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_running_call_can_be_cancelled_and_costs_the_worker_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    value(&host, "$mark = 1").await;
    let mut call = snippet(&format!("puts 'begun'; spawn('sleep 1000'); {}", gate.code()));
    call.cancel = CancellationToken::new();
    let cancel = call.cancel.clone();
    let running = tokio::spawn({
        let host = host.clone();
        async move { host.evaluate(call).await }
    });
    let mut entered = gate.entered().await;
    cancel.cancel();
    let answer = running.await.unwrap();
    assert_eq!(answer.outcome, Err(RubyError::Cancelled { started: true }));
    assert_eq!(answer.output.text(), "begun\n");
    let error = answer.outcome.unwrap_err();
    assert!(error.lost_state() && error.hint().expect("a hint").contains("are lost"));
    assert_eq!(entered.read(&mut [0]).await.unwrap_or(0), 0, "the worker is gone");
    let after = common::answer(&host, "$mark.inspect").await;
    assert_eq!((after.outcome, after.lost_before), (Ok("nil".to_owned()), None), "it was told already");
}

#[tokio::test]
async fn a_waiting_call_can_be_cancelled_or_dropped_and_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let running = tokio::spawn({
        let (host, code) = (host.clone(), gate.code());
        async move { answer(&host, &code).await }
    });
    let entered = gate.entered().await;
    let call = snippet("$ran = 1");
    let cancel = call.cancel.clone();
    let mut waiting = Box::pin(host.evaluate(call));
    let mut dropped = Box::pin(host.evaluate(snippet("$ran = 2")));
    assert!(waits(&mut waiting).await && waits(&mut dropped).await);
    drop(dropped);
    cancel.cancel();
    let answer = waiting.await;
    assert_eq!(answer.outcome, Err(RubyError::Cancelled { started: false }), "at once: the other still runs");
    assert!(!answer.outcome.unwrap_err().lost_state());
    drop(entered);
    assert_eq!(running.await.unwrap().outcome, Ok("opened".to_owned()));
    assert_eq!(value(&host, "$ran.inspect").await, "nil");
    // A token that was used up before costs nothing either.
    let call = snippet("$ran = 3");
    call.cancel.cancel();
    let outcome = host.evaluate(call).await.outcome;
    assert_eq!(outcome, Err(RubyError::Cancelled { started: false }));
    assert_eq!(value(&host, "$ran.inspect").await, "nil");
}

#[tokio::test]
async fn a_running_call_that_nobody_waits_for_runs_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let mut call = Box::pin(host.evaluate(snippet(&format!("{}; $ran = 1", gate.code()))));
    assert!(waits(&mut call).await);
    let entered = tokio::select! {
        entered = gate.entered() => entered,
        answer = &mut call => panic!("{answer:?}"),
    };
    drop(call);
    drop(entered);
    assert_eq!(value(&host, "$ran").await, "1");
}

#[tokio::test]
async fn a_worker_that_is_lost_between_calls_is_told_of_once() {
    let host = host();
    let pid = pid_of_worker(&host).await;
    kill_process(pid, Signal::KILL).unwrap();
    wait_for_the_end_of(pid).await;
    // The report of it may come after the call that finds it gone.
    let first = answer(&host, "$mark = 1").await;
    match first.outcome {
        Ok(_) => assert_eq!(first.lost_before.as_deref(), Some("killed by signal 9")),
        Err(error) => assert_eq!(error, RubyError::WorkerLost { reason: "killed by signal 9".to_owned() }),
    }
    let second = answer(&host, "1").await;
    assert_eq!((second.outcome, second.lost_before), (Ok("1".to_owned()), None));
}

#[tokio::test]
async fn stopping_answers_what_runs_and_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let running = tokio::spawn({
        let (host, code) = (host.clone(), gate.code());
        async move { answer(&host, &code).await }
    });
    let _entered = gate.entered().await;
    let mut waiting = Box::pin(host.evaluate(snippet("1")));
    assert!(waits(&mut waiting).await);
    host.stop().await;
    assert_eq!(running.await.unwrap().outcome, Err(RubyError::Stopped));
    assert_eq!(waiting.await.outcome, Err(RubyError::Stopped));
}

#[tokio::test]
async fn a_new_worker_knows_nothing_of_the_old_one() {
    let host = host();
    let old = pid_of_worker(&host).await;
    value(&host, "$mark = 1; spawn('sleep 1000')").await;
    host.replace_worker().await.unwrap();
    wait_for_the_end_of(old).await;
    let answer = answer(&host, "$mark.inspect").await;
    assert_eq!((answer.outcome, answer.lost_before), (Ok("nil".to_owned()), None), "it was asked for");
}

#[tokio::test]
async fn the_last_handle_takes_the_worker_along() {
    let host = host();
    let pid = pid_of_worker(&host).await;
    let clone = host.clone();
    drop(host);
    assert_eq!(pid_of_worker(&clone).await, pid);
    drop(clone);
    wait_for_the_end_of(pid).await;
}

#[test]
fn a_worker_whose_host_vanishes_ends_with_its_children_whatever_it_does() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for code in
        ["loop {}", "sleep", "trap('TERM') {}; trap('HUP') {}; begin; loop {}; rescue Exception; retry; end"]
    {
        let path = folder.path().join("gate");
        let _ = std::fs::remove_file(&path);
        let vanishing = runtime();
        let pids = vanishing.block_on(async {
            let (host, gate) = (RubyHost::new(settings()), Gate::new(folder.path()));
            let pid = pid_of_worker(&host).await;
            let child = value(&host, "spawn('sleep 1000')").await;
            let code = format!("{}; {code}", gate.code());
            tokio::spawn(async move { answer(&host, &code).await });
            drop(gate.entered().await);
            [pid, Pid::from_raw(child.parse().unwrap()).unwrap()]
        });
        // Without a word: nobody is left to end anything.
        drop(vanishing);
        for pid in pids {
            runtime().block_on(wait_for_the_end_of(pid));
        }
    }
}

async fn pid_of_worker(host: &RubyHost) -> Pid {
    Pid::from_raw(value(host, "Process.pid").await.parse().unwrap()).unwrap()
}

async fn wait_for_the_end_of(pid: Pid) {
    let ended = move || {
        // No such process: it is gone already.
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).expect("a pidfd can be waited for");
    };
    tokio::task::spawn_blocking(ended).await.unwrap();
}
