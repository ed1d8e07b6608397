//! Bytes in and out: all of them, in order, and no faster than they are taken.

mod common;

use common::{Watched, run, script, terminal};
use parlor_process::{ProcessNews, STDIN_QUEUE_BYTES, TerminalDimensions, WriteError, WriteId, Written};
use parlor_vocab::{OutputStream, ProcessExit, StartProcess};

#[tokio::test]
async fn every_byte_arrives_before_the_exit() {
    // A pause before the tail: a reader that stops when the child is gone would lose the tail.
    let (watched, ending) =
        run(&script("head -c 5242880 /dev/zero; sleep 0.05; head -c 300000 /dev/zero | tr '\\0' x")).await;
    assert_eq!(ending, ProcessExit::Code(0));
    assert_eq!(watched.stdout.len(), 5_242_880 + 300_000);
    assert!(watched.stdout[..5_242_880].iter().all(|byte| *byte == 0));
    assert!(watched.stdout[5_242_880..].iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn all_values_of_a_byte_pass() {
    let (watched, _) =
        run(&script("i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done"))
            .await;
    assert_eq!(watched.stdout, (0..=255).collect::<Vec<u8>>());
}

#[tokio::test]
async fn a_consumer_that_does_not_receive_stops_the_child() {
    // 6.5 GB, which nobody receives.
    let mut watched =
        Watched::start(&script("echo pid=$$; exec dd if=/dev/zero bs=65536 count=100000 2>/dev/null"))
            .unwrap();
    watched.until("pid=").await;
    watched.until("\n").await;
    let pid = watched.number("pid");
    // All that `dd` can sleep for is room in its pipe.
    while !is_asleep(pid) {
        tokio::task::yield_now().await;
    }
    let held = watched.process.retained(OutputStream::Stdout).len();
    assert!(held <= 16 * parlor_process::OUTPUT_PIECE_BYTES, "{held} bytes were read for nobody");
    assert!(watched.process.terminate(std::time::Duration::ZERO));
    assert_eq!(watched.end().await, ProcessExit::Terminated);
}

#[tokio::test]
async fn the_last_bytes_of_each_stream_are_retained() {
    let start = StartProcess { retain_bytes: 5, ..script("printf 0123456789; printf abc >&2") };
    let (watched, _) = run(&start).await;
    assert_eq!(watched.process.retained(OutputStream::Stdout), b"56789");
    assert_eq!(watched.process.retained(OutputStream::Stderr), b"abc");
    assert_eq!(watched.stdout, b"0123456789", "retaining less takes nothing from the stream");
    let none = StartProcess { retain_bytes: 0, ..script("echo x") };
    assert_eq!(run(&none).await.0.process.retained(OutputStream::Stdout), b"");
}

#[tokio::test]
async fn a_terminal_has_a_size_an_echo_and_one_stream() {
    let (watched, ending) = run(&terminal("stty size; echo err >&2")).await;
    assert_eq!((watched.shown().as_str(), ending), ("24 80\r\nerr\r\n", ProcessExit::Code(0)));

    let mut watched = Watched::start(&terminal("echo up; cat")).unwrap();
    watched.until("up").await;
    assert_eq!(watched.process.write(WriteId(1), b"hello\n".to_vec()), Ok(Written::Accepted));
    watched.until("hello\r\nhello\r\n").await;
    assert_eq!(watched.process.write(WriteId(2), b"\x04".to_vec()), Ok(Written::Accepted));
    assert_eq!(watched.end().await, ProcessExit::Code(0));
}

#[tokio::test]
async fn a_terminal_that_was_closed_can_be_opened_again() {
    let text = "exec </dev/null >/dev/null 2>&1; head -c 100000 /dev/zero | tr '\\0' x >/dev/tty; exit 3";
    let (watched, ending) = run(&terminal(text)).await;
    assert_eq!((watched.terminal.len(), ending), (100_000, ProcessExit::Code(3)));
}

#[tokio::test]
async fn a_terminal_can_be_resized() {
    let mut watched = Watched::start(&terminal("echo up; read line; stty size")).unwrap();
    watched.until("up").await;
    watched.process.resize(TerminalDimensions { rows: 50, columns: 132 }).unwrap();
    watched.process.write(WriteId(1), b"\n".to_vec()).unwrap();
    watched.end().await;
    assert!(watched.shown().contains("50 132"), "{}", watched.shown());
}

#[tokio::test]
async fn pipes_take_no_input() {
    let watched = Watched::start(&script("exec sleep 600")).unwrap();
    assert_eq!(watched.process.write(WriteId(1), b"x".to_vec()), Err(WriteError::Closed));
    watched.process.terminate(std::time::Duration::ZERO);
}

#[tokio::test]
async fn a_large_write_arrives_whole_and_in_order_and_then_makes_room() {
    let mut watched =
        Watched::start(&terminal("stty raw -echo; echo up; head -c 3000000 | cksum; echo end")).unwrap();
    watched.until("up").await;
    let large: Vec<u8> = (0..STDIN_QUEUE_BYTES * 2).map(|index| (index % 251) as u8).collect();
    let rest: Vec<u8> = (0..3_000_000 - large.len()).map(|index| (index % 13) as u8).collect();
    assert_eq!(watched.process.write(WriteId(1), large.clone()), Ok(Written::Accepted));
    assert_eq!(watched.process.write(WriteId(2), rest.clone()), Ok(Written::Waiting));
    assert_eq!(watched.end().await, ProcessExit::Code(0));
    assert_eq!(watched.other, [ProcessNews::WriteAccepted(WriteId(2))]);

    // The same bytes by another way, through the same program.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bytes");
    std::fs::write(&file, [large, rest].concat()).unwrap();
    let (expected, _) = run(&script(&format!("cksum < {}", file.display()))).await;
    assert!(watched.shown().contains(expected.shown().trim_end()), "{}", watched.shown());
}

fn is_asleep(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it did not write it all and end");
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}
