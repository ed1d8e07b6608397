//! With `join = false`, one process at a time uses a session, and the others are told which one.

use serde_json::{Value, json};

use crate::client::Client;
use crate::frames::text;
use crate::home::Home;
use crate::loaf::LoafProcess;
use crate::supr::{Socket, serve};
use crate::synaps::Synaps;

#[tokio::test]
async fn every_door_refuses_a_session_that_another_process_uses() {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\njoin = false\n");
    let mut first = Synaps::start(&home, &[]).await;
    first.send("/say mine").await;
    first.sees_text("mine").await;
    first.sees_end().await;
    let session = first.session.clone();
    let in_use = format!("in use by process {}", first.process.pid());

    for args in [
        &["chat", "--session", &session, "/say hi"][..],
        &["chat", "--session", &session, "--stop"],
        &["stdio", "synaps", "--continue", &session],
    ] {
        let refused = home.run(args);
        let printed = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{args:?}: {printed}");
        assert!(printed.contains(&in_use), "{args:?}: {printed}");
    }

    let mut loaf = LoafProcess::start(&home).await;
    // The front end shows the chat, and cannot go on in it.
    let resumed = loaf.resume(&session).await;
    loaf.call("session.send", json!({"session_id": resumed, "text": "/say hi"})).await;
    let error = |line: &Value| line["params"]["type"] == "session.error";
    let refused = loaf.process.frames.until("session.error", error).await;
    assert!(text(&refused["params"]["payload"]["message"]).contains(&in_use), "{refused}");
    let refused = loaf.response("session.rename", json!({"session_id": resumed, "title": "ours"})).await;
    assert!(refused["error"].to_string().contains("chat_in_use"), "{refused}");

    let server = serve(&home);
    let mut supr = Socket::connect(server.http, &format!("session_id={session}")).await;
    supr.send("message.send", json!({"content": "/say hi"})).await;
    let failed = supr.frames.until("run.failed", |frame| frame["event_type"] == "run.failed").await;
    assert_eq!(failed["data"]["error_code"], "SESSION_IN_USE", "{failed}");

    first.send("/say still mine").await;
    first.sees_text("still mine").await;
}
