//! Every limit that a client can meet, and what it is told there.

use parlor_doors::loaf::{MAX_IMAGES, MAX_LOGINS, MAX_QUEUED, MAX_SESSIONS, MAX_STEERS, MAX_TURNS};
use serde_json::{Value, json};

use crate::server::{Home, Server, appended};

fn is_overloaded(error: &Value) {
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("overloaded")), "{error}");
}

async fn busy(server: &mut Server) -> String {
    let session = server.session().await;
    server.send(&session, "/wait 600").await;
    session
}

#[tokio::test]
async fn sessions_are_so_many_and_one_that_is_closed_makes_room() {
    let home = Home::new();
    let mut server = home.server().await;
    let mut last = String::new();
    for _ in 0..MAX_SESSIONS {
        last = server.session().await;
        // The events are not looked at here.
        server.event("state.changed").await;
    }
    is_overloaded(&server.refused("session.create", json!({})).await);
    server.call("session.close", json!({"session_id": last})).await;
    server.session().await;
}

#[tokio::test]
async fn turns_at_work_are_so_many() {
    let home = Home::new();
    let mut server = home.server().await;
    for _ in 0..MAX_TURNS {
        busy(&mut server).await;
    }
    let session = server.session().await;
    let send = json!({"session_id": session, "text": "/say x"});
    is_overloaded(&server.refused("session.send", send).await);
    server.close_stdin();
    let (lines, status) = server.end().await;
    let ends = lines.iter().filter(|line| line["params"]["type"] == "session.interrupted").count();
    assert_eq!((ends, status.success()), (MAX_TURNS, true));
}

#[tokio::test]
async fn prompts_and_texts_that_wait_are_so_many() {
    let home = Home::with("default_agent = \"s\"\n[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n");
    // There is one step, in which nothing joins.
    let script = "[otherwise]\nsteps = [{ say = \"begin\" }, { wait_ms = 600000 }]\n";
    std::fs::write(home.state().join("s.toml"), script).expect("the folder can be written to");
    let mut server = home.server().await;
    let session = busy(&mut server).await;
    server.event("session.stream.chunk").await;
    let send = json!({"session_id": session, "text": "x", "enqueue": true});
    for _ in 0..MAX_QUEUED {
        server.call("session.send", send.clone()).await;
    }
    is_overloaded(&server.refused("session.send", send.clone()).await);
    server.call("session.queue.clear", json!({"session_id": session})).await;
    let large = json!({"session_id": session, "text": "x".repeat(33 << 20), "enqueue": true});
    server.call("session.send", large.clone()).await;
    is_overloaded(&server.refused("session.send", large).await);
    let steer = json!({"session_id": session, "text": "x"});
    for _ in 0..MAX_STEERS {
        server.call("session.steer", steer.clone()).await;
    }
    is_overloaded(&server.refused("session.steer", steer).await);
}

#[tokio::test]
async fn images_of_a_prompt_are_so_many() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    let image = json!({"data_url": "data:image/png;base64,aGk="});
    for (count, is_taken) in [(MAX_IMAGES, true), (MAX_IMAGES + 1, false)] {
        let images: Vec<Value> = vec![image.clone(); count];
        server.call("session.send", json!({"session_id": session, "text": "/say x", "images": images})).await;
        let events = server.events(&session, crate::server::is_ready).await;
        let said = appended(&events, "system");
        assert_eq!(said.is_empty(), is_taken, "{said:?}");
        assert!(is_taken || said[0].contains("at most 16 images"), "{said:?}");
    }
}

#[tokio::test]
async fn logins_under_way_are_so_many() {
    let issuer = crate::issuer::Issuer::start(|_, _| (400, json!({"error": "authorization_pending"}))).await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    for _ in 0..MAX_LOGINS {
        server.ask("auth.connect.openai", json!({"mode": "device_code"})).await;
        server.event("auth.flow.device_code").await;
    }
    is_overloaded(&server.refused("auth.connect.openai", json!({})).await);
}
