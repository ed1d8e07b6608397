//! One socket for each session, a limit over all of them, and what happens when the server stops.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parlor_transport::Rate;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;

use crate::client::{Answer, Client, bearer, close, greeting, handshake, ping};
use crate::server::Server;

/// The line of the metrics with the number of connections.
async fn connections_line(server: &Server) -> String {
    let answer = server.request(&format!("GET /metrics\n{}", bearer())).await;
    let line = answer.body.lines().find(|line| line.starts_with("parlor_connections ")).map(str::to_owned);
    line.expect("the metrics have the number of connections")
}

/// Waits until the server counts so many connections.
pub(crate) async fn wait_for_connections(server: &Server, count: usize) {
    while connections_line(server).await != format!("parlor_connections {count}") {
        tokio::task::yield_now().await;
    }
}

/// Opens a socket and waits until the server serves it.
async fn connect(server: &Server, query: &str) -> Client {
    let mut client = server.connect(query).await;
    greeting(&mut client).await;
    client
}

fn status(connected: Result<Client, Error>) -> u16 {
    match connected {
        Err(Error::Http(response)) => response.status().as_u16(),
        Ok(_) => 101,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_newest_socket_of_a_session_replaces_the_one_before() {
    let server = Server::start().await;
    let mut old = connect(&server, "session_id=a").await;
    let mut other = connect(&server, "session_id=A").await;
    let mut new = connect(&server, "session_id=a").await;
    assert_eq!(close(&mut old).await, Some((4001, "replaced".to_owned())));
    for client in [&mut new, &mut other] {
        ping(client).await;
    }
    assert_eq!(server.metrics.replaced.get(), 1);
    drop(old);
    wait_for_connections(&server, 2).await;
}

#[tokio::test]
async fn the_limit_counts_all_sessions_until_a_socket_closes() {
    let server = Server::with(|options| options.settings.max_connections = 1).await;
    let first = connect(&server, "session_id=a").await;
    server.handshake("/supr/ws?session_id=b", &bearer()).await.assert_text(503, "too many connections");
    // The limit is checked before the upgrade.
    server
        .request(&format!("GET /supr/ws?session_id=b\n{}", bearer()))
        .await
        .assert_text(503, "too many connections");
    let mut first = first;
    first.close(None).await.unwrap();
    while let Some(Ok(_)) = first.next().await {}
    wait_for_connections(&server, 0).await;
    connect(&server, "session_id=b").await;
}

#[tokio::test]
async fn a_replacement_is_accepted_at_the_limit() {
    let server = Server::with(|options| options.settings.max_connections = 1).await;
    let mut first = connect(&server, "session_id=a").await;
    let second = connect(&server, "session_id=a").await;
    assert_eq!(close(&mut first).await, Some((4001, "replaced".to_owned())));
    drop(first);
    wait_for_connections(&server, 1).await;
    assert_eq!(status(server.try_connect("session_id=b").await), 503);
    drop(second);
    wait_for_connections(&server, 0).await;
}

#[tokio::test]
async fn a_refused_handshake_neither_replaces_a_socket_nor_keeps_a_slot() {
    let server = Server::with(|options| {
        options.settings.max_connections = 1;
        options.configured.allow_origins = vec!["http://a:1".to_owned()];
    })
    .await;
    server.handshake("/supr/ws?session_id=a", &bearer()).await.assert_text(403, "Forbidden");
    server.handshake("/supr/ws?session_id=a", &bearer()).await.assert_text(403, "Forbidden");
    assert_eq!(connections_line(&server).await, "parlor_connections 0");
}

#[tokio::test]
async fn a_client_that_disconnects_before_the_response_frees_its_slot() {
    let server = Server::with(|options| options.settings.max_connections = 4).await;
    for _ in 0..50 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = handshake("/supr/ws", &bearer()).replacen('\n', " HTTP/1.1\n", 1).replace('\n', "\r\n");
        stream.write_all(format!("{request}\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        drop(stream);
    }
    wait_for_connections(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_new_sockets_at_once_leave_one_for_each_session() {
    let server = Server::with(|options| options.settings.max_connections = 200).await;
    let all: Vec<_> = (0..120).map(|n| format!("session_id={}", n % 3)).collect();
    let mut clients = futures_util::future::join_all(all.iter().map(|query| server.connect(query))).await;
    let ends =
        clients.iter_mut().enumerate().map(|(number, client)| async move { (number, close(client).await) });
    let mut ends: FuturesUnordered<_> = ends.collect();
    let mut replaced = HashSet::new();
    while replaced.len() < 117 {
        let (number, closed) = ends.next().await.unwrap();
        assert_eq!(closed.map(|(code, _)| code), Some(4001));
        replaced.insert(number);
    }
    drop(ends);
    let open = clients.into_iter().enumerate().filter(|(number, _)| !replaced.contains(number));
    let mut open: Vec<Client> = open.map(|(_, client)| client).collect();
    for client in &mut open {
        ping(client).await;
    }
    assert_eq!(server.metrics.replaced.get(), 117);
    wait_for_connections(&server, 3).await;
    drop(open);
    wait_for_connections(&server, 0).await;
}

#[tokio::test]
async fn a_stopping_server_closes_sockets_and_accepts_no_more_connections() {
    let mut server = Server::start().await;
    let mut client = connect(&server, "").await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut idle).await.status, 200);
    server.stop.cancel();
    assert_eq!(close(&mut client).await, Some((1001, "the server is ending".to_owned())));
    while client.next().await.is_some() {}
    (&mut server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(Answer::read(&mut idle).await.status, 0);
}

#[tokio::test]
async fn a_client_that_does_not_close_its_socket_does_not_delay_the_server() {
    let mut server =
        Server::with(|options| options.settings.limits.stop_wait = Duration::from_millis(50)).await;
    // This client never answers the close frame.
    let _client = connect(&server, "").await;
    server.stop.cancel();
    (&mut server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_handshake_during_the_stop_of_the_server_is_refused() {
    let server = Server::start().await;
    // This client keeps the server from stopping at once.
    let _client = connect(&server, "").await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The head of the request begins before the stop, and ends after it.
    let request = handshake("/supr/ws", &bearer()).replacen('\n', " HTTP/1.1\n", 1).replace('\n', "\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    wait_for_connections(&server, 1).await;
    server.stop.cancel();
    stream.write_all(b"\r\nHost: localhost\r\n\r\n").await.unwrap();
    let answer = Answer::read(&mut stream).await;
    assert!(answer.status == 503 || answer.status == 0, "{answer:?}");
    if answer.status == 503 {
        answer.assert_text(503, "channel not running");
    }
}

#[tokio::test]
async fn a_client_that_comes_too_often_is_refused() {
    let rate = Rate { per_second: 0.001, burst: 3.0 };
    let server = Server::with(|options| {
        options.settings.limits.local_handshakes = rate;
        options.settings.limits.local_requests = rate;
    })
    .await;
    for expected in [401, 401, 401, 429, 429] {
        let answer = server.handshake("/supr/ws", "").await;
        assert_eq!(answer.status, expected);
        assert_eq!(answer.header("retry-after"), (expected == 429).then_some("1"));
    }
    // Other requests have a limit of their own.
    for expected in [200, 200, 200, 429] {
        assert_eq!(server.request("GET /healthz").await.status, expected);
    }
}
