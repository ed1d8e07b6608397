//! Tests of lost connections and retries.

use std::time::Duration;

use parlor_client::supex::{
    ATTACH_WINDOW, CallFate, DriverError, MAX_RETRIES, MAX_RETRY_PAUSE, RETRY_PAUSE, SupexSettings,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{FakeServer, attaching, not_attaching, reply, settings, until_idle, value, with_timeout};

#[tokio::test(start_paused = true)]
async fn a_connection_that_closed_while_idle_is_not_used() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        for number in ["1", "2", "3"] {
            // Some servers close the connection after one answer.
            fake_server.accept_hello(&not_attaching()).await.serve(value(number)).await;
        }
    };
    let calls = async {
        for number in ["1", "2", "3"] {
            assert_eq!(driver.eval(number).await.unwrap(), number);
            until_idle().await;
        }
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_after_an_answer_gets_code_on_new_connections_only() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        fake_server.accept_hello(&not_attaching()).await.serve(value("1")).await;
        let mut second = fake_server.accept_hello(&not_attaching()).await;
        second.serve(value("2")).await;
        // The second connection is still open, but the server may be closing it.
        let mut third = fake_server.accept_hello(&not_attaching()).await;
        third.serve(value("3")).await;
        // A reading call is tried on the third connection. It succeeds, so the server no longer closes after an answer.
        third.serve(json!({})).await;
        third.serve(value("4")).await;
        drop(second);
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        until_idle().await;
        driver.eval("2").await.unwrap();
        driver.eval("3").await.unwrap();
        driver.ping().await.unwrap();
        driver.eval("4").await.unwrap();
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn code_is_not_repeated_on_a_server_that_does_not_attach() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        fake_server.accept_hello(&not_attaching()).await.receive().await;
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("$n += 1"), server) }).await;
    let error = result.unwrap_err();
    assert!(matches!(error, DriverError::Closed { fate: CallFate::Unknown, .. }), "{error:?}");
    let text = "fake:1 closed the connection before it answered; the call may have run, so look before you repeat it";
    assert_eq!(error.to_string(), text);
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn a_partial_answer_counts_as_a_lost_connection() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        let call = connection.receive().await;
        let line = reply(&call, value("2")).to_string();
        connection.send_bytes(&line.as_bytes()[..line.len() - 1]).await;
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
    assert_eq!(result.unwrap_err().fate(), CallFate::Unknown);
}

/// Makes a call whose connections are lost, except for the last one, which answers. Returns the calls that the server
/// received, the result, and whether the client opened a further connection.
async fn call_with_lost_connections(
    tool: &str,
    kind: Value,
    connections: usize,
) -> (Vec<Value>, Result<String, DriverError>, bool) {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut calls = Vec::new();
        for number in 0..connections {
            let mut connection = fake_server.accept_hello(&kind).await;
            calls.push(if number + 1 == connections {
                connection.serve(value("done")).await
            } else {
                connection.receive().await
            });
        }
        calls
    };
    let arguments = json!({"code": "1"});
    let (calls, result) = with_timeout(async { tokio::join!(server, driver.call(tool, &arguments)) }).await;
    let result = result.map(|answer| answer.json().to_owned());
    (calls, result, fake_server.has_new_connection().await)
}

#[tokio::test(start_paused = true)]
async fn an_attaching_server_gets_the_same_request_again() {
    let (calls, result, has_new_connection) = call_with_lost_connections("eval_ruby", attaching(), 3).await;
    assert!(calls.windows(2).all(|two| two[0] == two[1]), "same id, same parameters: {calls:?}");
    assert!(result.unwrap().contains("done"));
    assert!(!has_new_connection);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_sent_with_the_nonce_of_the_first_connection() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let mut info = attaching();
    info["nonce"] = json!("secret1");
    let server = async {
        for expected in [Value::Null, json!("secret1")] {
            let mut connection = fake_server.accept().await;
            let hello = connection.receive().await;
            assert_eq!(hello["params"]["nonce"], expected);
            connection.send(&reply(&hello, json!({"success": true, "server": info}))).await;
            let call = connection.receive().await;
            if !expected.is_null() {
                connection.send(&reply(&call, json!({"success": true, "result": "1"}))).await;
            }
        }
        // A server that does not take the nonce may not recognize the repeat.
        let mut lost = fake_server.accept_hello(&info).await;
        lost.receive().await;
        drop(lost);
        info["nonce"] = json!("secret2");
        fake_server.accept_hello(&info).await
    };
    let calls = async {
        assert_eq!(driver.eval("1").await.unwrap(), "1");
        until_idle().await;
        driver.eval("2").await.unwrap_err()
    };
    let (_connection, error) = with_timeout(async { tokio::join!(server, calls) }).await;
    assert_eq!(error.fate(), CallFate::Unknown, "{error}");
}

#[tokio::test(start_paused = true)]
async fn reading_calls_are_repeated_on_any_server() {
    let (calls, result, has_new_connection) =
        call_with_lost_connections("get_layers", not_attaching(), 3).await;
    assert!(calls.windows(2).all(|two| two[0] == two[1]), "{calls:?}");
    assert!(result.is_ok());
    assert!(!has_new_connection);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_retries_is_that_of_the_settings_up_to_a_limit() {
    for (retries, attempts) in [(0, 1), (2, 3), (u32::MAX, MAX_RETRIES + 1)] {
        let (mut fake_server, driver) = FakeServer::with_settings(SupexSettings { retries, ..settings() });
        let server = async {
            for _ in 0..attempts {
                fake_server.accept_hello(&attaching()).await.receive().await;
            }
        };
        let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
        assert_eq!(result.unwrap_err().fate(), CallFate::Unknown);
        assert!(!fake_server.has_new_connection().await, "{retries}");
    }
}

#[tokio::test(start_paused = true)]
async fn code_is_not_repeated_on_a_restarted_server() {
    let instance =
        |name: &str| json!({"name": "supex-runtime", "version": "0.2.0", "attach": true, "instance": name});
    for (before, after, is_repeated) in [
        (instance("a"), instance("a"), true),
        (instance("a"), instance("b"), false),
        (instance("a"), attaching(), false),
        (attaching(), not_attaching(), false),
    ] {
        let (mut fake_server, driver) = FakeServer::with_driver();
        let server = async {
            fake_server.accept_hello(&before).await.receive().await;
            let mut connection = fake_server.accept_hello(&after).await;
            match connection.receive_or_end().await {
                Some(call) => {
                    connection.send(&reply(&call, value("done"))).await;
                    true
                }
                None => false,
            }
        };
        let (result, was_sent) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
        assert_eq!((was_sent, result.is_ok()), (is_repeated, is_repeated), "{before} {after}");
        if let Err(error) = result {
            assert_eq!(error.fate(), CallFate::Unknown);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_repeated_if_the_server_refuses_connections() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&attaching()).await;
        connection.receive().await;
        fake_server.refuse(1);
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
    assert!(matches!(result, Err(DriverError::Closed { fate: CallFate::Unknown, .. })), "{result:?}");
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_only_within_the_attach_window() {
    for (delay, is_repeated) in [(ATTACH_WINDOW, true), (ATTACH_WINDOW + Duration::from_millis(1), false)] {
        let (mut fake_server, driver) =
            FakeServer::with_settings(SupexSettings { timeout: ATTACH_WINDOW * 2, ..settings() });
        let server = async {
            fake_server.accept_hello(&attaching()).await.receive().await;
            let mut connection = fake_server.accept().await;
            // The server delays its answer to hello. After the window, it may have dropped the call.
            tokio::time::sleep(delay).await;
            connection.accept_hello(&attaching()).await;
            let call = connection.receive_or_end().await;
            if let Some(call) = &call {
                connection.send(&reply(call, value("done"))).await;
            }
            call.is_some()
        };
        let (result, was_sent) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
        assert_eq!((was_sent, result.is_ok()), (is_repeated, is_repeated), "{delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_partially_sent_request_is_repeated_on_any_server() {
    // The pipe is smaller than the request, and the server disconnects before it has read all of it.
    let (mut fake_server, dial) = FakeServer::new(256);
    let driver = parlor_client::supex::Driver::over("fake:1", dial, settings());
    let code = "x".repeat(10_000);
    let server = async {
        let connection = fake_server.accept_hello(&not_attaching()).await;
        until_idle().await;
        drop(connection);
        fake_server.accept_hello(&not_attaching()).await.serve(value("once")).await
    };
    let (result, call) = with_timeout(async { tokio::join!(driver.eval(&code), server) }).await;
    assert_eq!(result.unwrap(), "once");
    assert_eq!(call["params"]["arguments"]["code"], code);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lacks_only_its_newline_may_have_run() {
    const PIPE: usize = 512;
    let (mut fake_server, dial) = FakeServer::new(PIPE);
    let driver = parlor_client::supex::Driver::over("fake:1", dial, settings());
    with_timeout(async {
        let first = async {
            let mut connection = fake_server.accept_hello(&not_attaching()).await;
            let length = connection.serve(value("")).await.to_string().len();
            (connection, length)
        };
        let (result, (connection, length)) = tokio::join!(driver.eval(""), first);
        result.unwrap();
        // All but the newline fits.
        let code = "x".repeat(PIPE - length);
        let disconnect = async {
            until_idle().await;
            drop(connection);
        };
        let (result, ()) = tokio::join!(driver.eval(&code), disconnect);
        assert_eq!(result.unwrap_err().fate(), CallFate::Unknown);
    })
    .await;
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn a_parse_error_without_an_id_is_retried() {
    let unread = json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null});
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        connection.receive().await;
        connection.send(&unread).await;
        fake_server.accept_hello(&not_attaching()).await.serve(value("2")).await;
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");

    // The error has the id of the request, so the server has parsed the request.
    let server = async {
        let mut connection = fake_server.accept().await;
        connection.accept_hello(&not_attaching()).await;
        let call = connection.receive().await;
        let mut error = unread.clone();
        error["id"] = call["id"].clone();
        connection.send(&error).await;
    };
    until_idle().await;
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert!(matches!(result, Err(DriverError::Remote { code: -32700, .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn connecting_is_retried_after_growing_pauses() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    fake_server.refuse(2);
    let started = Instant::now();
    let server = async { fake_server.accept_hello(&not_attaching()).await.serve(value("2")).await };
    let (result, _) = with_timeout(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");
    assert_eq!(started.elapsed(), RETRY_PAUSE * 3, "one pause, then another of twice its length");

    let (fake_server, driver) = FakeServer::with_driver();
    fake_server.refuse(3);
    let error = driver.eval("1").await.unwrap_err();
    assert!(matches!(error, DriverError::Connect { .. }), "{error:?}");
    assert_eq!(error.fate(), CallFate::NotRun);
    assert_eq!(error.to_string(), "cannot connect to fake:1: connection refused");

    let (fake_server, driver) =
        FakeServer::with_settings(SupexSettings { retries: MAX_RETRIES, ..settings() });
    fake_server.refuse(usize::MAX);
    let started = Instant::now();
    driver.eval("1").await.unwrap_err();
    // 0.2, 0.4, 0.8 and 1.6 s, and then always the longest pause.
    assert_eq!(started.elapsed(), RETRY_PAUSE * 15 + MAX_RETRY_PAUSE * (MAX_RETRIES - 4));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_at_hello_is_retried() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        fake_server.accept().await.receive().await;
        fake_server.accept_hello(&not_attaching()).await.serve(value("2")).await;
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_closes_its_connection() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    with_timeout(async {
        let mut connection = {
            let mut abandoned = Box::pin(driver.eval("sleep"));
            let server = async {
                let mut connection = fake_server.accept_hello(&not_attaching()).await;
                connection.receive().await;
                connection
            };
            tokio::select! {
                biased;
                _ = &mut abandoned => panic!("it was not answered"),
                connection = server => connection,
            }
        };
        assert_eq!(connection.receive_or_end().await, None);
        let next = async { fake_server.accept_hello(&not_attaching()).await.serve(value("2")).await };
        let (result, _) = tokio::join!(driver.eval("1 + 1"), next);
        assert_eq!(result.unwrap(), "2");
    })
    .await;
}
