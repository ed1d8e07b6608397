//! The supr door says who sent each message: the door, and the name of the client if it has one.

use serde_json::json;

use crate::client::{Door, begin, join};
use crate::home::Home;
use crate::loaf::CLIENT_NAME;

#[tokio::test]
async fn run_started_names_the_door_and_the_client() {
    let home = Home::new();
    let (mut supr, session) = begin(Door::Supr, &home).await;
    for (door, by) in [
        (Door::Acp, json!({"door": "acp", "client": crate::acp::CLIENT_NAME})),
        (Door::Loaf, json!({"door": "loaf", "client": CLIENT_NAME})),
        (Door::Synaps, json!({"door": "synaps"})),
        (Door::Chat, json!({"door": "chat"})),
    ] {
        let mut client = join(door, &home, &session).await;
        client.send("/say hello").await;
        let started = supr.frames().until("run.started", |frame| frame["event_type"] == "run.started").await;
        assert_eq!((&started["data"]["input"]["text"], &started["data"]["by"]), (&json!("/say hello"), &by));
        client.sees_end().await;
    }
    supr.send("/say hello").await;
    let started = supr.frames().until("run.started", |frame| frame["event_type"] == "run.started").await;
    assert_eq!(started["data"]["by"], json!({"door": "supr"}), "{started}");
}
