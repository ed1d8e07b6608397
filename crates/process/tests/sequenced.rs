//! Processes whose exit is reported at once, and whose standard input may be a pipe.

mod common;

use common::{TestProcess, script};
use parlor_process::{ChildEvent, WriteId, WriteStatus};
use parlor_vocab::{ProcessExit, StartProcess, StdioKind};

fn with_input(text: &str) -> StartProcess {
    StartProcess { stdio: StdioKind::PipesWithInput, ..script(text) }
}

/// Reads until the exit of the child itself is reported.
async fn leader_exit(test: &mut TestProcess) -> ProcessExit {
    loop {
        if let Some(ChildEvent::LeaderExited(exit)) = test.other.first() {
            return *exit;
        }
        assert_eq!(test.step().await, None, "the exit of the child comes before the end");
    }
}

#[tokio::test]
async fn the_exit_comes_before_output_that_a_background_process_writes_later() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let text = format!(
        "echo first; (until test -e {}; do sleep 0.01; done; echo late) & exit 3",
        go.to_str().unwrap()
    );
    let mut test = TestProcess::start_sequenced(&script(&text)).unwrap();
    assert_eq!(leader_exit(&mut test).await, ProcessExit::Code(3));
    assert_eq!(test.shown(), "first\n");
    std::fs::write(go, "").unwrap();
    assert_eq!(test.end().await, ProcessExit::Code(3));
    assert_eq!(test.shown(), "first\nlate\n");
}

#[tokio::test]
async fn what_the_child_wrote_comes_before_its_exit() {
    for _ in 0..20 {
        let mut test = TestProcess::start_sequenced(&script("echo out; echo err >&2")).unwrap();
        assert_eq!(leader_exit(&mut test).await, ProcessExit::Code(0));
        assert_eq!((&test.stdout[..], &test.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(test.end().await, ProcessExit::Code(0));
    }
}

#[tokio::test]
async fn a_pipe_as_standard_input_takes_writes() {
    let mut test = TestProcess::start_sequenced(&with_input("read line; echo got $line")).unwrap();
    assert_eq!(test.process.write(WriteId(1), b"hello\n".to_vec()), Ok(WriteStatus::Accepted));
    assert_eq!(test.end().await, ProcessExit::Code(0));
    assert_eq!(test.shown(), "got hello\n");
}

#[tokio::test]
async fn an_interrupt_reaches_the_process_group() {
    let text = "trap 'echo interrupted; exit 5' INT; echo up; while :; do sleep 0.01; done";
    let mut test = TestProcess::start_sequenced(&script(text)).unwrap();
    test.until("up").await;
    test.process.interrupt();
    assert_eq!(test.end().await, ProcessExit::Code(5));
    assert_eq!(test.shown(), "up\ninterrupted\n");
    // The pid may belong to another group now, so nothing is sent.
    test.process.interrupt();
}
