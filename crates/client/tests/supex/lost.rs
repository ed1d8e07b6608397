//! Connections that break, and what is sent again.

use std::time::Duration;

use parlor_client::supex::{
    ATTACH_WINDOW, CallFate, DriverError, MAX_RETRIES, MAX_RETRY_PAUSE, RETRY_PAUSE, SupexSettings,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{Fake, attaching, plain, reply, settings, stillness, value, watched};

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_closed_while_idle_is_noticed_before_anything_is_sent() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        for number in ["1", "2", "3"] {
            // As some servers do: one answer, then the end.
            fake.welcome(&plain()).await.serve(value(number)).await;
        }
    };
    let calls = async {
        for number in ["1", "2", "3"] {
            assert_eq!(driver.eval(number).await.unwrap(), number);
            stillness().await;
        }
    };
    watched(async { tokio::join!(server, calls) }).await;
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn once_seen_to_close_after_each_answer_a_server_gets_code_on_new_connections_only() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        fake.welcome(&plain()).await.serve(value("1")).await;
        let mut second = fake.welcome(&plain()).await;
        second.serve(value("2")).await;
        // This one is still open, and may be closing at this moment.
        let mut third = fake.welcome(&plain()).await;
        third.serve(value("3")).await;
        // What only reads is tried on it. It goes well, so the server has changed its ways.
        third.serve(json!({})).await;
        third.serve(value("4")).await;
        drop(second);
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        stillness().await;
        driver.eval("2").await.unwrap();
        driver.eval("3").await.unwrap();
        driver.ping().await.unwrap();
        driver.eval("4").await.unwrap();
    };
    watched(async { tokio::join!(server, calls) }).await;
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn code_is_not_sent_again_to_a_server_that_would_run_it_again() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        fake.welcome(&plain()).await.hear().await;
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("$n += 1"), server) }).await;
    let error = result.unwrap_err();
    assert!(matches!(error, DriverError::Closed { fate: CallFate::Unknown, .. }), "{error:?}");
    let said = "fake:1 closed the connection before it answered; the call may have run, so look before you repeat it";
    assert_eq!(error.to_string(), said);
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn half_an_answer_is_no_answer() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        let call = peer.hear().await;
        let line = reply(&call, value("2")).to_string();
        peer.say_bytes(&line.as_bytes()[..line.len() - 1]).await;
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
    assert_eq!(result.unwrap_err().fate(), CallFate::Unknown);
}

/// The calls that arrive if each connection is lost after its call. The last one is answered.
async fn arrivals(
    tool: &str,
    kind: Value,
    connections: usize,
) -> (Vec<Value>, Result<String, DriverError>, bool) {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut calls = Vec::new();
        for number in 0..connections {
            let mut peer = fake.welcome(&kind).await;
            calls.push(if number + 1 == connections {
                peer.serve(value("done")).await
            } else {
                peer.hear().await
            });
        }
        calls
    };
    let arguments = json!({"code": "1"});
    let (calls, result) = watched(async { tokio::join!(server, driver.call(tool, &arguments)) }).await;
    let result = result.map(|answer| answer.json().to_owned());
    (calls, result, fake.is_bothered().await)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_attaches_gets_the_same_request_again() {
    let (calls, result, bothered) = arrivals("eval_ruby", attaching(), 3).await;
    assert!(calls.windows(2).all(|two| two[0] == two[1]), "same id, same parameters: {calls:?}");
    assert!(result.unwrap().contains("done"));
    assert!(!bothered);
}

#[tokio::test(start_paused = true)]
async fn what_only_reads_is_asked_again_everywhere() {
    let (calls, result, bothered) = arrivals("get_layers", plain(), 3).await;
    assert!(calls.windows(2).all(|two| two[0] == two[1]), "{calls:?}");
    assert!(result.is_ok());
    assert!(!bothered);
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_attempts_as_the_settings_say_and_never_more_than_the_limit() {
    for (retries, attempts) in [(0, 1), (2, 3), (u32::MAX, MAX_RETRIES + 1)] {
        let (mut fake, driver) = Fake::driven_with(SupexSettings { retries, ..settings() });
        let server = async {
            for _ in 0..attempts {
                fake.welcome(&attaching()).await.hear().await;
            }
        };
        let (result, ()) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
        assert_eq!(result.unwrap_err().fate(), CallFate::Unknown);
        assert!(!fake.is_bothered().await, "{retries}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_started_anew_does_not_get_the_code_again() {
    let instance =
        |name: &str| json!({"name": "supex-runtime", "version": "0.2.0", "attach": true, "instance": name});
    for (before, after, again) in [
        (instance("a"), instance("a"), true),
        (instance("a"), instance("b"), false),
        (instance("a"), attaching(), false),
        (attaching(), plain(), false),
    ] {
        let (mut fake, driver) = Fake::driven();
        let server = async {
            fake.welcome(&before).await.hear().await;
            let mut peer = fake.welcome(&after).await;
            match peer.hear_or_end().await {
                Some(call) => {
                    peer.say(&reply(&call, value("done"))).await;
                    true
                }
                None => false,
            }
        };
        let (result, was_sent) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
        assert_eq!((was_sent, result.is_ok()), (again, again), "{before} {after}");
        if let Err(error) = result {
            assert_eq!(error.fate(), CallFate::Unknown);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_has_forgotten_the_call() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&attaching()).await;
        peer.hear().await;
        fake.refuse(1);
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
    assert!(matches!(result, Err(DriverError::Closed { fate: CallFate::Unknown, .. })), "{result:?}");
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_attached_within_the_window_only() {
    for (delay, again) in [(ATTACH_WINDOW, true), (ATTACH_WINDOW + Duration::from_millis(1), false)] {
        let (mut fake, driver) =
            Fake::driven_with(SupexSettings { timeout: ATTACH_WINDOW * 2, ..settings() });
        let server = async {
            fake.welcome(&attaching()).await.hear().await;
            let mut peer = fake.arrival().await;
            // It takes its time to answer hello. By now it may have forgotten the call.
            tokio::time::sleep(delay).await;
            peer.welcome(&attaching()).await;
            let call = peer.hear_or_end().await;
            if let Some(call) = &call {
                peer.say(&reply(call, value("done"))).await;
            }
            call.is_some()
        };
        let (result, was_sent) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
        assert_eq!((was_sent, result.is_ok()), (again, again), "{delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_did_not_leave_whole_is_sent_again_to_any_server() {
    // The pipe holds less than the request, and the server hangs up before it has read all.
    let (mut fake, way) = Fake::new(256);
    let driver = parlor_client::supex::Driver::over("fake:1", way, settings());
    let code = "x".repeat(10_000);
    let server = async {
        let peer = fake.welcome(&plain()).await;
        stillness().await;
        drop(peer);
        fake.welcome(&plain()).await.serve(value("once")).await
    };
    let (result, call) = watched(async { tokio::join!(driver.eval(&code), server) }).await;
    assert_eq!(result.unwrap(), "once");
    assert_eq!(call["params"]["arguments"]["code"], code);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lacks_only_its_newline_may_have_run() {
    const PIPE: usize = 512;
    let (mut fake, way) = Fake::new(PIPE);
    let driver = parlor_client::supex::Driver::over("fake:1", way, settings());
    watched(async {
        let first = async {
            let mut peer = fake.welcome(&plain()).await;
            let length = peer.serve(value("")).await.to_string().len();
            (peer, length)
        };
        let (result, (peer, length)) = tokio::join!(driver.eval(""), first);
        result.unwrap();
        // All but the newline fits.
        let code = "x".repeat(PIPE - length);
        let hang_up = async {
            stillness().await;
            drop(peer);
        };
        let (result, ()) = tokio::join!(driver.eval(&code), hang_up);
        assert_eq!(result.unwrap_err().fate(), CallFate::Unknown);
    })
    .await;
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_not_read_all_before_it_judged_is_asked_again() {
    let unread = json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null});
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        peer.hear().await;
        peer.say(&unread).await;
        fake.welcome(&plain()).await.serve(value("2")).await;
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");

    // It says which request it means, so it has read it.
    let server = async {
        let mut peer = fake.arrival().await;
        peer.welcome(&plain()).await;
        let call = peer.hear().await;
        let mut error = unread.clone();
        error["id"] = call["id"].clone();
        peer.say(&error).await;
    };
    stillness().await;
    let (result, ()) = watched(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert!(matches!(result, Err(DriverError::Remote { code: -32700, .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_tried_again_after_a_pause() {
    let (mut fake, driver) = Fake::driven();
    fake.refuse(2);
    let began = Instant::now();
    let server = async { fake.welcome(&plain()).await.serve(value("2")).await };
    let (result, _) = watched(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");
    assert_eq!(began.elapsed(), RETRY_PAUSE * 3, "one pause, then another of twice its length");

    let (fake, driver) = Fake::driven();
    fake.refuse(3);
    let error = driver.eval("1").await.unwrap_err();
    assert!(matches!(error, DriverError::Connect { .. }), "{error:?}");
    assert_eq!(error.fate(), CallFate::NotRun);
    assert_eq!(error.to_string(), "cannot connect to fake:1: connection refused");

    let (fake, driver) = Fake::driven_with(SupexSettings { retries: MAX_RETRIES, ..settings() });
    fake.refuse(usize::MAX);
    let began = Instant::now();
    driver.eval("1").await.unwrap_err();
    // 0.2, 0.4, 0.8 and 1.6 s, and then no longer ones.
    assert_eq!(began.elapsed(), RETRY_PAUSE * 15 + MAX_RETRY_PAUSE * (MAX_RETRIES - 4));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_at_hello_is_made_again() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        fake.arrival().await.hear().await;
        fake.welcome(&plain()).await.serve(value("2")).await;
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_takes_its_connection_along() {
    let (mut fake, driver) = Fake::driven();
    watched(async {
        let mut peer = {
            let mut abandoned = Box::pin(driver.eval("sleep"));
            let server = async {
                let mut peer = fake.welcome(&plain()).await;
                peer.hear().await;
                peer
            };
            tokio::select! {
                biased;
                _ = &mut abandoned => panic!("it was not answered"),
                peer = server => peer,
            }
        };
        assert_eq!(peer.hear_or_end().await, None);
        let next = async { fake.welcome(&plain()).await.serve(value("2")).await };
        let (result, _) = tokio::join!(driver.eval("1 + 1"), next);
        assert_eq!(result.unwrap(), "2");
    })
    .await;
}
