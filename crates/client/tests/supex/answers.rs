//! Tests of unusual and invalid answers: accepted if they are unambiguous, errors otherwise.

use parlor_client::supex::{Driver, DriverError, SupexSettings};
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use crate::{
    FakeServer, ServerConnection, attaching, not_attaching, reply, settings, until_idle, value, with_timeout,
};

/// The result of an evaluation whose answer is exactly these bytes, with `ID` replaced by its id.
async fn answered_by(
    bytes: &[u8],
) -> (Result<String, DriverError>, FakeServer, Driver, ServerConnection<DuplexStream>) {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&attaching()).await;
        let id = connection.receive().await["id"].to_string();
        let index = bytes.windows(2).position(|two| two == b"ID");
        let bytes = match index {
            Some(index) => [&bytes[..index], id.as_bytes(), &bytes[index + 2..]].concat(),
            None => bytes.to_vec(),
        };
        connection.send_bytes(&bytes).await;
        connection
    };
    let (result, connection) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
    (result, fake_server, driver, connection)
}

/// Checks that the next call succeeds on another connection.
async fn next_call_reconnects(mut fake_server: FakeServer, driver: Driver) {
    let server = async { fake_server.accept_hello(&not_attaching()).await.serve(value("next")).await };
    let (result, _) = with_timeout(async { tokio::join!(driver.eval("2"), server) }).await;
    assert_eq!(result.unwrap(), "next");
}

/// Checks that the next call succeeds on the same connection.
async fn next_call_reuses_connection(
    mut fake_server: FakeServer,
    driver: Driver,
    mut connection: ServerConnection<DuplexStream>,
) {
    let (result, _) =
        with_timeout(async { tokio::join!(driver.eval("2"), connection.serve(value("next"))) }).await;
    assert_eq!(result.unwrap(), "next");
    assert!(!fake_server.has_new_connection().await);
}

#[tokio::test(start_paused = true)]
async fn an_error_member_that_is_null_is_no_error() {
    let (result, fake_server, driver, connection) =
        answered_by(b"{\"jsonrpc\":\"2.0\",\"error\":null,\"result\":{\"result\":\"2\"},\"id\":ID}\n").await;
    assert_eq!(result.unwrap(), "2");
    next_call_reuses_connection(fake_server, driver, connection).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_second_line_in_the_same_read_the_client_reconnects() {
    let lines = b"{\"result\":{\"result\":\"2\"},\"id\":ID}\n{\"result\":{\"result\":\"3\"},\"id\":1}\n";
    let (result, fake_server, driver, _peer) = answered_by(lines).await;
    assert_eq!(result.unwrap(), "2");
    next_call_reconnects(fake_server, driver).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_partial_second_line_the_client_reconnects() {
    let (result, fake_server, driver, _peer) =
        answered_by(b"{\"result\":{\"result\":\"2\"},\"id\":ID}\n{\"res").await;
    assert_eq!(result.unwrap(), "2");
    next_call_reconnects(fake_server, driver).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_second_line_is_not_taken_for_the_next_answer() {
    let (result, fake_server, driver, mut connection) =
        answered_by(b"{\"result\":{\"result\":\"2\"},\"id\":ID}\n").await;
    assert_eq!(result.unwrap(), "2");
    connection.send(&json!({"result": {"result": "late"}, "id": 1})).await;
    until_idle().await;
    next_call_reconnects(fake_server, driver).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_another_id_is_a_protocol_error() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        let first = connection.serve(value("1")).await;
        let second = connection.receive().await;
        // This comes after the driver's check of the idle connection.
        connection.send(&reply(&first, value("1 again"))).await;
        connection.send(&reply(&second, value("2"))).await;
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        let error = driver.eval("2").await.unwrap_err();
        assert!(error.to_string().contains("which was not asked"), "{error}");
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
    next_call_reconnects(fake_server, driver).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_answer_is_a_protocol_error_and_the_call_is_not_repeated() {
    for (bytes, description) in [
        (&b"{\"result\":{\"result\":\"\xff\"},\"id\":ID}\n"[..], "not UTF-8"),
        (b"{\"result\":null,\"id\":ID}\n", "neither a result nor an error"),
        (b"{\"result\":\"2\",\"id\":ID}\n", "its result is not an object"),
        (b"{\"error\":\"bad\",\"id\":ID}\n", "its error is not an object"),
        (b"{\"result\":{}}\n", "no id"),
        (b"\n", "not a JSON object"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not a JSON object: HTTP/1.1"),
    ] {
        let (result, mut fake_server, driver, mut connection) = answered_by(bytes).await;
        let error = result.unwrap_err();
        assert!(matches!(error, DriverError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().starts_with("fake:1 broke the protocol: "), "{error}");
        assert!(error.to_string().contains(description), "{description}: {error}");
        assert_eq!(
            connection.receive_or_end().await,
            None,
            "{description}: the client closes the connection"
        );
        assert!(!fake_server.has_new_connection().await, "{description}");
        next_call_reconnects(fake_server, driver).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_object_needs_no_newline_at_the_end_of_the_connection() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        let call = connection.receive().await;
        connection.send_bytes(reply(&call, value("2")).to_string().as_bytes()).await;
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1 + 1"), server) }).await;
    assert_eq!(result.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_the_size_limit_is_an_error() {
    const LIMIT: usize = 4096;
    let (mut fake_server, driver) =
        FakeServer::with_settings(SupexSettings { max_response: LIMIT, ..settings() });
    let filled = |call: &Value, length: usize| {
        let bare = reply(call, value("")).to_string().len() + 1;
        format!("{}\n", reply(call, value(&"x".repeat(length - bare))))
    };
    let server = async {
        let mut connection = fake_server.accept_hello(&attaching()).await;
        let call = connection.receive().await;
        connection.send_bytes(filled(&call, LIMIT).as_bytes()).await;
        let call = connection.receive().await;
        let longer = filled(&call, LIMIT + 1);
        assert_eq!(longer.len(), LIMIT + 1);
        connection.send_bytes(longer.as_bytes()).await;
        // The client does not wait for the end of an answer over the limit.
        let mut connection = fake_server.accept_hello(&attaching()).await;
        connection.receive().await;
        connection.send_bytes(&[b'x'; LIMIT]).await;
        assert_eq!(connection.receive_or_end().await, None);
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        for _ in 0..2 {
            let error = driver.eval("2").await.unwrap_err();
            assert!(matches!(error, DriverError::TooLarge { limit: LIMIT }), "{error:?}");
        }
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
    assert!(!fake_server.has_new_connection().await, "a repeated call would have the same answer");
}
