//! Calls that go well, and calls that are refused.

use std::sync::Arc;

use parlor_client::supex::{
    CallFate, DriverError, MAX_REQUEST_BYTES, MAX_WAITING_CALLS, Pong, SupexSettings, SupexToken,
};
use serde_json::{Value, json};

use crate::{Fake, attaching, plain, reply, settings, stillness, value, watched};

#[tokio::test(start_paused = true)]
async fn hello_comes_first_and_five_calls_need_one_connection() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.arrival().await;
        let hello = peer.hear().await;
        let params =
            json!({"name": "test", "version": "1", "agent": "tester", "pid": 42, "features": ["attach"]});
        assert_eq!(hello, json!({"jsonrpc": "2.0", "method": "hello", "params": params, "id": "hello"}));
        peer.say(&reply(&hello, json!({"success": true, "server": plain()}))).await;
        let mut ids = Vec::new();
        for number in 0..5 {
            let call = peer.serve(value(&number.to_string())).await;
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
    watched(async { tokio::join!(server, calls) }).await;
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_and_a_wrong_one_is_told_apart() {
    let with_token = SupexSettings { token: Some(SupexToken::new("s3cret")), ..settings() };
    let (mut fake, driver) = Fake::driven_with(with_token);
    let server = async {
        let mut peer = fake.arrival().await;
        let hello = peer.hear().await;
        assert_eq!(hello["params"]["token"], "s3cret");
        let error = json!({"code": -32001, "message": "Authentication failed: invalid or missing token"});
        peer.say(&json!({"jsonrpc": "2.0", "error": error, "id": "hello"})).await;
    };
    let (error, ()) = watched(async { tokio::join!(driver.ping(), server) }).await;
    let error = error.unwrap_err();
    assert!(matches!(error, DriverError::Unauthorized { .. }), "{error:?}");
    assert_eq!(error.fate(), CallFate::NotRun);
    assert!(!format!("{error} {error:?} {driver:?}").contains("s3cret"));
    assert!(!fake.is_bothered().await, "it would not be let in at the second attempt either");
}

#[tokio::test(start_paused = true)]
async fn a_refused_hello_is_the_servers_error() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.arrival().await;
        peer.hear().await;
        let error = json!({"code": -32600, "message": "Missing required params: name, version, agent, pid"});
        peer.say(&json!({"jsonrpc": "2.0", "error": error, "id": null})).await;
    };
    let (error, ()) = watched(async { tokio::join!(driver.server(), server) }).await;
    assert!(matches!(error, Err(DriverError::Remote { code: -32600, .. })), "{error:?}");

    let server = async {
        let mut peer = fake.arrival().await;
        let hello = peer.hear().await;
        peer.say(&reply(&hello, json!({"success": false, "message": "go away"}))).await;
    };
    let (error, ()) = watched(async { tokio::join!(driver.server(), server) }).await;
    assert!(error.unwrap_err().to_string().contains("it refused hello: go away"));
}

#[tokio::test(start_paused = true)]
async fn an_error_carries_its_details_and_leaves_the_connection_usable() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        let call = peer.hear().await;
        let data = json!({"success": false, "file": "/p/a.rb", "line": 12, "backtrace": ["x"]});
        let error = json!({"code": -32000, "message": "Ruby evaluation error: no", "data": data});
        peer.say(&json!({"jsonrpc": "2.0", "error": error, "id": call["id"]})).await;
        peer.serve(value("2")).await;
    };
    let calls = async {
        let error = driver.eval("raise 'no'").await.unwrap_err();
        assert_eq!(error.to_string(), "Ruby evaluation error: no (-32000)");
        assert_eq!(error.detail("file").as_deref(), Some("/p/a.rb"));
        assert_eq!(error.detail("line").as_deref(), Some("12"));
        assert_eq!((error.detail("hint"), error.detail("backtrace")), (None, None));
        assert_eq!(driver.eval("1 + 1").await.unwrap(), "2");
    };
    watched(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn results_have_types_and_are_kept_as_they_were_written() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&attaching()).await;
        let pong =
            json!({"success": true, "status": "connected", "version": "0.2.0", "sketchup_version": null});
        assert_eq!(peer.serve(pong).await["params"], json!({"name": "ping", "arguments": {}}));
        let file = json!({"success": true, "result": "3", "file_path": "/p/a.rb", "file_name": "a.rb"});
        assert_eq!(peer.serve(file).await["params"]["arguments"], json!({"file_path": "/p/a.rb"}));
        let call = peer.hear().await;
        let odd = r#"{ "area":1.0,"id":123456789012345678901234567890 }"#;
        peer.say_bytes(format!("{{\"result\":{odd},\"id\":{}}}\r\n", call["id"]).as_bytes()).await;
        peer.serve(json!({"success": false, "error": "No active model"})).await;
        peer.serve(json!({"success": false, "error": "No active model"})).await;
        peer.serve(json!({"success": true})).await;
    };
    let calls = async {
        let server = driver.server().await.unwrap();
        assert_eq!(
            (server.name.as_str(), server.version.as_str(), server.attach),
            ("supex-runtime", "0.2.0", true)
        );
        let pong = Pong { version: Some("0.2.0".into()), sketchup_version: None };
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
    watched(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn calls_take_turns_in_the_order_in_which_they_came() {
    let (mut fake, driver) = Fake::driven();
    let driver = Arc::new(driver);
    let mut callers = Vec::new();
    for number in 0..20 {
        let driver = Arc::clone(&driver);
        callers.push(tokio::spawn(async move { driver.eval(&number.to_string()).await.unwrap() }));
        stillness().await;
    }
    watched(async {
        let mut peer = fake.welcome(&plain()).await;
        for number in 0..20 {
            let call = peer.hear().await;
            assert_eq!(call["params"]["arguments"]["code"], number.to_string());
            stillness().await;
            // One question at a time, however many wait.
            let mut more = [0];
            let next = tokio::io::AsyncReadExt::read(&mut peer.0, &mut more);
            assert!(tokio::time::timeout(std::time::Duration::from_secs(1), next).await.is_err());
            peer.say(&reply(&call, value(&format!("v{number}")))).await;
        }
        for (number, caller) in callers.into_iter().enumerate() {
            assert_eq!(caller.await.unwrap(), format!("v{number}"));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn so_many_calls_wait_and_the_next_one_is_refused() {
    let (mut fake, driver) = Fake::driven();
    let driver = Arc::new(driver);
    let callers: Vec<_> = (0..MAX_WAITING_CALLS)
        .map(|_| {
            let driver = Arc::clone(&driver);
            tokio::spawn(async move { driver.ping().await })
        })
        .collect();
    stillness().await;
    let refused = driver.ping().await.unwrap_err();
    assert!(matches!(refused, DriverError::Busy), "{refused:?}");
    assert_eq!(refused.fate(), CallFate::NotRun);
    watched(async {
        let mut peer = fake.welcome(&plain()).await;
        for _ in 0..MAX_WAITING_CALLS {
            peer.serve(json!({"success": true})).await;
        }
        for caller in callers {
            caller.await.unwrap().unwrap();
        }
        // There is room again.
        let (pong, _) = tokio::join!(driver.ping(), peer.serve(json!({})));
        pong.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_of_the_limit_is_sent_and_a_longer_one_is_not() {
    let (mut fake, driver) = Fake::driven();
    watched(async {
        let (length, ()) = tokio::join!(
            async {
                let mut peer = fake.welcome(&plain()).await;
                peer.serve(value("")).await.to_string().len()
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
            fake.welcome(&plain()).await.serve(value("all of it")).await
        });
        assert_eq!(result.unwrap(), "all of it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_no_json_are_not_sent() {
    let (mut fake, driver) = Fake::driven();
    let odd = std::collections::HashMap::from([(vec![1], 2)]);
    let error = driver.call("x", &odd).await.unwrap_err();
    assert!(matches!(error, DriverError::Arguments(_)), "{error:?}");
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn two_drivers_of_one_process_never_share_an_id() {
    let (mut first_fake, first) = Fake::driven();
    let (mut second_fake, second) = Fake::driven();
    let one = async |fake: &mut Fake| -> Value {
        fake.welcome(&plain()).await.serve(value("")).await["id"].clone()
    };
    let (id, result) = watched(async { tokio::join!(one(&mut first_fake), first.eval("1")) }).await;
    result.unwrap();
    let (other, result) = watched(async { tokio::join!(one(&mut second_fake), second.eval("1")) }).await;
    result.unwrap();
    assert_ne!(id, other);
}
