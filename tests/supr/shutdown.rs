//! Servers that stop or are killed, runs that are stopped, and the log lines of both.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::client::{Client, Ended, within_timeout};
use crate::http_api::get;
use crate::kept_text::kept_text;
use crate::server::{Server, TOKEN};

#[tokio::test]
async fn a_server_that_stops_stops_its_runs_and_closes_connections_with_1001() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_to_script("speak, then wait").await;
    let started = client.until("message.started").await;
    let seen = client.last_event.clone().unwrap();
    server.send_sigterm();
    let failed = client.until("run.failed").await;
    assert_eq!(
        (&failed["run_id"], &failed["data"]["error_code"]),
        (&started["run_id"], &json!("RUN_CANCELLED"))
    );
    let ended = client.ended().await;
    assert!(matches!(ended, Ended::Closed(1001, _)), "{ended:?}");
    assert!(server.stop().success());
    // A client that missed the event gets it in the replay.
    let server = Server::on(&server.home);
    let mut client = Client::connect(server.http, &format!("session_id=a&after={seen}")).await;
    let replayed = client.until("run.failed").await;
    assert_eq!((&replayed["event_id"], &replayed["replay"]), (&failed["event_id"], &json!(true)));
}

#[tokio::test]
async fn messages_queued_when_the_server_stops_run_when_a_client_reconnects() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a&stream=1").await;
    client.send_text("/wait 600").await;
    client.until("run.started").await;
    for text in ["one", "two"] {
        client.send_text(&format!("/say {text}")).await;
        client.until("run.queued").await;
    }
    assert!(server.stop().success());
    let server = Server::on(&server.home);
    let session = get(&server, "/api/sessions").await[0].clone();
    assert_eq!((&session["running"], &session["queued"]), (&json!(false), &json!(2)));
    let mut client = Client::connect(server.http, "session_id=a").await;
    for text in ["one", "two"] {
        assert_eq!(client.until("message.completed").await["data"]["text"], text);
    }
}

#[tokio::test]
async fn the_log_has_the_address_and_the_session_but_no_token() {
    let mut server = Server::start();
    let client = Client::connect(server.http, "session_id=a").await;
    drop(client);
    let log = server.stop_and_read_log();
    assert!(log.contains(&format!("serving http={}", server.http)), "{log}");
    assert!(log.contains("connected session=\"a\""), "{log}");
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn a_full_stderr_pipe_does_not_block_the_server() {
    let server = Server::start();
    let pipe = 64 << 10;
    // Each connection logs two lines of more than 60 bytes.
    for _ in 0..pipe / 100 {
        let client = Client::connect(server.http, "session_id=a").await;
        drop(client);
    }
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_text("/say still here").await;
    assert_eq!(client.until("message.completed").await["data"]["text"], "still here");
}

/// Waits for a file with a process id, and returns the id.
async fn read_pid(file: &Path) -> u32 {
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(Ok(pid)) = text.strip_suffix('\n').map(str::parse) {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs. A zombie has ended; its new parent has just not reaped it yet.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[tokio::test]
async fn a_stop_kills_the_whole_process_group_of_a_shell_that_ignores_sigterm() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_text("!trap '' TERM; sleep 600 & echo $! > child; echo $$ > shell; wait; wait").await;
    client.until("tool.called").await;
    let (child, shell) = (server.home.join("child"), server.home.join("shell"));
    let processes = [within_timeout(read_pid(&child)).await, within_timeout(read_pid(&shell)).await];
    assert!(processes.iter().all(|pid| is_running(*pid)));
    client.send(&json!({"type": "run.stop"})).await;
    assert_eq!(client.until("message.completed").await["data"]["text"], "Stopped by user.");
    assert_eq!(client.until("run.failed").await["data"]["error_code"], "RUN_CANCELLED");
    // The processes have ended before the run's end is sent.
    assert!(!processes.iter().any(|pid| is_running(*pid)), "some processes still run");
}

#[tokio::test]
async fn a_run_whose_server_was_killed_ends_as_interrupted_when_a_client_reconnects() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_to_script("speak, then wait").await;
    let started = client.until("message.started").await;
    server.kill_and_restart();
    assert_eq!(client.ended().await, Ended::Dropped);
    // Connecting is enough; no message is needed.
    let after = client.last_event.unwrap();
    let mut client = Client::connect(server.http, &format!("session_id=a&after={after}")).await;
    let failed = client.until("run.failed").await;
    assert_eq!(failed["run_id"], started["run_id"]);
    assert_eq!(failed["data"]["error_code"], "RUN_INTERRUPTED");
    assert_eq!(failed["data"]["retryable"], true);
    client.send_text("/say hi").await;
    client.until("run.completed").await;
}

#[tokio::test]
async fn a_message_is_answered_even_if_its_sender_disconnects_at_once() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_text("/say into the void").await;
    drop(client);
    let mut client = Client::connect(server.http, "session_id=a&after=").await;
    assert_eq!(client.until("message.completed").await["data"]["text"], "into the void");
    client.until("run.completed").await;
}

#[tokio::test]
async fn a_client_that_reconnects_gets_the_text_of_the_interrupted_message_once() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_text("/wait 300").await;
    let started = client.until("message.started").await;
    let kept = within_timeout(kept_text(&server.home, "a")).await;
    server.kill_and_restart();
    assert_eq!(client.ended().await, Ended::Dropped);
    for _ in 0..2 {
        let mut client = Client::connect(server.http, "session_id=a&after=").await;
        let completed = client.until("message.completed").await;
        assert_eq!(completed["data"]["message_id"], started["data"]["message_id"]);
        assert!(completed["data"]["text"].as_str().unwrap().starts_with(&kept), "{completed}");
        let failed = client.until("run.failed").await;
        assert_eq!(failed["data"]["error_code"], "RUN_INTERRUPTED");
    }
    let events = server.prints(&["replay", "--json", "a"]);
    let message = started["data"]["message_id"].as_str().unwrap();
    assert_eq!(events.lines().filter(|line| line.contains(message)).count(), 2, "{events}");
}
