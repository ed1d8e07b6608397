//! Several connections: of one session, of several, and too many of them.

use serde_json::json;

use crate::client::{Client, Ended, patiently};
use crate::server::Server;

fn replaced() -> Ended {
    Ended::Closed(4001, "replaced".to_owned())
}

#[tokio::test]
async fn a_newer_connection_replaces_an_older_one_and_the_run_goes_on_there() {
    let server = Server::start();
    let mut first = Client::connect(server.http, "session_id=a").await;
    first.say_to_script("speak, then wait").await;
    let run = first.until("message.started").await["run_id"].clone();
    let mut second = Client::connect(server.http, "session_id=a").await;
    second.until("agent.list").await;
    assert_eq!(first.ended().await, replaced());
    second.send(&json!({"type": "run.stop", "payload": {"run_id": run}})).await;
    let last = second.until("run.failed").await;
    assert_eq!((&last["run_id"], &last["replay"]), (&run, &json!(false)));
    second.say("/say hi").await;
    second.until("run.completed").await;
}

#[tokio::test]
async fn two_tabs_evict_each_other_for_ever_and_nothing_is_lost() {
    let server = Server::start();
    let query =
        |client: &Client| format!("session_id=a&after={}", client.last_event.as_deref().unwrap_or_default());
    let mut tab = Client::connect(server.http, "session_id=a&after=").await;
    let mut seen = 0;
    for round in 0..20 {
        tab.say(&format!("/say {round}")).await;
        // What the server has not read when the other comes is lost, as it is everywhere.
        tab.until("run.started").await;
        let mut other = Client::connect(server.http, &query(&tab)).await;
        // What came before the goodbye was heard by this one; the rest is heard by the other.
        let mut heard = Vec::new();
        let ended = loop {
            match tab.next().await {
                Ok(frame) if frame["event_type"].is_string() => heard.push(frame["event_id"].clone()),
                Ok(_) => {}
                Err(ended) => break ended,
            }
        };
        assert_eq!(ended, replaced());
        // The other began from what was heard when it came, so it tells the same again, and the rest.
        loop {
            let frame = other.next().await.unwrap();
            heard.retain(|event| *event != frame["event_id"]);
            if frame["event_type"] == "run.completed" {
                break;
            }
        }
        seen += 1;
        assert!(heard.is_empty(), "{heard:?}");
        tab = other;
    }
    assert_eq!(seen, 20);
}

#[tokio::test]
async fn sessions_do_not_hear_of_each_other_and_do_not_wait_for_each_other() {
    let server = Server::start();
    let mut a = Client::connect(server.http, "session_id=a").await;
    let mut b = Client::connect(server.http, "session_id=b").await;
    a.say_to_script("quiet").await;
    a.until("run.started").await;
    b.until("agent.list").await;
    b.say("/say hi").await;
    b.until("run.completed").await;
    a.send(&json!({"type": "run.stop"})).await;
    a.until("run.failed").await;
    b.send(&json!({"type": "ping"})).await;
    assert_eq!(b.next().await.unwrap()["type"], "pong");
}

#[tokio::test]
async fn there_are_only_so_many_connections_and_a_place_is_free_again_at_once() {
    let server = Server::with("max_connections = 1");
    let mut first = Client::connect(server.http, "session_id=a").await;
    first.until("agent.list").await;
    assert_eq!(Client::try_connect(server.http, "session_id=b").await.err().unwrap(), 503);
    // One of the same session takes its place.
    let second = Client::connect(server.http, "session_id=a").await;
    assert_eq!(first.ended().await, replaced());
    drop((first, second));
    patiently(async { while Client::try_connect(server.http, "session_id=b").await.is_err() {} }).await;
}

#[tokio::test]
async fn replay_on_the_command_line_shows_the_session() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=desk").await;
    client.say("/say hello from the web").await;
    client.until("run.completed").await;
    let told = server.prints(&["replay", "desk"]);
    assert!(told.contains("hello from the web"), "{told}");
    assert!(server.prints(&["sessions"]).contains("desk"));
}
