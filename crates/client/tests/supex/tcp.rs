//! Tests with real sockets, on loopback.

use std::time::Duration;

use parlor_client::supex::{CallFate, DialStream, Driver, DriverError, IdleState, SupexSettings};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::{ServerConnection, attaching, not_attaching, settings, value};

/// Fails a test that hangs, by the real clock.
async fn soon<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
}

/// A listening socket, and a driver for it with a long timeout, because the clock is real.
async fn listening(host: &str) -> (TcpListener, Driver) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings =
        SupexSettings { host: host.to_owned(), port, timeout: Duration::from_secs(60), ..settings() };
    (listener, Driver::new(settings))
}

async fn accept(listener: &TcpListener) -> ServerConnection<TcpStream> {
    ServerConnection::new(listener.accept().await.unwrap().0)
}

async fn accept_hello(listener: &TcpListener, info: &serde_json::Value) -> ServerConnection<TcpStream> {
    let mut connection = accept(listener).await;
    connection.accept_hello(info).await;
    connection
}

#[tokio::test]
async fn localhost_is_reached_and_the_connection_is_reused() {
    let (listener, driver) = listening("localhost").await;
    let server = async {
        let mut connection = accept_hello(&listener, &not_attaching()).await;
        for _ in 0..5 {
            connection.serve(value("Příliš")).await;
        }
    };
    let calls = async {
        for _ in 0..5 {
            assert_eq!(driver.eval("x").await.unwrap(), "Příliš");
        }
    };
    soon(async { tokio::join!(server, calls) }).await;
}

#[tokio::test]
async fn idle_reports_what_the_peer_did() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pair = async || {
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        (ours.unwrap(), ServerConnection::new(theirs.unwrap().0))
    };
    let (mut ours, mut theirs) = pair().await;
    assert_eq!(ours.idle(), IdleState::Quiet);
    theirs.send_bytes(b"x").await;
    soon(ours.readable()).await.unwrap();
    assert_eq!(ours.idle(), IdleState::SentData);

    let (mut ours, theirs) = pair().await;
    drop(theirs);
    soon(ours.readable()).await.unwrap();
    assert_eq!(ours.idle(), IdleState::Closed);

    let (mut ours, theirs) = pair().await;
    reset(theirs);
    soon(ours.readable()).await.unwrap();
    assert_eq!(ours.idle(), IdleState::Closed);
}

/// Resets a connection.
fn reset(connection: ServerConnection<TcpStream>) {
    connection.0.into_inner().set_zero_linger().unwrap();
}

#[tokio::test]
async fn a_call_is_repeated_after_a_reset_where_that_is_safe() {
    let (listener, driver) = listening("127.0.0.1").await;
    let server = async {
        let mut connection = accept_hello(&listener, &attaching()).await;
        let call = connection.receive().await;
        connection.send_bytes(b"{\"jsonrpc\":\"2.0\",\"res").await;
        reset(connection);
        let mut connection = accept_hello(&listener, &attaching()).await;
        assert_eq!(connection.serve(value("whole")).await, call);
    };
    let (result, ()) = soon(async { tokio::join!(driver.eval("1"), server) }).await;
    assert_eq!(result.unwrap(), "whole");

    let (listener, driver) = listening("127.0.0.1").await;
    let server = async {
        let mut connection = accept_hello(&listener, &not_attaching()).await;
        connection.receive().await;
        connection.send_bytes(b"{\"jsonrpc\":\"2.0\",\"res").await;
        reset(connection);
    };
    let (result, ()) = soon(async { tokio::join!(driver.eval("1"), server) }).await;
    assert!(matches!(result, Err(DriverError::Closed { fate: CallFate::Unknown, .. })), "{result:?}");
}

#[tokio::test]
async fn connecting_fails_if_no_server_listens() {
    let (listener, _) = listening("127.0.0.1").await;
    let address = listener.local_addr().unwrap();
    drop(listener);
    let driver = Driver::new(SupexSettings { port: address.port(), retries: 0, ..SupexSettings::bridge() });
    let error = driver.call("ping", &json!({})).await.unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("cannot connect to localhost:{}: ", address.port())),
        "{error}"
    );
    assert!(matches!(error, DriverError::Connect { .. }));
}
