//! A client that stops reading while many large events are sent to it.

use serde_json::json;

use crate::client::{Client, Ended, within_timeout};
use crate::server::Server;

/// The number of runs and the size of their answers. All answers together are larger than the socket buffers.
const RUNS: usize = 16;
const TEXT_BYTES: usize = 1 << 20;

/// Reads until the last run has ended, and returns the ids of the events of session `slow`.
async fn until_all_runs_ended(client: &mut Client) -> Vec<String> {
    let (mut events, mut ends) = (Vec::new(), 0);
    while ends < RUNS {
        let frame = client.next().await.unwrap();
        if let Some(event) = frame["event_id"].as_str().filter(|_| frame["session_id"] == "slow") {
            events.push(event.to_owned());
            ends += usize::from(frame["event_type"] == "run.completed");
        }
    }
    events
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped_after_the_write_timeout_and_can_replay_all_it_missed() {
    // Long enough for the reading clients to get CPU time on a busy machine.
    let server = Server::with("write_timeout = 5\nmax_connections = 4");
    let mut slow = Client::connect_with_small_buffer(server.http, "session_id=slow&after=").await;
    slow.until("agent.list").await;
    let mut watcher = Client::connect(server.http, "session_id=watcher&watch=slow").await;
    let mut feeder = Client::connect(server.http, "session_id=feeder").await;
    let mut other = Client::connect(server.http, "session_id=other").await;
    let text = "x".repeat(TEXT_BYTES);
    let feed = async {
        for _ in 0..RUNS {
            let payload = json!({"content": format!("/say {text}")});
            feeder.send(&json!({"type": "message.send", "session_id": "slow", "payload": payload})).await;
        }
    };
    // The watcher reads all the time; the slow client does not read at all.
    let ((), all) = tokio::join!(feed, until_all_runs_ended(&mut watcher));
    // The server serves another client as usual.
    other.send_text("/say hi").await;
    other.until("run.completed").await;
    // A fifth client can connect as soon as the server has dropped the slow one.
    within_timeout(async {
        while let Err(status) = Client::connect_or_status(server.http, "session_id=fifth").await {
            assert_eq!(status, 503);
            other.ping().await;
        }
    })
    .await;
    let mut received = Vec::new();
    let ended = loop {
        match slow.next().await {
            Ok(frame) => received.extend(frame["event_id"].as_str().map(str::to_owned)),
            Err(ended) => break ended,
        }
    };
    assert_eq!(ended, Ended::Dropped);
    assert!(received.len() < all.len(), "it received everything although it did not read");
    let query = format!("session_id=slow&after={}", slow.last_event.unwrap_or_default());
    let mut again = Client::connect(server.http, &query).await;
    while received.len() < all.len() {
        let frame = again.next().await.unwrap();
        received.extend(frame["event_id"].as_str().map(str::to_owned));
    }
    assert_eq!(received, all);
    again.ping().await;
    watcher.ping().await;
    feeder.ping().await;
}
