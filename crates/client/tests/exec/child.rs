//! Tests with servers that are processes: shell scripts with a fixed handshake.

use std::path::Path;

use parlor_client::exec::{ExecServerClient, ExecServerError, ExecServerLaunchCommand};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::{is_closed, next, params, with_timeout};

const HANDSHAKE: &str = r#"
read -r line
echo '{"id":1,"result":{"protocolVersion":"exec-server.v0"}}'
read -r line
"#;

/// Answers the start of process `p`, which is the second request.
const START: &str = r#"
read -r line
echo '{"id":2,"result":{"processId":"p","running":true}}'
"#;

fn script(text: &str) -> ExecServerLaunchCommand {
    let mut command = ExecServerLaunchCommand::new("/bin/sh");
    command.args = vec!["-c".to_owned(), format!("{HANDSHAKE}{text}")];
    command
}

/// A named pipe, through which a script reports to the test.
async fn fifo(path: &Path) -> pipe::Receiver {
    let made = tokio::process::Command::new("mkfifo").arg(path).status().await.unwrap();
    assert!(made.success());
    pipe::OpenOptions::new().open_receiver(path).unwrap()
}

#[tokio::test]
async fn the_error_names_a_program_that_does_not_exist() {
    let error = ExecServerClient::spawn(ExecServerLaunchCommand::new("/no/such/server")).await.unwrap_err();
    assert!(matches!(error, ExecServerError::Spawn { .. }));
    assert!(error.to_string().contains("/no/such/server"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn the_error_has_the_exit_status_of_a_server_that_dies() {
    with_timeout(async {
        let client = ExecServerClient::spawn(script(&format!("{START} read -r line; exit 3"))).await.unwrap();
        let mut process = client.start_process(params("p")).await.unwrap();
        let error = process.terminate().await.unwrap_err();
        assert!(
            matches!(&error, ExecServerError::Closed { status: Some(status), .. } if status.code() == Some(3)),
            "{error:?}"
        );
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert!(is_closed(&process.next_output().await));
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_server_is_noticed_although_a_descendant_holds_its_output_open() {
    with_timeout(async {
        // The descendant runs until the client closes the server's input, and writes nothing.
        let text = format!(
            r#"{START} exec 3<&0; cat <&3 4>&1 >/dev/null &
            echo '{{"method":"command/exec/outputDelta","params":{{"processId":"p","stream":"stdout","chunk":"aGk="}}}}'
            kill -9 $$"#
        );
        let client = ExecServerClient::spawn(script(&text)).await.unwrap();
        let mut process = client.start_process(params("p")).await.unwrap();
        assert_eq!(next(&mut process).await, b"hi");
        let error = process.next_output().await.unwrap_err();
        assert!(matches!(&error, ExecServerError::Closed { status: Some(_), .. }), "{error:?}");
        assert!(is_closed(&client.start_process(params("q")).await));
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_server_fails_calls_although_a_backlog_is_full() {
    with_timeout(async {
        // Three chunks of 3 MiB; the third does not fit into the backlog.
        let text = format!(
            r#"{START} read -r line
            for round in 1 2 3; do
                printf '{{"method":"command/exec/outputDelta","params":{{"processId":"p","stream":"stdout","chunk":"'
                head -c 4194304 /dev/zero | tr '\0' A
                echo '"}}}}'
            done
            exit 5"#
        );
        let client = ExecServerClient::spawn(script(&text)).await.unwrap();
        let mut process = client.start_process(params("p")).await.unwrap();
        let error = process.write("go").await.unwrap_err();
        assert!(error.to_string().contains("exit status: 5"), "{error}");
        for _ in 0..3 {
            assert_eq!(next(&mut process).await.len(), 3 << 20);
        }
        assert!(is_closed(&process.next_output().await));
    })
    .await;
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_servers_input() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mut report = fifo(&path).await;
        let text = format!("exec 3>'{}'; {START} cat; echo bye >&3", path.display());
        let client = ExecServerClient::spawn(script(&text)).await.unwrap();
        let process = client.start_process(params("p")).await.unwrap();
        drop(client);
        drop(process);
        // The server had the time to write this, so it was not killed.
        let mut bye = String::new();
        report.read_to_string(&mut bye).await.unwrap();
        assert_eq!(bye, "bye\n");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_input_is_killed() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mut alive = fifo(&path).await;
        // The script waits for a line that never comes, so only its death closes the pipe.
        let text =
            format!("exec 3<>'{0}' 4>'{0}'; {START} trap '' HUP TERM; read -r line <&3", path.display());
        let client = ExecServerClient::spawn(script(&text)).await.unwrap();
        drop(client.start_process(params("p")).await.unwrap());
        drop(client);
        let mut nothing = Vec::new();
        alive.read_to_end(&mut nothing).await.unwrap();
        assert_eq!(nothing, b"");
    })
    .await;
}
