//! Consoles.

use parlor_client::supex::{CallFate, DriverError, REPL_TIMEOUT, ReplClient, SupexSettings};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use crate::{Fake, PIPE_BYTES, Peer, reply, settings, stillness, watched};

fn console() -> (Fake, ReplClient) {
    let (fake, way) = Fake::new(PIPE_BYTES);
    let settings = SupexSettings { identity: settings().identity, ..SupexSettings::repl() };
    (fake, ReplClient::over("fake:2", way, settings))
}

async fn welcome(fake: &mut Fake, session: &str) -> (Peer<DuplexStream>, Value) {
    let mut peer = fake.arrival().await;
    let hello = peer.hear().await;
    let server = json!({"name": "supex-repl", "version": "0.2.0"});
    peer.say(&reply(&hello, json!({"success": true, "session": session, "server": server}))).await;
    (peer, hello)
}

#[tokio::test(start_paused = true)]
async fn a_console_says_hello_and_then_runs_code_on_one_connection() {
    let (mut fake, console) = console();
    let server = async {
        let (mut peer, hello) = welcome(&mut fake, "s260314-091500-42").await;
        let params = json!({"name": "test", "version": "1", "agent": "tester", "pid": 42});
        assert_eq!((&hello["id"], &hello["params"]), (&json!("hello"), &params));
        let call = peer.serve(json!({"output": "hi\n=> 2\n", "success": true})).await;
        assert_eq!((&call["method"], &call["params"]), (&json!("eval"), &json!({"code": "puts 'hi'; 2"})));
        let call = peer.serve(json!({"status": "ok", "version": "0.2.0"})).await;
        assert_eq!(call["method"], "ping");
    };
    let calls = async {
        assert_eq!(console.session().await.unwrap(), "s260314-091500-42");
        assert_eq!(console.eval("puts 'hi'; 2").await.unwrap().output, "hi\n=> 2\n");
        assert_eq!(console.ping().await.unwrap().version.as_deref(), Some("0.2.0"));
    };
    watched(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn code_in_a_console_may_take_long_and_is_never_sent_twice() {
    let (mut fake, console) = console();
    let began = Instant::now();
    let server = async {
        let (mut peer, _) = welcome(&mut fake, "s").await;
        let call = peer.hear().await;
        sleep(REPL_TIMEOUT / 2).await;
        peer.say(&reply(&call, json!({"output": "=> 1\n", "success": true}))).await;
        // IdleState for a week: no reason to begin another session.
        peer.hear().await;
    };
    let calls = async {
        console.eval("1").await.unwrap();
        sleep(REPL_TIMEOUT).await;
        let error = console.eval("2").await.unwrap_err();
        assert!(matches!(error, DriverError::Closed { fate: CallFate::Unknown, .. }), "{error:?}");
    };
    watched(async { tokio::join!(server, calls) }).await;
    assert_eq!(began.elapsed(), REPL_TIMEOUT + REPL_TIMEOUT / 2);
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn a_console_that_went_away_is_found_again_with_another_session() {
    let (mut fake, console) = console();
    for session in ["one", "two"] {
        let (found, _) =
            watched(async { tokio::join!(console.session(), welcome(&mut fake, session)) }).await;
        assert_eq!(found.unwrap(), session);
        stillness().await;
    }
}
