//! The client with the real server program, over pipes.

use codex_exec_server::{
    ExecOutputStream, ExecParams, ExecServerClient, ExecServerError, ExecServerLaunchCommand,
    ExecServerProcess, OUTPUT_BACKLOG_BYTES,
};

async fn client() -> ExecServerClient {
    let server = ExecServerLaunchCommand::new(env!("CARGO_BIN_EXE_codex-exec-server"));
    ExecServerClient::spawn(server).await.expect("the server starts")
}

fn shell(id: &str, text: &str) -> ExecParams {
    ExecParams::new(id, ["/bin/sh", "-c", text], "/").env("PATH", "/usr/bin:/bin")
}

#[tokio::test]
async fn both_streams_and_the_exit_code_arrive() {
    let process = client().await.start_process(shell("p", "echo out; echo err >&2; exit 3")).await.unwrap();
    let finished = process.output().await.unwrap();
    assert_eq!((&finished.stdout[..], &finished.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(finished.exit_code, 3);
}

/// Reads until the output ends with `end`; it may arrive in any number of pieces.
async fn read_until(process: &mut ExecServerProcess, end: &str) {
    let mut output_text = String::new();
    while !output_text.ends_with(end) {
        let output = process.next_output().await.expect("the server is running").expect("more output");
        assert_eq!(output.stream, ExecOutputStream::Stdout);
        output_text += &String::from_utf8_lossy(&output.bytes);
    }
}

#[tokio::test]
async fn a_terminal_accepts_input_and_is_terminated() {
    let mut process = client().await.start_process(shell("p", "echo up; cat").tty()).await.unwrap();
    // The terminal echoes input at once, so wait for the program before typing.
    read_until(&mut process, "up\r\n").await;
    process.write("hello\n").await.unwrap();
    read_until(&mut process, "hello\r\nhello\r\n").await;
    assert!(process.terminate().await.unwrap());
    assert_eq!(process.wait().await.unwrap(), 137);
    assert!(!process.terminate().await.unwrap());
}

#[tokio::test]
async fn output_that_is_read_late_is_not_lost() {
    let client = client().await;
    let size = 2 * OUTPUT_BACKLOG_BYTES;
    let late =
        client.start_process(shell("late", &format!("head -c {size} /dev/zero; echo end"))).await.unwrap();
    let finished = late.output().await.unwrap();
    assert_eq!(finished.stdout.len(), size + 4);
    assert!(finished.stdout.ends_with(b"\0end\n"));
}

#[tokio::test]
async fn the_outputs_of_twenty_processes_do_not_mix() {
    let client = client().await;
    let mut processes = Vec::new();
    for number in 0..20 {
        let text = format!("for i in 1 2 3 4 5 6 7 8 9; do echo {number}; done; exit {number}");
        processes.push(client.start_process(shell(&format!("p{number}"), &text)).await.unwrap());
    }
    for (number, process) in processes.into_iter().enumerate() {
        let finished = process.output().await.unwrap();
        assert_eq!(String::from_utf8(finished.stdout).unwrap(), format!("{number}\n").repeat(9));
        assert_eq!(finished.exit_code, i32::try_from(number).unwrap());
    }
}

#[tokio::test]
async fn a_failed_start_reports_the_cause_and_leaves_the_id_free() {
    let client = client().await;
    let refused = client.start_process(ExecParams::new("p", ["/no/such"], "/")).await.unwrap_err();
    let ExecServerError::Refused { code, message } = refused else { panic!("{refused}") };
    assert_eq!(code, -32603);
    assert_eq!(message, "cannot run \"/no/such\": No such file or directory (os error 2)");
    let mut process = client.start_process(shell("p", "exit 0")).await.unwrap();
    assert_eq!(process.wait().await.unwrap(), 0);
}

#[tokio::test]
async fn a_killed_server_is_reported_as_an_error() {
    let client = client().await;
    // The process kills its parent, which is the server.
    let text = "stty -echo; echo up; read go; kill -9 $PPID; exec sleep 60";
    let mut killer = client.start_process(shell("k", text).tty()).await.unwrap();
    read_until(&mut killer, "up\r\n").await;
    // The server may be killed before it answers the write.
    let written = killer.write("go\n").await;
    assert!(matches!(written, Ok(()) | Err(ExecServerError::Closed { .. })), "{written:?}");
    let error = killer.next_output().await.unwrap_err();
    assert!(matches!(error, ExecServerError::Closed { .. }), "{error}");
    let later = client.start_process(shell("p", "exit 0")).await.unwrap_err();
    assert!(matches!(later, ExecServerError::Closed { .. }), "{later}");
}

#[tokio::test]
async fn its_processes_are_not_shared_in_a_state_folder() {
    let home = tempfile::tempdir().unwrap();
    let mut server = ExecServerLaunchCommand::new("/usr/bin/env");
    server.args = vec![
        format!("PARLOR_HOME={}", home.path().display()),
        env!("CARGO_BIN_EXE_codex-exec-server").to_owned(),
    ];
    let client = ExecServerClient::spawn(server).await.expect("the server starts");
    let mut process = client.start_process(shell("p", "echo up; cat").tty()).await.unwrap();
    read_until(&mut process, "up\r\n").await;
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn files_are_written_described_and_removed() {
    let client = client().await;
    assert!(client.is_ready().await.unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().canonicalize().unwrap().join("a folder").join("b");
    let (file, copy) = (folder.join("f%"), folder.join("g"));
    client.create_directory(&folder).await.unwrap();
    client.write_file(&file, vec![0, 255, 10]).await.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), [0, 255, 10]);
    assert_eq!(client.read_file(&file).await.unwrap(), [0, 255, 10]);
    let facts = client.file_metadata(&file).await.unwrap();
    assert_eq!((facts.is_file, facts.is_directory, facts.is_symlink, facts.size), (true, false, false, 3));
    client.copy_file(&file, &copy, false).await.unwrap();
    let mut names: Vec<String> =
        client.read_directory(&folder).await.unwrap().into_iter().map(|entry| entry.file_name).collect();
    names.sort();
    assert_eq!(names, ["f%", "g"]);
    assert_eq!(client.canonicalize(&folder.join("../b/g")).await.unwrap(), copy);
    client.remove_file(&file, false).await.unwrap();
    let missing = client.read_file(&file).await.unwrap_err();
    assert!(matches!(missing, ExecServerError::Refused { code: -32004, .. }), "{missing}");
    assert!(client.remove_file(&folder, false).await.is_err(), "the folder is not empty");
    client.remove_file(&folder, true).await.unwrap();
    assert!(!folder.exists());
}
