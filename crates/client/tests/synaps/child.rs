//! Tests with children that are processes: shell scripts with a fixed `ready` frame.

use std::path::Path;
use std::time::Duration;

use parlor_client::synaps::{SynapsClient, SynapsError, SynapsLaunch};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::{is_closed, text_of, with_timeout};

const READY: &str = r#"echo '{"type":"ready","session_id":"s","model":"m","protocol_version":1}';"#;

/// A child that runs the script `text`. Its flags are `$@`.
fn script(text: &str) -> SynapsLaunch {
    let mut launch = SynapsLaunch::new("/bin/sh");
    launch.args = vec!["-c".to_owned(), text.to_owned(), "child".to_owned()];
    launch
}

/// A child that sends `ready` and then runs the script `text`.
async fn ready(text: &str) -> SynapsClient {
    SynapsClient::spawn(script(&format!("{READY} {text}"))).await.unwrap()
}

/// A named pipe, through which a script reports to the test.
async fn fifo(path: &Path) -> pipe::Receiver {
    let made = tokio::process::Command::new("mkfifo").arg(path).status().await.unwrap();
    assert!(made.success());
    pipe::OpenOptions::new().open_receiver(path).unwrap()
}

/// A script that ignores SIGTERM and the end of its input, and the pipe that its death closes.
async fn unstoppable(folder: &Path) -> (String, pipe::Receiver) {
    let path = folder.join("fifo");
    let alive = fifo(&path).await;
    // The script waits for a line that never comes, so only its death closes the pipe.
    let text = format!("exec 3<>'{0}' 4>'{0}'; trap '' HUP TERM; {READY} read -r line <&3", path.display());
    (text, alive)
}

async fn wait_for_death(mut alive: pipe::Receiver) {
    let mut nothing = Vec::new();
    alive.read_to_end(&mut nothing).await.unwrap();
    assert_eq!(nothing, b"");
}

#[tokio::test]
async fn the_error_names_a_program_that_does_not_exist() {
    let error = SynapsClient::spawn(SynapsLaunch::new("/no/such/synaps")).await.unwrap_err();
    assert!(matches!(error, SynapsError::Spawn { .. }));
    assert!(error.to_string().contains("/no/such/synaps"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn the_child_gets_its_flags_variables_and_folder() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let text = |text: &str| Some(text.to_owned());
        let launch = SynapsLaunch {
            resume: text("s"),
            system: text("be brief"),
            model: text("m"),
            profile: text("p"),
            env: vec![("COLOUR".to_owned(), "blue".to_owned())],
            cwd: Some(folder.path().to_owned()),
            ..script(
                r#"printf '{"type":"ready","session_id":"%s","model":"%s","protocol_version":1}\n' \
                   "$*" "$COLOUR $(pwd -P)"; cat"#,
            )
        };
        let client = SynapsClient::spawn(launch).await.unwrap();
        assert_eq!(client.session_id(), "--continue s --system be brief --model m --profile p");
        let folder = folder.path().canonicalize().unwrap();
        assert_eq!(client.model(), format!("blue {}", folder.display()));
    })
    .await;
}

#[tokio::test]
async fn the_error_has_the_status_of_a_child_that_exits_at_once() {
    with_timeout(async {
        let error = SynapsClient::spawn(script("exit 1")).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_child_of_another_version_is_killed() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = unstoppable(folder.path()).await;
        let text = text.replace(r#""protocol_version":1"#, r#""protocol_version":7"#);
        let error = SynapsClient::spawn(script(&text)).await.unwrap_err();
        assert!(matches!(error, SynapsError::Version { offered: 7 }), "{error:?}");
        wait_for_death(alive).await;
    })
    .await;
}

#[tokio::test]
async fn a_child_that_is_not_ready_in_time_is_killed() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = unstoppable(folder.path()).await;
        let launch =
            SynapsLaunch { ready_wait: Duration::from_millis(200), ..script(&text.replace(READY, "")) };
        let error = SynapsClient::spawn(launch).await.unwrap_err();
        assert!(matches!(error, SynapsError::NotReady { .. }), "{error:?}");
        wait_for_death(alive).await;
    })
    .await;
}

#[tokio::test]
async fn the_error_has_the_status_of_a_child_that_dies_during_a_turn() {
    with_timeout(async {
        let delta = r#"{"type":"message_update","event":{"type":"text_delta","delta":"half"}}"#;
        let client = ready(&format!("read -r line; echo '{delta}'; exit 3")).await;
        let mut turn = client.prompt("go").await.unwrap();
        assert_eq!(text_of(turn.next_event().await.unwrap()), "half");
        let error = turn.next_event().await.unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert!(is_closed(&client.state().await));
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_child_is_noticed_although_a_descendant_holds_its_output_open() {
    with_timeout(async {
        let client = ready("exec 3<&0; cat <&3 4>&1 >/dev/null & kill -9 $$").await;
        let error = client.state().await.unwrap_err();
        assert!(matches!(&error, SynapsError::Closed { status: Some(_), .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn shutdown_returns_the_exit_status() {
    with_timeout(async {
        let client = ready(r#"read -r line; test "$line" = '{"type":"shutdown"}' && exit 4"#).await;
        let status = client.shutdown().await.unwrap().expect("this client started the child");
        assert_eq!(status.code(), Some(4));
        assert_eq!(client.shutdown().await.unwrap().and_then(|status| status.code()), Some(4));
    })
    .await;
}

#[tokio::test]
async fn a_child_that_runs_on_after_shutdown_gets_sigterm_and_then_sigkill() {
    with_timeout(async {
        let short_wait = |text: &str| SynapsLaunch { exit_wait: Duration::from_millis(100), ..script(text) };
        let exits_on_term =
            format!("trap 'exit 6' TERM; {READY} while :; do read -r line || sleep 0.05; done");
        let client = SynapsClient::spawn(short_wait(&exits_on_term)).await.unwrap();
        assert_eq!(client.shutdown().await.unwrap().and_then(|status| status.code()), Some(6));

        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = unstoppable(folder.path()).await;
        let client = SynapsClient::spawn(short_wait(&text)).await.unwrap();
        let status = client.shutdown().await.unwrap().expect("this client started the child");
        assert_eq!(status.code(), None, "a signal ended it");
        wait_for_death(alive).await;
    })
    .await;
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_childs_input() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mut report = fifo(&path).await;
        let client = SynapsClient::spawn(script(&format!(
            "exec 3>'{}'; {READY} cat >&2; echo bye >&3",
            path.display()
        )));
        let client = client.await.unwrap();
        let turn = client.prompt("go").await.unwrap();
        drop(client);
        drop(turn);
        // The child had the time to write this, so it was not killed.
        let mut bye = String::new();
        report.read_to_string(&mut bye).await.unwrap();
        assert_eq!(bye, "bye\n");
    })
    .await;
}

#[tokio::test]
async fn a_child_that_ignores_the_end_of_its_input_is_killed() {
    with_timeout(async {
        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = unstoppable(folder.path()).await;
        drop(SynapsClient::spawn(script(&text)).await.unwrap());
        wait_for_death(alive).await;
    })
    .await;
}
