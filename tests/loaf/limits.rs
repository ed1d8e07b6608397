//! Every limit that a client can reach, and the error that it gets there.

use parlor_doors::loaf::{MAX_IMAGES, MAX_LOGINS, MAX_QUEUED, MAX_SESSIONS, MAX_STEERS, MAX_TURNS};
use serde_json::{Value, json};

use crate::server::{Home, Server, appended};

fn assert_overloaded(error: &Value) {
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("overloaded")), "{error}");
}

/// A session with a turn that would take ten minutes.
async fn busy_session(server: &mut Server) -> String {
    let session = server.session().await;
    server.send(&session, "/wait 600").await;
    session
}

#[tokio::test]
async fn the_number_of_sessions_is_limited_and_closing_one_frees_a_slot() {
    let home = Home::new();
    let mut server = home.server().await;
    let mut last = String::new();
    for _ in 0..MAX_SESSIONS {
        last = server.session().await;
        // Skip the events, so that they do not pile up.
        server.event("state.changed").await;
    }
    assert_overloaded(&server.call_error("session.create", json!({})).await);
    server.call("session.close", json!({"session_id": last})).await;
    server.session().await;
}

#[tokio::test]
async fn the_number_of_running_turns_is_limited() {
    let home = Home::new();
    let mut server = home.server().await;
    for _ in 0..MAX_TURNS {
        busy_session(&mut server).await;
    }
    let session = server.session().await;
    let send = json!({"session_id": session, "text": "/say x"});
    assert_overloaded(&server.call_error("session.send", send).await);
    server.close_stdin();
    let (lines, status) = server.wait_for_exit().await;
    let ends = lines.iter().filter(|line| line["params"]["type"] == "session.interrupted").count();
    assert_eq!((ends, status.success()), (MAX_TURNS, true));
}

#[tokio::test]
async fn queued_prompts_and_steering_texts_are_limited() {
    let home = Home::with("default_agent = \"s\"\n[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n");
    // The script stays in one step, so the agent does not read steering texts.
    let script = "[otherwise]\nsteps = [{ say = \"begin\" }, { wait_ms = 600000 }]\n";
    std::fs::write(home.state().join("s.toml"), script).expect("the folder can be written to");
    let mut server = home.server().await;
    let session = busy_session(&mut server).await;
    server.event("session.stream.chunk").await;
    let send = json!({"session_id": session, "text": "x", "enqueue": true});
    for _ in 0..MAX_QUEUED {
        server.call("session.send", send.clone()).await;
    }
    assert_overloaded(&server.call_error("session.send", send.clone()).await);
    server.call("session.queue.clear", json!({"session_id": session})).await;
    let large = json!({"session_id": session, "text": "x".repeat(33 << 20), "enqueue": true});
    server.call("session.send", large.clone()).await;
    assert_overloaded(&server.call_error("session.send", large).await);
    let steer = json!({"session_id": session, "text": "x"});
    for _ in 0..MAX_STEERS {
        server.call("session.steer", steer.clone()).await;
    }
    assert_overloaded(&server.call_error("session.steer", steer).await);
}

#[tokio::test]
async fn the_number_of_images_of_a_prompt_is_limited() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    let image = json!({"data_url": "data:image/png;base64,aGk="});
    for (count, is_accepted) in [(MAX_IMAGES, true), (MAX_IMAGES + 1, false)] {
        let images: Vec<Value> = vec![image.clone(); count];
        server.call("session.send", json!({"session_id": session, "text": "/say x", "images": images})).await;
        let events = server.events(&session, crate::server::is_ready).await;
        let errors = appended(&events, "system");
        assert_eq!(errors.is_empty(), is_accepted, "{errors:?}");
        assert!(is_accepted || errors[0].contains("at most 16 images"), "{errors:?}");
    }
}

#[tokio::test]
async fn the_number_of_pending_logins_is_limited() {
    let issuer =
        crate::token_issuer::TokenIssuer::start(|_, _| (400, json!({"error": "authorization_pending"})))
            .await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    for _ in 0..MAX_LOGINS {
        server.send_request("auth.connect.openai", json!({"mode": "device_code"})).await;
        server.event("auth.flow.device_code").await;
    }
    assert_overloaded(&server.call_error("auth.connect.openai", json!({})).await);
}
