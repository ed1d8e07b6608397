//! Several connections to one session and to several sessions, and the limit of connections.

use serde_json::json;

use crate::client::{Client, Ended, within_timeout};
use crate::server::Server;

fn replaced() -> Ended {
    Ended::Closed(4001, "replaced".to_owned())
}

#[tokio::test]
async fn a_newer_connection_replaces_an_older_one_and_receives_the_run() {
    let server = Server::start();
    let mut first = Client::connect(server.http, "session_id=a").await;
    first.send_to_script("speak, then wait").await;
    let run = first.until("message.started").await["run_id"].clone();
    let mut second = Client::connect(server.http, "session_id=a").await;
    second.until("agent.list").await;
    assert_eq!(first.ended().await, replaced());
    second.send(&json!({"type": "run.stop", "payload": {"run_id": run}})).await;
    let last = second.until("run.failed").await;
    assert_eq!((&last["run_id"], &last["replay"]), (&run, &json!(false)));
    second.send_text("/say hi").await;
    second.until("run.completed").await;
}

#[tokio::test]
async fn two_tabs_that_replace_each_other_lose_no_event() {
    let server = Server::start();
    let query =
        |client: &Client| format!("session_id=a&after={}", client.last_event.as_deref().unwrap_or_default());
    let mut tab = Client::connect(server.http, "session_id=a&after=").await;
    let mut seen = 0;
    for round in 0..20 {
        tab.send_text(&format!("/say {round}")).await;
        // Wait for the run: a frame that the server has not read when the other tab connects is lost.
        tab.until("run.started").await;
        let mut other = Client::connect(server.http, &query(&tab)).await;
        // This tab receives the events before its close frame; the other tab receives the rest.
        let mut received = Vec::new();
        let ended = loop {
            match tab.next().await {
                Ok(frame) if frame["event_type"].is_string() => received.push(frame["event_id"].clone()),
                Ok(_) => {}
                Err(ended) => break ended,
            }
        };
        assert_eq!(ended, replaced());
        // The other tab connected with an earlier `after`, so it receives those events again, and the rest.
        loop {
            let frame = other.next().await.unwrap();
            received.retain(|event| *event != frame["event_id"]);
            if frame["event_type"] == "run.completed" {
                break;
            }
        }
        seen += 1;
        assert!(received.is_empty(), "the other tab missed {received:?}");
        tab = other;
    }
    assert_eq!(seen, 20);
}

#[tokio::test]
async fn sessions_do_not_receive_each_others_events_or_wait_for_each_other() {
    let server = Server::start();
    let mut a = Client::connect(server.http, "session_id=a").await;
    let mut b = Client::connect(server.http, "session_id=b").await;
    a.send_to_script("quiet").await;
    a.until("run.started").await;
    b.until("agent.list").await;
    b.send_text("/say hi").await;
    b.until("run.completed").await;
    a.send(&json!({"type": "run.stop"})).await;
    a.until("run.failed").await;
    b.send(&json!({"type": "ping"})).await;
    assert_eq!(b.next().await.unwrap()["type"], "pong");
}

#[tokio::test]
async fn the_connection_limit_holds_and_a_closed_connection_frees_its_slot() {
    let server = Server::with("max_connections = 1");
    let mut first = Client::connect(server.http, "session_id=a").await;
    first.until("agent.list").await;
    assert_eq!(Client::connect_or_status(server.http, "session_id=b").await.err().unwrap(), 503);
    // A connection to the same session takes the slot of the first.
    let second = Client::connect(server.http, "session_id=a").await;
    assert_eq!(first.ended().await, replaced());
    drop((first, second));
    within_timeout(async { while Client::connect_or_status(server.http, "session_id=b").await.is_err() {} })
        .await;
}

#[tokio::test]
async fn parlor_replay_and_parlor_sessions_show_a_session_of_the_server() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=browser").await;
    client.send_text("/say hello from the web").await;
    client.until("run.completed").await;
    let replay = server.prints(&["replay", "browser"]);
    assert!(replay.contains("hello from the web"), "{replay}");
    assert!(server.prints(&["sessions"]).contains("browser"));
}
