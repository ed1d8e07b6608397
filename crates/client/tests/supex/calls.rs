//! Tests of calls that succeed and calls that are refused.

use std::sync::Arc;

use parlor_client::supex::{
    CallFate, DriverError, MAX_REQUEST_BYTES, MAX_WAITING_CALLS, Pong, SupexSettings, SupexToken,
};
use serde_json::{Value, json};

use crate::{FakeServer, attaching, not_attaching, reply, settings, until_idle, value, with_timeout};

#[tokio::test(start_paused = true)]
async fn hello_is_sent_first_and_five_calls_use_one_connection() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept().await;
        let hello = connection.receive().await;
        let params =
            json!({"name": "test", "version": "1", "agent": "tester", "pid": 42, "features": ["attach"]});
        assert_eq!(hello, json!({"jsonrpc": "2.0", "method": "hello", "params": params, "id": "hello"}));
        connection.send(&reply(&hello, json!({"success": true, "server": not_attaching()}))).await;
        let mut ids = Vec::new();
        for number in 0..5 {
            let call = connection.serve(value(&number.to_string())).await;
            let params = json!({"name": "eval_ruby", "arguments": {"code": format!("{number}")}});
            assert_eq!((&call["method"], &call["params"]), (&json!("tools/call"), &params));
            ids.push(call["id"].as_u64().unwrap());
        }
        assert!(ids.windows(2).all(|two| two[0] < two[1]), "{ids:?}");
    };
    let calls = async {
        for number in 0..5 {
            assert_eq!(driver.eval(&number.to_string()).await.unwrap(), number.to_string());
        }
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_and_a_wrong_one_is_unauthorized() {
    let with_token = SupexSettings { token: Some(SupexToken::new("s3cret")), ..settings() };
    let (mut fake_server, driver) = FakeServer::with_settings(with_token);
    let server = async {
        let mut connection = fake_server.accept().await;
        let hello = connection.receive().await;
        assert_eq!(hello["params"]["token"], "s3cret");
        let error = json!({"code": -32001, "message": "Authentication failed: invalid or missing token"});
        connection.send(&json!({"jsonrpc": "2.0", "error": error, "id": "hello"})).await;
    };
    let (error, ()) = with_timeout(async { tokio::join!(driver.ping(), server) }).await;
    let error = error.unwrap_err();
    assert!(matches!(error, DriverError::Unauthorized { .. }), "{error:?}");
    assert_eq!(error.fate(), CallFate::NotRun);
    assert!(!format!("{error} {error:?} {driver:?}").contains("s3cret"));
    assert!(!fake_server.has_new_connection().await, "a second attempt would fail, too");
}

#[tokio::test(start_paused = true)]
async fn a_refused_hello_returns_the_servers_error() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept().await;
        connection.receive().await;
        let error = json!({"code": -32600, "message": "Missing required params: name, version, agent, pid"});
        connection.send(&json!({"jsonrpc": "2.0", "error": error, "id": null})).await;
    };
    let (error, ()) = with_timeout(async { tokio::join!(driver.server(), server) }).await;
    assert!(matches!(error, Err(DriverError::Remote { code: -32600, .. })), "{error:?}");

    let server = async {
        let mut connection = fake_server.accept().await;
        let hello = connection.receive().await;
        connection.send(&reply(&hello, json!({"success": false, "message": "go away"}))).await;
    };
    let (error, ()) = with_timeout(async { tokio::join!(driver.server(), server) }).await;
    assert!(error.unwrap_err().to_string().contains("it refused hello: go away"));
}

#[tokio::test(start_paused = true)]
async fn an_error_has_its_details_and_the_connection_stays_usable() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        let call = connection.receive().await;
        let data = json!({"success": false, "file": "/p/a.rb", "line": 12, "backtrace": ["x"]});
        let error = json!({"code": -32000, "message": "Ruby evaluation error: no", "data": data});
        connection.send(&json!({"jsonrpc": "2.0", "error": error, "id": call["id"]})).await;
        connection.serve(value("2")).await;
    };
    let calls = async {
        let error = driver.eval("raise 'no'").await.unwrap_err();
        assert_eq!(error.to_string(), "Ruby evaluation error: no (-32000)");
        assert_eq!(error.detail("file").as_deref(), Some("/p/a.rb"));
        assert_eq!(error.detail("line").as_deref(), Some("12"));
        assert_eq!((error.detail("hint"), error.detail("backtrace")), (None, None));
        assert_eq!(driver.eval("1 + 1").await.unwrap(), "2");
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn results_are_decoded_and_keep_their_text() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&attaching()).await;
        let pong =
            json!({"success": true, "status": "connected", "version": "0.2.0", "sketchup_version": null});
        assert_eq!(connection.serve(pong).await["params"], json!({"name": "ping", "arguments": {}}));
        let file = json!({"success": true, "result": "3", "file_path": "/p/a.rb", "file_name": "a.rb"});
        assert_eq!(connection.serve(file).await["params"]["arguments"], json!({"file_path": "/p/a.rb"}));
        let call = connection.receive().await;
        let odd = r#"{ "area":1.0,"id":123456789012345678901234567890 }"#;
        connection.send_bytes(format!("{{\"result\":{odd},\"id\":{}}}\r\n", call["id"]).as_bytes()).await;
        connection.serve(json!({"success": false, "error": "No active model"})).await;
        connection.serve(json!({"success": false, "error": "No active model"})).await;
        connection.serve(json!({"success": true})).await;
    };
    let calls = async {
        let server = driver.server().await.unwrap();
        assert_eq!(
            (server.name.as_str(), server.version.as_str(), server.attach),
            ("supex-runtime", "0.2.0", true)
        );
        let pong = Pong { version: Some("0.2.0".into()), sketchup_version: None, upstream: None };
        assert_eq!(driver.ping().await.unwrap(), pong);
        let file = driver.eval_file("/p/a.rb").await.unwrap();
        assert_eq!((file.result.as_str(), file.file_name.as_str()), ("3", "a.rb"));
        let answer = driver.call("list_entities", &json!({"entity_type": "faces"})).await.unwrap();
        assert_eq!(answer.json(), r#"{ "area":1.0,"id":123456789012345678901234567890 }"#);
        let answer = driver.call("get_layers", &json!({})).await.unwrap();
        assert_eq!(answer.failure().as_deref(), Some("No active model"));
        assert_eq!(driver.eval("1").await.unwrap_err().to_string(), "eval_ruby failed: No active model");
        let odd = driver.eval("1").await.unwrap_err();
        assert!(odd.to_string().contains("result of `eval_ruby`: missing field `result`"), "{odd}");
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn calls_run_one_at_a_time_in_their_order() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let driver = Arc::new(driver);
    let mut callers = Vec::new();
    for number in 0..20 {
        let driver = Arc::clone(&driver);
        callers.push(tokio::spawn(async move { driver.eval(&number.to_string()).await.unwrap() }));
        until_idle().await;
    }
    with_timeout(async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        for number in 0..20 {
            let call = connection.receive().await;
            assert_eq!(call["params"]["arguments"]["code"], number.to_string());
            until_idle().await;
            // The client sends no second request before the answer.
            let mut more = [0];
            let next = tokio::io::AsyncReadExt::read(&mut connection.0, &mut more);
            assert!(tokio::time::timeout(std::time::Duration::from_secs(1), next).await.is_err());
            connection.send(&reply(&call, value(&format!("v{number}")))).await;
        }
        for (number, caller) in callers.into_iter().enumerate() {
            assert_eq!(caller.await.unwrap(), format!("v{number}"));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_over_the_limit_of_waiting_calls_are_refused() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let driver = Arc::new(driver);
    let callers: Vec<_> = (0..MAX_WAITING_CALLS)
        .map(|_| {
            let driver = Arc::clone(&driver);
            tokio::spawn(async move { driver.ping().await })
        })
        .collect();
    until_idle().await;
    let refused = driver.ping().await.unwrap_err();
    assert!(matches!(refused, DriverError::Busy), "{refused:?}");
    assert_eq!(refused.fate(), CallFate::NotRun);
    with_timeout(async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        for _ in 0..MAX_WAITING_CALLS {
            connection.serve(json!({"success": true})).await;
        }
        for caller in callers {
            caller.await.unwrap().unwrap();
        }
        // After that, calls are accepted again.
        let (pong, _) = tokio::join!(driver.ping(), connection.serve(json!({})));
        pong.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_over_the_size_limit_is_not_sent() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    with_timeout(async {
        let (length, ()) = tokio::join!(
            async {
                let mut connection = fake_server.accept_hello(&not_attaching()).await;
                connection.serve(value("")).await.to_string().len()
            },
            async {
                driver.eval("").await.unwrap();
            }
        );
        // The newline counts; `length` is without it.
        let room = MAX_REQUEST_BYTES - length - 1;
        let error = driver.eval(&"x".repeat(room + 1)).await.unwrap_err();
        assert!(matches!(error, DriverError::RequestTooLarge { bytes } if bytes == MAX_REQUEST_BYTES + 1));
        let code = "x".repeat(room);
        let (result, _) = tokio::join!(driver.eval(&code), async {
            fake_server.accept_hello(&not_attaching()).await.serve(value("all of it")).await
        });
        assert_eq!(result.unwrap(), "all of it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_cannot_be_serialized_are_an_error() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let odd = std::collections::HashMap::from([(vec![1], 2)]);
    let error = driver.call("x", &odd).await.unwrap_err();
    assert!(matches!(error, DriverError::Arguments(_)), "{error:?}");
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn two_drivers_of_one_process_never_share_an_id() {
    let (mut first_fake, first) = FakeServer::with_driver();
    let (mut second_fake, second) = FakeServer::with_driver();
    let one = async |fake_server: &mut FakeServer| -> Value {
        fake_server.accept_hello(&not_attaching()).await.serve(value("")).await["id"].clone()
    };
    let (id, result) = with_timeout(async { tokio::join!(one(&mut first_fake), first.eval("1")) }).await;
    result.unwrap();
    let (other, result) = with_timeout(async { tokio::join!(one(&mut second_fake), second.eval("1")) }).await;
    result.unwrap();
    assert_ne!(id, other);
}
