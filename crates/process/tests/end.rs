//! How processes end: by themselves, when told to, and with relatives that stay behind.

mod common;

use std::time::Duration;

use common::{Watched, is_running, run, script, terminal};
use parlor_process::{ProcessNews, STDIN_QUEUE_BYTES, TERMINATE_GRACE, WriteError, WriteId, Written};
use parlor_vocab::ProcessExit;

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_signal_of_somebody_else_is_told_by_its_number() {
    assert_eq!(run(&script("kill -9 $$")).await.1, ProcessExit::Signal(9));
    assert_eq!(run(&terminal("kill -15 $$")).await.1, ProcessExit::Signal(15));
}

#[tokio::test]
async fn a_process_that_obeys_may_choose_its_status() {
    let mut watched =
        Watched::start(&script("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"))
            .unwrap();
    watched.until("up").await;
    assert!(watched.process.terminate(LONG));
    assert_eq!(watched.end().await, ProcessExit::Code(7));
    assert_eq!(watched.shown(), "up\nbye\n");
}

#[tokio::test]
async fn a_process_that_just_dies_of_it_was_terminated() {
    let mut watched = Watched::start(&script("echo up; exec sleep 600")).unwrap();
    watched.until("up").await;
    assert!(watched.process.terminate(LONG));
    assert_eq!(watched.end().await, ProcessExit::Terminated);
    assert!(!watched.process.terminate(LONG), "it is not alive any more");
}

#[tokio::test]
async fn a_process_that_ignores_the_request_is_killed_with_its_children() {
    let text = "trap '' TERM HUP; (trap '' TERM HUP; echo child=$(exec sh -c 'echo $PPID'); while :; do sleep 1; done) & echo up; while :; do sleep 1; done";
    for start in [script(text), terminal(text)] {
        let mut watched = Watched::start(&start).unwrap();
        watched.until("up").await;
        watched.until("child=").await;
        watched.until("\n").await;
        let child = watched.number("child");
        assert!(is_running(child));
        assert!(watched.process.terminate(Duration::from_millis(50)));
        assert_eq!(watched.end().await, ProcessExit::Terminated);
        assert!(!is_running(child), "the grandchild is gone before the exit is reported");
    }
}

#[tokio::test]
async fn a_second_shorter_grace_hurries() {
    let mut watched = Watched::start(&script("trap '' TERM; echo up; while :; do sleep 1; done")).unwrap();
    watched.until("up").await;
    assert!(watched.process.terminate(LONG));
    assert!(watched.process.terminate(Duration::ZERO));
    assert_eq!(watched.end().await, ProcessExit::Terminated);
}

#[tokio::test]
async fn a_stopped_process_can_be_ended() {
    let mut watched = Watched::start(&script("echo up; kill -STOP $$")).unwrap();
    watched.until("up").await;
    assert!(watched.process.terminate(LONG));
    assert_eq!(watched.end().await, ProcessExit::Terminated);
}

/// An interactive shell that runs `job` in its foreground, with the job's number.
async fn shell_with(job: &str) -> (Watched, i32) {
    let mut start = terminal("");
    start.program = "/bin/bash".to_owned();
    start.args = vec!["--norc".to_owned(), "-i".to_owned()];
    start.env.push(("PS1".to_owned(), "ready$ ".to_owned()));
    let mut watched = Watched::start(&start).expect("bash is there");
    watched.until("ready$ ").await;
    let line = format!("sh -c '{job}'\n").into_bytes();
    assert_eq!(watched.process.write(WriteId(1), line), Ok(Written::Accepted));
    // The line is echoed first; the job's own line starts with what the echo cannot hold.
    watched.until("\njob=").await;
    watched.until("\r\n").await;
    let shown = watched.shown();
    let number = shown.split("\njob=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let number = number.and_then(|number| number.parse().ok()).expect("the job says its number");
    assert!(is_running(number));
    (watched, number)
}

#[tokio::test]
async fn an_interactive_shell_and_its_job_are_ended() {
    let (mut watched, job) = shell_with("echo job=$$; exec sleep 600").await;
    assert!(watched.process.terminate(LONG));
    watched.end().await;
    assert!(!is_running(job), "the job had a group of its own and is gone all the same");
}

#[tokio::test]
async fn a_stubborn_job_of_a_shell_is_killed_too() {
    let (mut watched, job) = shell_with("trap \"\" HUP TERM; echo job=$$; while :; do sleep 1; done").await;
    assert!(watched.process.terminate(Duration::from_millis(50)));
    watched.end().await;
    assert!(!is_running(job), "its shell died first, and it ignores what it was told");
}

#[tokio::test]
async fn output_held_open_by_a_relative_does_not_hold_up_the_exit() {
    for start in [script("sleep 600 & echo last"), terminal("trap '' HUP; sleep 600 & echo last")] {
        let (watched, ending) = run(&start).await;
        assert_eq!(ending, ProcessExit::Code(0));
        assert_eq!(watched.shown().trim_end(), "last");
    }
}

#[tokio::test]
async fn a_relative_that_never_stops_writing_does_not_either() {
    let (watched, ending) = run(&script("echo first; yes & exit 4")).await;
    assert_eq!(ending, ProcessExit::Code(4));
    assert!(watched.shown().contains("first\n"));
}

#[tokio::test]
async fn nothing_of_the_group_outlives_the_exit() {
    let (watched, _) = run(&script("sleep 600 >/dev/null 2>&1 & echo child=$!")).await;
    assert!(!is_running(watched.number("child")));
}

#[tokio::test]
async fn no_zombie_is_left() {
    let mut watched = Watched::start(&script("echo pid=$$")).unwrap();
    watched.end().await;
    let pid = watched.number("pid");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "reaped before it is reported");
}

#[tokio::test]
async fn a_write_that_waits_is_answered_when_the_process_ends() {
    let mut watched = Watched::start(&terminal("stty raw -echo; echo up; exec sleep 600")).unwrap();
    watched.until("up").await;
    assert_eq!(watched.process.write(WriteId(1), vec![b'x'; 2 * STDIN_QUEUE_BYTES]), Ok(Written::Accepted));
    assert_eq!(watched.process.write(WriteId(2), b"more".to_vec()), Ok(Written::Waiting));
    assert!(watched.process.terminate(TERMINATE_GRACE));
    watched.end().await;
    assert_eq!(watched.other, [ProcessNews::WriteLost(WriteId(2))]);
    assert_eq!(watched.process.write(WriteId(3), b"late".to_vec()), Err(WriteError::Gone));
}

#[tokio::test]
async fn an_order_reaches_relatives_of_a_process_that_is_gone() {
    let text = "(trap '' TERM; echo child=$(exec sh -c 'echo $PPID'); while :; do echo x; sleep 0.05; done) & wait -n 2>/dev/null; read line; exit 0";
    let mut watched = Watched::start(&terminal(text)).unwrap();
    watched.until("child=").await;
    watched.until("x").await;
    let child = watched.number("child");
    watched.process.write(WriteId(1), b"\n".to_vec()).unwrap();
    // Whether the shell is gone by now or not: within no grace at all, nobody is left.
    watched.process.terminate(Duration::ZERO);
    watched.end().await;
    assert!(!is_running(child));
}
