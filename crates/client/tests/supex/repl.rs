//! Tests of the console client.

use parlor_client::supex::{CallFate, DriverError, REPL_TIMEOUT, ReplClient, SupexSettings};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use crate::{FakeServer, PIPE_BYTES, ServerConnection, reply, settings, until_idle, with_timeout};

fn console() -> (FakeServer, ReplClient) {
    let (fake_server, dial) = FakeServer::new(PIPE_BYTES);
    let settings = SupexSettings { identity: settings().identity, ..SupexSettings::repl() };
    (fake_server, ReplClient::over("fake:2", dial, settings))
}

async fn accept_hello(
    fake_server: &mut FakeServer,
    session: &str,
) -> (ServerConnection<DuplexStream>, Value) {
    let mut connection = fake_server.accept().await;
    let hello = connection.receive().await;
    let server = json!({"name": "supex-repl", "version": "0.2.0"});
    connection.send(&reply(&hello, json!({"success": true, "session": session, "server": server}))).await;
    (connection, hello)
}

#[tokio::test(start_paused = true)]
async fn hello_and_all_calls_use_one_connection() {
    let (mut fake_server, console) = console();
    let server = async {
        let (mut connection, hello) = accept_hello(&mut fake_server, "s260314-091500-42").await;
        let params = json!({"name": "test", "version": "1", "agent": "tester", "pid": 42});
        assert_eq!((&hello["id"], &hello["params"]), (&json!("hello"), &params));
        let call = connection.serve(json!({"output": "hi\n=> 2\n", "success": true})).await;
        assert_eq!((&call["method"], &call["params"]), (&json!("eval"), &json!({"code": "puts 'hi'; 2"})));
        let call = connection.serve(json!({"status": "ok", "version": "0.2.0"})).await;
        assert_eq!(call["method"], "ping");
    };
    let calls = async {
        assert_eq!(console.session().await.unwrap(), "s260314-091500-42");
        assert_eq!(console.eval("puts 'hi'; 2").await.unwrap().output, "hi\n=> 2\n");
        assert_eq!(console.ping().await.unwrap().version.as_deref(), Some("0.2.0"));
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn code_may_run_for_long_and_is_never_sent_twice() {
    let (mut fake_server, console) = console();
    let started = Instant::now();
    let server = async {
        let (mut connection, _) = accept_hello(&mut fake_server, "s").await;
        let call = connection.receive().await;
        sleep(REPL_TIMEOUT / 2).await;
        connection.send(&reply(&call, json!({"output": "=> 1\n", "success": true}))).await;
        // The client has no idle limit, so it uses the same connection.
        connection.receive().await;
    };
    let calls = async {
        console.eval("1").await.unwrap();
        sleep(REPL_TIMEOUT).await;
        let error = console.eval("2").await.unwrap_err();
        assert!(matches!(error, DriverError::Closed { fate: CallFate::Unknown, .. }), "{error:?}");
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
    assert_eq!(started.elapsed(), REPL_TIMEOUT + REPL_TIMEOUT / 2);
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_has_a_new_session() {
    let (mut fake_server, console) = console();
    for session in ["one", "two"] {
        let (found, _) =
            with_timeout(async { tokio::join!(console.session(), accept_hello(&mut fake_server, session)) })
                .await;
        assert_eq!(found.unwrap(), session);
        until_idle().await;
    }
}
