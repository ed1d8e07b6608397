//! Children that are processes: shell scripts that know one greeting by heart.

use std::path::Path;
use std::time::Duration;

use parlor_client::synaps::{SynapsClient, SynapsError, SynapsLaunch};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::{is_closed, said, watched};

const READY: &str = r#"echo '{"type":"ready","session_id":"s","model":"m","protocol_version":1}';"#;

/// A child that is `text`. Its flags are `$@`.
fn script(text: &str) -> SynapsLaunch {
    let mut launch = SynapsLaunch::new("/bin/sh");
    launch.args = vec!["-c".to_owned(), text.to_owned(), "child".to_owned()];
    launch
}

/// A child that is ready and then does `text`.
async fn ready(text: &str) -> SynapsClient {
    SynapsClient::spawn(script(&format!("{READY} {text}"))).await.unwrap()
}

/// A pipe with a name, through which a script can say what happens to it.
async fn fifo(path: &Path) -> pipe::Receiver {
    let made = tokio::process::Command::new("mkfifo").arg(path).status().await.unwrap();
    assert!(made.success());
    pipe::OpenOptions::new().open_receiver(path).unwrap()
}

/// A script that does not end, whatever it is told, and the pipe that its death closes.
async fn stubborn(folder: &Path) -> (String, pipe::Receiver) {
    let path = folder.join("fifo");
    let alive = fifo(&path).await;
    // It waits for a line that never comes, and only its death closes the pipe.
    let text = format!("exec 3<>'{0}' 4>'{0}'; trap '' HUP TERM; {READY} read -r line <&3", path.display());
    (text, alive)
}

async fn is_dead(mut alive: pipe::Receiver) {
    let mut nothing = Vec::new();
    alive.read_to_end(&mut nothing).await.unwrap();
    assert_eq!(nothing, b"");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let error = SynapsClient::spawn(SynapsLaunch::new("/no/such/synaps")).await.unwrap_err();
    assert!(matches!(error, SynapsError::Spawn { .. }));
    assert!(error.to_string().contains("/no/such/synaps"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn flags_variables_and_folder_reach_the_child() {
    watched(async {
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
async fn a_child_that_cannot_start_is_an_error_with_its_status() {
    watched(async {
        let error = SynapsClient::spawn(script("exit 1")).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_child_of_another_version_is_killed() {
    watched(async {
        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = stubborn(folder.path()).await;
        let text = text.replace(r#""protocol_version":1"#, r#""protocol_version":7"#);
        let error = SynapsClient::spawn(script(&text)).await.unwrap_err();
        assert!(matches!(error, SynapsError::Version { offered: 7 }), "{error:?}");
        is_dead(alive).await;
    })
    .await;
}

#[tokio::test]
async fn a_child_that_is_not_ready_in_time_is_killed() {
    watched(async {
        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = stubborn(folder.path()).await;
        let launch =
            SynapsLaunch { ready_wait: Duration::from_millis(200), ..script(&text.replace(READY, "")) };
        let error = SynapsClient::spawn(launch).await.unwrap_err();
        assert!(matches!(error, SynapsError::NotReady { .. }), "{error:?}");
        is_dead(alive).await;
    })
    .await;
}

#[tokio::test]
async fn the_status_of_a_child_that_dies_in_mid_turn_is_told() {
    watched(async {
        let delta = r#"{"type":"message_update","event":{"type":"text_delta","delta":"half"}}"#;
        let client = ready(&format!("read -r line; echo '{delta}'; exit 3")).await;
        let mut turn = client.prompt("go").await.unwrap();
        assert_eq!(said(turn.next_event().await.unwrap()), "half");
        let error = turn.next_event().await.unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert!(is_closed(&client.state().await));
    })
    .await;
}

#[tokio::test]
async fn a_child_that_dies_is_gone_even_if_a_descendant_holds_its_output_open() {
    watched(async {
        let client = ready("exec 3<&0; cat <&3 4>&1 >/dev/null & kill -9 $$").await;
        let error = client.state().await.unwrap_err();
        assert!(matches!(&error, SynapsError::Closed { status: Some(_), .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn shutdown_gives_the_exit_status() {
    watched(async {
        let client = ready(r#"read -r line; test "$line" = '{"type":"shutdown"}' && exit 4"#).await;
        let status = client.shutdown().await.unwrap().expect("it is ours");
        assert_eq!(status.code(), Some(4));
        assert_eq!(client.shutdown().await.unwrap().and_then(|status| status.code()), Some(4));
    })
    .await;
}

#[tokio::test]
async fn a_child_that_goes_on_after_shutdown_is_asked_and_then_killed() {
    watched(async {
        let impatient = |text: &str| SynapsLaunch { exit_wait: Duration::from_millis(100), ..script(text) };
        let polite = format!("trap 'exit 6' TERM; {READY} while :; do read -r line || sleep 0.05; done");
        let client = SynapsClient::spawn(impatient(&polite)).await.unwrap();
        assert_eq!(client.shutdown().await.unwrap().and_then(|status| status.code()), Some(6));

        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = stubborn(folder.path()).await;
        let client = SynapsClient::spawn(impatient(&text)).await.unwrap();
        let status = client.shutdown().await.unwrap().expect("it is ours");
        assert_eq!(status.code(), None, "a signal ended it");
        is_dead(alive).await;
    })
    .await;
}

#[tokio::test]
async fn dropping_the_last_handle_tells_the_child_by_closing_its_input() {
    watched(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mut said = fifo(&path).await;
        let client = SynapsClient::spawn(script(&format!(
            "exec 3>'{}'; {READY} cat >&2; echo bye >&3",
            path.display()
        )));
        let client = client.await.unwrap();
        let turn = client.prompt("go").await.unwrap();
        drop(client);
        drop(turn);
        // It had the time to say so, hence it was not killed.
        let mut bye = String::new();
        said.read_to_string(&mut bye).await.unwrap();
        assert_eq!(bye, "bye\n");
    })
    .await;
}

#[tokio::test]
async fn a_child_that_does_not_listen_is_killed() {
    watched(async {
        let folder = tempfile::tempdir().unwrap();
        let (text, alive) = stubborn(folder.path()).await;
        drop(SynapsClient::spawn(script(&text)).await.unwrap());
        is_dead(alive).await;
    })
    .await;
}
