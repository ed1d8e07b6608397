//! Processes with numbered events, through the client and the real server program over pipes.

use std::time::Duration;

use codex_exec_server::{
    ExecProcess, ExecProcessEvent, ExecProcessParams, ExecProcessStream, ExecServerClient, ExecServerError,
    ExecServerLaunchCommand, OUTPUT_BACKLOG_BYTES,
};

async fn client() -> ExecServerClient {
    let server = ExecServerLaunchCommand::new(env!("CARGO_BIN_EXE_codex-exec-server"));
    ExecServerClient::spawn(server).await.expect("the server starts")
}

fn shell(id: &str, text: &str) -> ExecProcessParams {
    ExecProcessParams::new(id, ["/bin/sh", "-c", text], "/").env("PATH", "/usr/bin:/bin")
}

/// All output that is still to come, and the exit code.
async fn rest(process: &mut ExecProcess) -> (Vec<u8>, Option<i32>) {
    let mut output = Vec::new();
    while let Some(event) = process.next_event().await.expect("the server runs") {
        if let ExecProcessEvent::Output { bytes, .. } = event {
            output.extend(bytes);
        }
    }
    (output, process.exit_code())
}

/// Takes events until the output ends with `end`; it may come in any number of pieces.
async fn take_until(process: &mut ExecProcess, end: &str) {
    let mut text = String::new();
    while !text.ends_with(end) {
        match process.next_event().await.expect("the server runs").expect("more output") {
            ExecProcessEvent::Output { bytes, .. } => text += &String::from_utf8_lossy(&bytes),
            exit @ ExecProcessEvent::Exited { .. } => panic!("{exit:?} after {text:?}"),
        }
    }
}

#[tokio::test]
async fn input_output_and_the_exit_arrive_in_order() {
    let script = "echo up; read line; echo got $line >&2; exit 3";
    let mut process = client().await.start_numbered(shell("p", script).stdin()).await.unwrap();
    let output = |stream, text: &str| ExecProcessEvent::Output { stream, bytes: text.into() };
    assert_eq!(process.next_event().await.unwrap(), Some(output(ExecProcessStream::Stdout, "up\n")));
    process.write("text\n").await.unwrap();
    assert_eq!(process.next_event().await.unwrap(), Some(output(ExecProcessStream::Stderr, "got text\n")));
    let exited = ExecProcessEvent::Exited { exit_code: 3, is_sandbox_denied: false };
    assert_eq!(process.next_event().await.unwrap(), Some(exited));
    for _ in 0..2 {
        assert_eq!(process.next_event().await.unwrap(), None);
    }
    assert_eq!((process.exit_code(), process.position().seq, process.position().writes), (Some(3), 3, 1));
    let page = process.read(1, None, Duration::ZERO).await.unwrap();
    assert_eq!((page.output, page.next_seq), (vec![(2, output(ExecProcessStream::Stderr, "got text\n"))], 5));
    process.write("to nobody").await.unwrap();
}

#[tokio::test]
async fn a_terminal_is_typed_into_interrupted_and_ended() {
    let client = client().await;
    let script = "trap 'echo stopped' INT; echo up; while :; do sleep 0.01; done";
    let mut process = client.start_numbered(shell("p", script).tty()).await.unwrap();
    take_until(&mut process, "up\r\n").await;
    process.write("\u{3}").await.unwrap();
    take_until(&mut process, "stopped\r\n").await;
    process.interrupt().await.unwrap();
    take_until(&mut process, "stopped\r\n").await;
    assert!(process.terminate().await.unwrap());
    assert_eq!(rest(&mut process).await.1, Some(137));
    assert!(!process.terminate().await.unwrap());
}

#[tokio::test]
async fn a_write_with_the_same_id_is_carried_out_once() {
    let mut process =
        client().await.start_numbered(shell("p", "read a; read b; echo $a $b").stdin()).await.unwrap();
    for _ in 0..3 {
        process.write_once("first", "one\n").await.unwrap();
    }
    process.write_once("second", "two\n").await.unwrap();
    assert_eq!(rest(&mut process).await, (b"one two\n".to_vec(), Some(0)));
}

#[tokio::test]
async fn failures_name_their_cause() {
    let client = client().await;
    let refused = client.start_numbered(ExecProcessParams::new("p", ["/no/such"], "/")).await.unwrap_err();
    assert!(matches!(refused, ExecServerError::Refused { code: -32603, .. }), "{refused}");
    let process = client.start_numbered(shell("p", "exec sleep 60")).await.unwrap();
    assert!(matches!(process.write("x").await, Err(ExecServerError::NoInput(id)) if id == "p"));
    let double = client.start_numbered(shell("p", "true")).await.unwrap_err();
    assert!(matches!(double, ExecServerError::DuplicateProcess(_)), "{double}");
}

#[tokio::test]
async fn the_environment_of_the_server_is_inherited_on_request() {
    let client = client().await;
    let env = |id: &str| ExecProcessParams::new(id, ["/usr/bin/env"], "/").env("ONLY", "this");
    let mut own = client.start_numbered(env("own")).await.unwrap();
    assert_eq!(rest(&mut own).await.0, b"ONLY=this\n");
    let mut inherited = client.start_numbered(env("inherited").inherit_env()).await.unwrap();
    let text = String::from_utf8(rest(&mut inherited).await.0).unwrap();
    assert!(text.contains("PATH=") && text.contains("ONLY=this\n"), "{text}");
}

#[tokio::test]
async fn output_beyond_the_backlog_waits_for_its_reader() {
    let size = 2 * OUTPUT_BACKLOG_BYTES;
    let client = client().await;
    let script = format!("head -c {size} /dev/zero; echo end");
    let mut late = client.start_numbered(shell("late", &script)).await.unwrap();
    let (output, exit_code) = rest(&mut late).await;
    assert_eq!((output.len(), exit_code), (size + 4, Some(0)));
    assert!(output.ends_with(b"\0end\n"));
}
