//! Real sockets, on loopback.

use std::time::Duration;

use parlor_client::supex::{CallFate, DialStream, Driver, DriverError, IdleState, SupexSettings};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::{Peer, attaching, plain, settings, value};

/// Turns a hang into a failure, by the real clock.
async fn soon<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
}

/// A server's socket, and a driver for it. The clock is real, so the driver is patient.
async fn listening(host: &str) -> (TcpListener, Driver) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings =
        SupexSettings { host: host.to_owned(), port, timeout: Duration::from_secs(60), ..settings() };
    (listener, Driver::new(settings))
}

async fn accept(listener: &TcpListener) -> Peer<TcpStream> {
    Peer::new(listener.accept().await.unwrap().0)
}

async fn welcome(listener: &TcpListener, kind: &serde_json::Value) -> Peer<TcpStream> {
    let mut peer = accept(listener).await;
    peer.welcome(kind).await;
    peer
}

#[tokio::test]
async fn localhost_is_found_and_the_connection_is_kept() {
    let (listener, driver) = listening("localhost").await;
    let server = async {
        let mut peer = welcome(&listener, &plain()).await;
        for _ in 0..5 {
            peer.serve(value("Příliš")).await;
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
async fn a_look_at_a_socket_tells_what_the_peer_did() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pair = async || {
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        (ours.unwrap(), Peer::new(theirs.unwrap().0))
    };
    let (mut ours, mut theirs) = pair().await;
    assert_eq!(ours.idle(), IdleState::Quiet);
    theirs.say_bytes(b"x").await;
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

/// Ends a connection with a reset.
fn reset(peer: Peer<TcpStream>) {
    peer.0.into_inner().set_zero_linger().unwrap();
}

#[tokio::test]
async fn a_reset_in_the_middle_of_an_answer_is_survived_where_that_is_safe() {
    let (listener, driver) = listening("127.0.0.1").await;
    let server = async {
        let mut peer = welcome(&listener, &attaching()).await;
        let call = peer.hear().await;
        peer.say_bytes(b"{\"jsonrpc\":\"2.0\",\"res").await;
        reset(peer);
        let mut peer = welcome(&listener, &attaching()).await;
        assert_eq!(peer.serve(value("whole")).await, call);
    };
    let (result, ()) = soon(async { tokio::join!(driver.eval("1"), server) }).await;
    assert_eq!(result.unwrap(), "whole");

    let (listener, driver) = listening("127.0.0.1").await;
    let server = async {
        let mut peer = welcome(&listener, &plain()).await;
        peer.hear().await;
        peer.say_bytes(b"{\"jsonrpc\":\"2.0\",\"res").await;
        reset(peer);
    };
    let (result, ()) = soon(async { tokio::join!(driver.eval("1"), server) }).await;
    assert!(matches!(result, Err(DriverError::Closed { fate: CallFate::Unknown, .. })), "{result:?}");
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_connection() {
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
