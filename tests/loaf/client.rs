//! The Rust client against the real program.

use parlor_client::loaf::{LoafClient, LoafEvents, LoafLaunch};
use serde_json::json;

use crate::server::{Home, PARLOR};

fn spawn(home: &Home) -> (LoafClient, LoafEvents) {
    let launch = LoafLaunch {
        args: vec!["stdio".to_owned(), "loaf".to_owned()],
        env: vec![("PARLOR_HOME".to_owned(), home.state().display().to_string())],
        cwd: Some(home.folder().to_owned()),
        ..LoafLaunch::new(PARLOR)
    };
    LoafClient::spawn(&launch).expect("the program starts")
}

#[tokio::test]
async fn a_conversation_of_the_rust_client_can_be_resumed() {
    let home = Home::new();
    let (client, mut events) = spawn(&home);
    let session = client.create_session().await.unwrap();
    let sent = client.send(&session, "/wait 600").await.unwrap();
    assert!(!sent.queued);
    assert_eq!(client.send(&session, "x").await.unwrap_err().reason(), Some("session_busy"));
    assert!(client.enqueue(&session, "/say hello").await.unwrap().queued);
    assert!(client.steer(&session, "left").await.unwrap());
    assert!(client.interrupt(&session).await.unwrap());
    let first = events.until_ready(&session).await.unwrap();
    assert!(
        first
            .iter()
            .any(|event| event.kind == "session.interrupted" && event.turn_id() == Some(&sent.turn_id))
    );
    let second = events.until_ready(&session).await.unwrap();
    assert_eq!(second.iter().filter_map(|event| event.answer()).collect::<String>(), "hello");
    let chat = client.session(&session).await.unwrap()["activeSessionId"].as_str().unwrap().to_owned();
    let status = client.shutdown().await.unwrap().expect("the client started the process");
    assert!(status.success());

    let (client, _events) = spawn(&home);
    let session = client.create_session().await.unwrap();
    assert_eq!(client.resume(&session, "last").await.unwrap(), chat);
    assert_eq!(client.resume(&session, "zz").await.unwrap_err().reason(), Some("chat_not_found"));
    let listed = client.call("history.list", json!({})).await.unwrap();
    assert_eq!(listed["total"], 1);
}
