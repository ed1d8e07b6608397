//! How things end: the server, a run, a run whose server was killed.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::client::{Client, Ended, patiently};
use crate::house::get;
use crate::server::{Server, TOKEN};

#[tokio::test]
async fn a_server_that_ends_says_so_and_stops_its_runs() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say_to_script("speak, then wait").await;
    let started = client.until("message.started").await;
    let seen = client.last_event.clone().unwrap();
    server.ask_to_end();
    let failed = client.until("run.failed").await;
    assert_eq!(
        (&failed["run_id"], &failed["data"]["error_code"]),
        (&started["run_id"], &json!("RUN_CANCELLED"))
    );
    let ended = client.ended().await;
    assert!(matches!(ended, Ended::Closed(1001, _)), "{ended:?}");
    assert!(server.end().success());
    // Whoever did not hear it finds it.
    let server = Server::on(&server.home);
    let mut client = Client::connect(server.http, &format!("session_id=a&after={seen}")).await;
    let replayed = client.until("run.failed").await;
    assert_eq!((&replayed["event_id"], &replayed["replay"]), (&failed["event_id"], &json!(true)));
}

#[tokio::test]
async fn what_waits_when_the_server_ends_is_begun_for_who_comes_back() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a&stream=1").await;
    client.say("/wait 600").await;
    client.until("run.started").await;
    for text in ["one", "two"] {
        client.say(&format!("/say {text}")).await;
        client.until("run.queued").await;
    }
    assert!(server.end().success());
    let server = Server::on(&server.home);
    let session = get(&server, "/api/sessions").await[0].clone();
    assert_eq!((&session["running"], &session["queued"]), (&json!(false), &json!(2)));
    let mut client = Client::connect(server.http, "session_id=a").await;
    for text in ["one", "two"] {
        assert_eq!(client.until("message.completed").await["data"]["text"], text);
    }
}

#[tokio::test]
async fn a_journal_has_the_address_the_session_and_no_token() {
    let mut server = Server::start();
    let client = Client::connect(server.http, "session_id=a").await;
    drop(client);
    let journal = server.end_and_tell();
    assert!(journal.contains(&format!("serving http={}", server.http)), "{journal}");
    assert!(journal.contains("connected session=\"a\""), "{journal}");
    assert!(!journal.contains(TOKEN), "{journal}");
}

#[tokio::test]
async fn a_journal_that_nobody_reads_stops_nobody() {
    let server = Server::start();
    let pipe = 64 << 10;
    // Each says more than 60 bytes, twice.
    for _ in 0..pipe / 100 {
        let client = Client::connect(server.http, "session_id=a").await;
        drop(client);
    }
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say("/say still here").await;
    assert_eq!(client.until("message.completed").await["data"]["text"], "still here");
}

/// The number in a file, once it is there.
async fn process_in(file: &Path) -> u32 {
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(Ok(pid)) = text.strip_suffix('\n').map(str::parse) {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs. A zombie does not: who adopted it is slow, that is all.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[tokio::test]
async fn a_stop_reaches_the_whole_group_of_a_shell_that_does_not_listen() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say("!trap '' TERM; sleep 600 & echo $! > child; echo $$ > shell; wait; wait").await;
    client.until("tool.called").await;
    let (child, shell) = (server.home.join("child"), server.home.join("shell"));
    let processes = [patiently(process_in(&child)).await, patiently(process_in(&shell)).await];
    assert!(processes.iter().all(|pid| runs(*pid)));
    client.send(&json!({"type": "run.stop"})).await;
    assert_eq!(client.until("message.completed").await["data"]["text"], "Stopped by user.");
    assert_eq!(client.until("run.failed").await["data"]["error_code"], "RUN_CANCELLED");
    // When the end is told, they are gone.
    assert!(!processes.iter().any(|pid| runs(*pid)), "some are left");
}

#[tokio::test]
async fn a_run_whose_server_was_killed_ends_for_those_who_come_back() {
    let mut server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say_to_script("speak, then wait").await;
    let started = client.until("message.started").await;
    server.kill_and_restart();
    assert_eq!(client.ended().await, Ended::Dropped);
    // Nobody says anything: to come back is enough.
    let after = client.last_event.unwrap();
    let mut client = Client::connect(server.http, &format!("session_id=a&after={after}")).await;
    let failed = client.until("run.failed").await;
    assert_eq!(failed["run_id"], started["run_id"]);
    assert_eq!(failed["data"]["error_code"], "RUN_INTERRUPTED");
    assert_eq!(failed["data"]["retryable"], true);
    client.say("/say hi").await;
    client.until("run.completed").await;
}

#[tokio::test]
async fn a_message_whose_sender_leaves_at_once_is_answered_all_the_same() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say("/say into the void").await;
    drop(client);
    let mut client = Client::connect(server.http, "session_id=a&after=").await;
    assert_eq!(client.until("message.completed").await["data"]["text"], "into the void");
    client.until("run.completed").await;
}
