//! Input and output: complete, in order, and no faster than the consumer reads.

mod common;

use common::{TestProcess, run, script, terminal};
use parlor_process::{ChildEvent, STDIN_QUEUE_BYTES, TerminalDimensions, WriteError, WriteId, WriteStatus};
use parlor_vocab::{OutputStream, ProcessExit, StartProcess};

#[tokio::test]
async fn every_byte_arrives_before_the_exit() {
    // A pause before the tail: a reader that stops when the child is gone would lose the tail.
    let (test, ending) =
        run(&script("head -c 5242880 /dev/zero; sleep 0.05; head -c 300000 /dev/zero | tr '\\0' x")).await;
    assert_eq!(ending, ProcessExit::Code(0));
    assert_eq!(test.stdout.len(), 5_242_880 + 300_000);
    assert!(test.stdout[..5_242_880].iter().all(|byte| *byte == 0));
    assert!(test.stdout[5_242_880..].iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn all_byte_values_arrive() {
    let (test, _) =
        run(&script("i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done"))
            .await;
    assert_eq!(test.stdout, (0..=255).collect::<Vec<u8>>());
}

#[tokio::test]
async fn a_consumer_that_does_not_receive_blocks_the_child() {
    // 6.5 GB, which nobody receives.
    let mut test =
        TestProcess::start(&script("echo pid=$$; exec dd if=/dev/zero bs=65536 count=100000 2>/dev/null"))
            .unwrap();
    test.until("pid=").await;
    test.until("\n").await;
    let pid = test.number("pid");
    // `dd` sleeps only when its pipe is full.
    while !is_asleep(pid) {
        tokio::task::yield_now().await;
    }
    let held = test.process.retained(OutputStream::Stdout).len();
    assert!(held <= 16 * parlor_process::OUTPUT_PIECE_BYTES, "{held} bytes were read though nobody receives");
    assert!(test.process.terminate(std::time::Duration::ZERO));
    assert_eq!(test.end().await, ProcessExit::Terminated);
}

#[tokio::test]
async fn the_last_bytes_of_each_stream_are_retained() {
    let start = StartProcess { retain_bytes: 5, ..script("printf 0123456789; printf abc >&2") };
    let (test, _) = run(&start).await;
    assert_eq!(test.process.retained(OutputStream::Stdout), b"56789");
    assert_eq!(test.process.retained(OutputStream::Stderr), b"abc");
    assert_eq!(test.stdout, b"0123456789", "the stream itself is complete");
    let none = StartProcess { retain_bytes: 0, ..script("echo x") };
    assert_eq!(run(&none).await.0.process.retained(OutputStream::Stdout), b"");
}

#[tokio::test]
async fn a_terminal_has_a_size_an_echo_and_one_output_stream() {
    let (test, ending) = run(&terminal("stty size; echo err >&2")).await;
    assert_eq!((test.shown().as_str(), ending), ("24 80\r\nerr\r\n", ProcessExit::Code(0)));

    let mut test = TestProcess::start(&terminal("echo up; cat")).unwrap();
    test.until("up").await;
    assert_eq!(test.process.write(WriteId(1), b"hello\n".to_vec()), Ok(WriteStatus::Accepted));
    test.until("hello\r\nhello\r\n").await;
    assert_eq!(test.process.write(WriteId(2), b"\x04".to_vec()), Ok(WriteStatus::Accepted));
    assert_eq!(test.end().await, ProcessExit::Code(0));
}

#[tokio::test]
async fn a_child_can_close_its_terminal_and_open_it_again() {
    let text = "exec </dev/null >/dev/null 2>&1; head -c 100000 /dev/zero | tr '\\0' x >/dev/tty; exit 3";
    let (test, ending) = run(&terminal(text)).await;
    assert_eq!((test.terminal.len(), ending), (100_000, ProcessExit::Code(3)));
}

#[tokio::test]
async fn a_terminal_can_be_resized() {
    let mut test = TestProcess::start(&terminal("echo up; read line; stty size")).unwrap();
    test.until("up").await;
    test.process.resize(TerminalDimensions { rows: 50, columns: 132 }).unwrap();
    test.process.write(WriteId(1), b"\n".to_vec()).unwrap();
    test.end().await;
    assert!(test.shown().contains("50 132"), "{}", test.shown());
}

#[tokio::test]
async fn a_process_on_pipes_accepts_no_input() {
    let test = TestProcess::start(&script("exec sleep 600")).unwrap();
    assert_eq!(test.process.write(WriteId(1), b"x".to_vec()), Err(WriteError::Closed));
    test.process.terminate(std::time::Duration::ZERO);
}

#[tokio::test]
async fn a_large_write_arrives_completely_and_then_the_waiting_one_is_accepted() {
    let mut test =
        TestProcess::start(&terminal("stty raw -echo; echo up; head -c 3000000 | cksum; echo end")).unwrap();
    test.until("up").await;
    let large: Vec<u8> = (0..STDIN_QUEUE_BYTES * 2).map(|index| (index % 251) as u8).collect();
    let rest: Vec<u8> = (0..3_000_000 - large.len()).map(|index| (index % 13) as u8).collect();
    assert_eq!(test.process.write(WriteId(1), large.clone()), Ok(WriteStatus::Accepted));
    assert_eq!(test.process.write(WriteId(2), rest.clone()), Ok(WriteStatus::Waiting));
    assert_eq!(test.end().await, ProcessExit::Code(0));
    assert_eq!(test.other, [ChildEvent::WriteAccepted(WriteId(2))]);

    // The same bytes from a file, through the same program.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bytes");
    std::fs::write(&file, [large, rest].concat()).unwrap();
    let (expected, _) = run(&script(&format!("cksum < {}", file.display()))).await;
    assert!(test.shown().contains(expected.shown().trim_end()), "{}", test.shown());
}

fn is_asleep(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process still runs");
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}
