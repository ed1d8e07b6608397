//! Answers that are odd: accepted where nothing can be misunderstood, refused otherwise.

use parlor_client::supex::{Driver, DriverError, SupexSettings};
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use crate::{Fake, Peer, attaching, plain, reply, settings, stillness, value, watched};

/// An evaluation that is answered by exactly these bytes, in which `ID` stands for its id.
async fn answered_by(bytes: &[u8]) -> (Result<String, DriverError>, Fake, Driver, Peer<DuplexStream>) {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&attaching()).await;
        let id = peer.hear().await["id"].to_string();
        let at = bytes.windows(2).position(|two| two == b"ID");
        let bytes = match at {
            Some(at) => [&bytes[..at], id.as_bytes(), &bytes[at + 2..]].concat(),
            None => bytes.to_vec(),
        };
        peer.say_bytes(&bytes).await;
        peer
    };
    let (result, peer) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
    (result, fake, driver, peer)
}

/// The next call goes well, on another connection.
async fn next_call_reconnects(mut fake: Fake, driver: Driver) {
    let server = async { fake.welcome(&plain()).await.serve(value("next")).await };
    let (result, _) = watched(async { tokio::join!(driver.eval("2"), server) }).await;
    assert_eq!(result.unwrap(), "next");
}

/// The next call goes well, on the same connection.
async fn next_call_goes_on(mut fake: Fake, driver: Driver, mut peer: Peer<DuplexStream>) {
    let (result, _) = watched(async { tokio::join!(driver.eval("2"), peer.serve(value("next"))) }).await;
    assert_eq!(result.unwrap(), "next");
    assert!(!fake.is_bothered().await);
}

#[tokio::test(start_paused = true)]
async fn an_error_member_that_is_null_is_no_error() {
    let (result, fake, driver, peer) =
        answered_by(b"{\"jsonrpc\":\"2.0\",\"error\":null,\"result\":{\"result\":\"2\"},\"id\":ID}\n").await;
    assert_eq!(result.unwrap(), "2");
    next_call_goes_on(fake, driver, peer).await;
}

#[tokio::test(start_paused = true)]
async fn two_lines_in_one_segment_are_one_answer_and_a_reason_to_reconnect() {
    let lines = b"{\"result\":{\"result\":\"2\"},\"id\":ID}\n{\"result\":{\"result\":\"3\"},\"id\":1}\n";
    let (result, fake, driver, _peer) = answered_by(lines).await;
    assert_eq!(result.unwrap(), "2");
    next_call_reconnects(fake, driver).await;
}

#[tokio::test(start_paused = true)]
async fn half_a_second_line_is_a_reason_too() {
    let (result, fake, driver, _peer) =
        answered_by(b"{\"result\":{\"result\":\"2\"},\"id\":ID}\n{\"res").await;
    assert_eq!(result.unwrap(), "2");
    next_call_reconnects(fake, driver).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_second_line_is_never_taken_for_the_next_answer() {
    let (result, fake, driver, mut peer) = answered_by(b"{\"result\":{\"result\":\"2\"},\"id\":ID}\n").await;
    assert_eq!(result.unwrap(), "2");
    peer.say(&json!({"result": {"result": "late"}, "id": 1})).await;
    stillness().await;
    next_call_reconnects(fake, driver).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_another_question_is_refused() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        let first = peer.serve(value("1")).await;
        let second = peer.hear().await;
        // Later than the driver's look at the connection.
        peer.say(&reply(&first, value("1 again"))).await;
        peer.say(&reply(&second, value("2"))).await;
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        let error = driver.eval("2").await.unwrap_err();
        assert!(error.to_string().contains("which was not asked"), "{error}");
    };
    watched(async { tokio::join!(server, calls) }).await;
    next_call_reconnects(fake, driver).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_is_a_breach_and_nothing_is_sent_again() {
    for (bytes, said) in [
        (&b"{\"result\":{\"result\":\"\xff\"},\"id\":ID}\n"[..], "not UTF-8"),
        (b"{\"result\":null,\"id\":ID}\n", "neither a result nor an error"),
        (b"{\"result\":\"2\",\"id\":ID}\n", "its result is not an object"),
        (b"{\"error\":\"bad\",\"id\":ID}\n", "its error is not an object"),
        (b"{\"result\":{}}\n", "no id"),
        (b"\n", "not a JSON object"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not a JSON object: HTTP/1.1"),
    ] {
        let (result, mut fake, driver, mut peer) = answered_by(bytes).await;
        let error = result.unwrap_err();
        assert!(matches!(error, DriverError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().starts_with("fake:1 broke the protocol: "), "{error}");
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert_eq!(peer.hear_or_end().await, None, "{said}: the connection is of no more use");
        assert!(!fake.is_bothered().await, "{said}");
        next_call_reconnects(fake, driver).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_object_needs_no_newline_if_the_connection_ends() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        let call = peer.hear().await;
        peer.say_bytes(reply(&call, value("2")).to_string().as_bytes()).await;
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_limit_is_taken_and_a_longer_one_is_not() {
    const LIMIT: usize = 4096;
    let (mut fake, driver) = Fake::driven_with(SupexSettings { max_response: LIMIT, ..settings() });
    let filled = |call: &Value, length: usize| {
        let bare = reply(call, value("")).to_string().len() + 1;
        format!("{}\n", reply(call, value(&"x".repeat(length - bare))))
    };
    let server = async {
        let mut peer = fake.welcome(&attaching()).await;
        let call = peer.hear().await;
        peer.say_bytes(filled(&call, LIMIT).as_bytes()).await;
        let call = peer.hear().await;
        let longer = filled(&call, LIMIT + 1);
        assert_eq!(longer.len(), LIMIT + 1);
        peer.say_bytes(longer.as_bytes()).await;
        // One that does not end is not waited for.
        let mut peer = fake.welcome(&attaching()).await;
        peer.hear().await;
        peer.say_bytes(&[b'x'; LIMIT]).await;
        assert_eq!(peer.hear_or_end().await, None);
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        for _ in 0..2 {
            let error = driver.eval("2").await.unwrap_err();
            assert!(matches!(error, DriverError::TooLarge { limit: LIMIT }), "{error:?}");
        }
    };
    watched(async { tokio::join!(server, calls) }).await;
    assert!(!fake.is_bothered().await, "it would be as long the second time");
}
