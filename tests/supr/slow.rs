//! A client that stops reading in the middle of a flood.

use serde_json::json;

use crate::client::{Client, Ended, patiently};
use crate::server::Server;

/// How many runs the flood has, and how long what they say is. All together is more than sockets hold.
const RUNS: usize = 16;
const TEXT_BYTES: usize = 1 << 20;

/// The ids of the events until that of the last run's end.
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
async fn it_is_dropped_after_the_write_timeout_others_do_not_notice_and_it_misses_nothing() {
    // Long enough for who reads to have its turn on a busy machine.
    let server = Server::with("write_timeout = 5\nmax_connections = 4");
    let mut slow = Client::narrow(server.http, "session_id=slow&after=").await;
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
    // Who watches reads all the time; the slow one does not at all.
    let ((), all) = tokio::join!(feed, until_all_runs_ended(&mut watcher));
    // Another is served as ever.
    other.say("/say hi").await;
    other.until("run.completed").await;
    // There is a place for a fifth as soon as the slow one was given up.
    patiently(async {
        while let Err(status) = Client::try_connect(server.http, "session_id=fifth").await {
            assert_eq!(status, 503);
            other.ping().await;
        }
    })
    .await;
    let mut heard = Vec::new();
    let ended = loop {
        match slow.next().await {
            Ok(frame) => heard.extend(frame["event_id"].as_str().map(str::to_owned)),
            Err(ended) => break ended,
        }
    };
    assert_eq!(ended, Ended::Dropped);
    assert!(heard.len() < all.len(), "it heard everything although it did not read");
    let query = format!("session_id=slow&after={}", slow.last_event.unwrap_or_default());
    let mut again = Client::connect(server.http, &query).await;
    while heard.len() < all.len() {
        let frame = again.next().await.unwrap();
        heard.extend(frame["event_id"].as_str().map(str::to_owned));
    }
    assert_eq!(heard, all);
    again.ping().await;
    watcher.ping().await;
    feeder.ping().await;
}
