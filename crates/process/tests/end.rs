//! How processes end: by themselves, on request, and with descendants that stay behind.

mod common;

use std::time::Duration;

use common::{TestProcess, is_running, run, script, terminal};
use parlor_process::{ChildEvent, STDIN_QUEUE_BYTES, TERMINATE_GRACE, WriteError, WriteId, WriteStatus};
use parlor_vocab::ProcessExit;

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_foreign_signal_is_reported_by_its_number() {
    assert_eq!(run(&script("kill -9 $$")).await.1, ProcessExit::Signal(9));
    assert_eq!(run(&terminal("kill -15 $$")).await.1, ProcessExit::Signal(15));
}

#[tokio::test]
async fn a_process_that_handles_sigterm_may_choose_its_status() {
    let mut test =
        TestProcess::start(&script("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"))
            .unwrap();
    test.until("up").await;
    assert!(test.process.terminate(LONG));
    assert_eq!(test.end().await, ProcessExit::Code(7));
    assert_eq!(test.shown(), "up\nbye\n");
}

#[tokio::test]
async fn a_process_that_dies_of_sigterm_is_reported_as_terminated() {
    let mut test = TestProcess::start(&script("echo up; exec sleep 600")).unwrap();
    test.until("up").await;
    assert!(test.process.terminate(LONG));
    assert_eq!(test.end().await, ProcessExit::Terminated);
    assert!(!test.process.terminate(LONG), "it is not alive any more");
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed_with_its_children() {
    let text = "trap '' TERM HUP; (trap '' TERM HUP; echo child=$(exec sh -c 'echo $PPID'); while :; do sleep 1; done) & echo up; while :; do sleep 1; done";
    for start in [script(text), terminal(text)] {
        let mut test = TestProcess::start(&start).unwrap();
        test.until("up").await;
        test.until("child=").await;
        test.until("\n").await;
        let child = test.number("child");
        assert!(is_running(child));
        assert!(test.process.terminate(Duration::from_millis(50)));
        assert_eq!(test.end().await, ProcessExit::Terminated);
        assert!(!is_running(child), "the grandchild is gone before the exit is reported");
    }
}

#[tokio::test]
async fn a_second_call_can_shorten_the_grace() {
    let mut test = TestProcess::start(&script("trap '' TERM; echo up; while :; do sleep 1; done")).unwrap();
    test.until("up").await;
    assert!(test.process.terminate(LONG));
    assert!(test.process.terminate(Duration::ZERO));
    assert_eq!(test.end().await, ProcessExit::Terminated);
}

#[tokio::test]
async fn a_stopped_process_can_be_ended() {
    let mut test = TestProcess::start(&script("echo up; kill -STOP $$")).unwrap();
    test.until("up").await;
    assert!(test.process.terminate(LONG));
    assert_eq!(test.end().await, ProcessExit::Terminated);
}

/// Starts an interactive shell that runs `job` in its foreground. Returns the pid of the job.
async fn shell_with(job: &str) -> (TestProcess, i32) {
    let mut start = terminal("");
    start.program = "/bin/bash".to_owned();
    start.args = vec!["--norc".to_owned(), "-i".to_owned()];
    start.env.push(("PS1".to_owned(), "ready$ ".to_owned()));
    let mut test = TestProcess::start(&start).expect("bash is installed");
    test.until("ready$ ").await;
    let line = format!("sh -c '{job}'\n").into_bytes();
    assert_eq!(test.process.write(WriteId(1), line), Ok(WriteStatus::Accepted));
    // The terminal echoes the command first; only the output of the job has a newline before `job=`.
    test.until("\njob=").await;
    test.until("\r\n").await;
    let shown = test.shown();
    let number = shown.split("\njob=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let number = number.and_then(|number| number.parse().ok()).expect("the job prints its pid");
    assert!(is_running(number));
    (test, number)
}

#[tokio::test]
async fn an_interactive_shell_and_its_job_are_ended() {
    let (mut test, job) = shell_with("echo job=$$; exec sleep 600").await;
    assert!(test.process.terminate(LONG));
    test.end().await;
    assert!(!is_running(job), "the job has a group of its own and is gone too");
}

#[tokio::test]
async fn a_job_that_ignores_signals_is_killed_too() {
    let (mut test, job) = shell_with("trap \"\" HUP TERM; echo job=$$; while :; do sleep 1; done").await;
    assert!(test.process.terminate(Duration::from_millis(50)));
    test.end().await;
    assert!(!is_running(job), "its shell ended first, and it ignores SIGHUP and SIGTERM");
}

#[tokio::test]
async fn a_descendant_that_keeps_the_output_open_does_not_delay_the_exit() {
    for start in [script("sleep 600 & echo last"), terminal("trap '' HUP; sleep 600 & echo last")] {
        let (test, ending) = run(&start).await;
        assert_eq!(ending, ProcessExit::Code(0));
        assert_eq!(test.shown().trim_end(), "last");
    }
}

#[tokio::test]
async fn a_descendant_that_never_stops_writing_does_not_delay_the_exit() {
    let (test, ending) = run(&script("echo first; yes & exit 4")).await;
    assert_eq!(ending, ProcessExit::Code(4));
    assert!(test.shown().contains("first\n"));
}

#[tokio::test]
async fn no_process_of_the_group_outlives_the_exit() {
    let (test, _) = run(&script("sleep 600 >/dev/null 2>&1 & echo child=$!")).await;
    assert!(!is_running(test.number("child")));
}

#[tokio::test]
async fn no_zombie_is_left() {
    let mut test = TestProcess::start(&script("echo pid=$$")).unwrap();
    test.end().await;
    let pid = test.number("pid");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "reaped before it is reported");
}

#[tokio::test]
async fn a_waiting_write_is_reported_as_lost_when_the_process_ends() {
    let mut test = TestProcess::start(&terminal("stty raw -echo; echo up; exec sleep 600")).unwrap();
    test.until("up").await;
    assert_eq!(test.process.write(WriteId(1), vec![b'x'; 2 * STDIN_QUEUE_BYTES]), Ok(WriteStatus::Accepted));
    assert_eq!(test.process.write(WriteId(2), b"more".to_vec()), Ok(WriteStatus::Waiting));
    assert!(test.process.terminate(TERMINATE_GRACE));
    test.end().await;
    assert_eq!(test.other, [ChildEvent::WriteLost(WriteId(2))]);
    assert_eq!(test.process.write(WriteId(3), b"late".to_vec()), Err(WriteError::Gone));
}

#[tokio::test]
async fn terminating_reaches_descendants_of_a_process_that_has_exited() {
    let text = "(trap '' TERM; echo child=$(exec sh -c 'echo $PPID'); while :; do echo x; sleep 0.05; done) & wait -n 2>/dev/null; read line; exit 0";
    let mut test = TestProcess::start(&terminal(text)).unwrap();
    test.until("child=").await;
    test.until("x").await;
    let child = test.number("child");
    test.process.write(WriteId(1), b"\n".to_vec()).unwrap();
    // Without grace, nobody is left, whether or not the shell has already exited.
    test.process.terminate(Duration::ZERO);
    test.end().await;
    assert!(!is_running(child));
}
