//! Tests of cancelled calls and lost workers, and of how answers report them.
#![expect(clippy::unwrap_used, reason = "a panic fails the test and shows the line")]

mod common;

use common::{Gate, answer, host, is_pending, settings, snippet, value};
use parlor_ruby::{RubyError, RubyHost};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn cancelling_a_running_call_ends_the_worker_with_its_children() {
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
    assert!(error.is_state_lost() && error.hint().expect("a hint").contains("are lost"));
    assert_eq!(entered.read(&mut [0]).await.unwrap_or(0), 0, "the worker is gone");
    let after = common::answer(&host, "$mark.inspect").await;
    assert_eq!(
        (after.outcome, after.restart_reason),
        (Ok("nil".to_owned()), None),
        "the loss was reported already"
    );
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
    assert!(is_pending(&mut waiting).await && is_pending(&mut dropped).await);
    drop(dropped);
    cancel.cancel();
    let answer = waiting.await;
    assert_eq!(answer.outcome, Err(RubyError::Cancelled { started: false }), "at once: the other still runs");
    assert!(!answer.outcome.unwrap_err().is_state_lost());
    drop(entered);
    assert_eq!(running.await.unwrap().outcome, Ok("opened".to_owned()));
    assert_eq!(value(&host, "$ran.inspect").await, "nil");
    // A token that was cancelled before the call has the same effect.
    let call = snippet("$ran = 3");
    call.cancel.cancel();
    let outcome = host.evaluate(call).await.outcome;
    assert_eq!(outcome, Err(RubyError::Cancelled { started: false }));
    assert_eq!(value(&host, "$ran.inspect").await, "nil");
}

#[tokio::test]
async fn a_running_call_whose_future_is_dropped_runs_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let mut call = Box::pin(host.evaluate(snippet(&format!("{}; $ran = 1", gate.code()))));
    assert!(is_pending(&mut call).await);
    let entered = tokio::select! {
        entered = gate.entered() => entered,
        answer = &mut call => panic!("{answer:?}"),
    };
    drop(call);
    drop(entered);
    assert_eq!(value(&host, "$ran").await, "1");
}

#[tokio::test]
async fn a_worker_lost_between_calls_is_reported_once() {
    let host = host();
    let pid = worker_pid(&host).await;
    kill_process(pid, Signal::KILL).unwrap();
    wait_for_exit(pid).await;
    // The report of the exit may come after the next call has found the worker gone.
    let first = answer(&host, "$mark = 1").await;
    match first.outcome {
        Ok(_) => assert_eq!(first.restart_reason.as_deref(), Some("killed by signal 9")),
        Err(error) => assert_eq!(error, RubyError::WorkerLost { reason: "killed by signal 9".to_owned() }),
    }
    let second = answer(&host, "1").await;
    assert_eq!((second.outcome, second.restart_reason), (Ok("1".to_owned()), None));
}

#[tokio::test]
async fn stopping_answers_running_and_waiting_calls() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let running = tokio::spawn({
        let (host, code) = (host.clone(), gate.code());
        async move { answer(&host, &code).await }
    });
    let _entered = gate.entered().await;
    let mut waiting = Box::pin(host.evaluate(snippet("1")));
    assert!(is_pending(&mut waiting).await);
    host.stop().await;
    assert_eq!(running.await.unwrap().outcome, Err(RubyError::Stopped { started: true }));
    assert_eq!(waiting.await.outcome, Err(RubyError::Stopped { started: false }));
}

#[tokio::test]
async fn a_new_worker_knows_nothing_of_the_old_one() {
    let host = host();
    let old = worker_pid(&host).await;
    value(&host, "$mark = 1; spawn('sleep 1000')").await;
    host.replace_worker().await.unwrap();
    wait_for_exit(old).await;
    let answer = answer(&host, "$mark.inspect").await;
    assert_eq!(
        (answer.outcome, answer.restart_reason),
        (Ok("nil".to_owned()), None),
        "a requested restart is not reported as a loss"
    );
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_worker() {
    let host = host();
    let pid = worker_pid(&host).await;
    let clone = host.clone();
    drop(host);
    assert_eq!(worker_pid(&clone).await, pid);
    drop(clone);
    wait_for_exit(pid).await;
}

#[test]
fn a_worker_whose_host_is_gone_ends_with_its_children_whatever_it_does() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for code in
        ["loop {}", "sleep", "trap('TERM') {}; trap('HUP') {}; begin; loop {}; rescue Exception; retry; end"]
    {
        let path = folder.path().join("gate");
        let _ = std::fs::remove_file(&path);
        let dropped_runtime = runtime();
        let pids = dropped_runtime.block_on(async {
            let (host, gate) = (RubyHost::new(settings()), Gate::new(folder.path()));
            let pid = worker_pid(&host).await;
            let child = value(&host, "spawn('sleep 1000')").await;
            let code = format!("{}; {code}", gate.code());
            tokio::spawn(async move { answer(&host, &code).await });
            drop(gate.entered().await);
            [pid, Pid::from_raw(child.parse().unwrap()).unwrap()]
        });
        // Drops the runtime, so that no task is left to end the worker.
        drop(dropped_runtime);
        for pid in pids {
            runtime().block_on(wait_for_exit(pid));
        }
    }
}

async fn worker_pid(host: &RubyHost) -> Pid {
    Pid::from_raw(value(host, "Process.pid").await.parse().unwrap()).unwrap()
}

async fn wait_for_exit(pid: Pid) {
    let ended = move || {
        // No such process: it is gone already.
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).expect("a pidfd can be waited for");
    };
    tokio::task::spawn_blocking(ended).await.unwrap();
}
