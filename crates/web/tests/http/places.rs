//! One socket for each session, a limit over all of them, and the end of the server.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use parlor_transport::Rate;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::{Client, Server, bearer, close, handshake, text};

/// How many places the server says are taken.
async fn taken(server: &Server) -> String {
    let answer = server.ask(&format!("GET /metrics\n{}", bearer())).await;
    let line = answer.body.lines().find(|line| line.starts_with("parlor_connections ")).map(str::to_owned);
    line.expect("the number of connections is shown")
}

/// Waits until so many places are taken.
async fn until(server: &Server, count: usize) {
    while taken(server).await != format!("parlor_connections {count}") {
        tokio::task::yield_now().await;
    }
}

/// Waits for the greeting, so that the server is known to have the socket.
async fn greeted(server: &Server, query: &str) -> Client {
    let mut client = server.connect(query).await;
    assert!(text(&mut client).await.contains("session"));
    client
}

fn status(refused: Result<Client, Error>) -> u16 {
    match refused {
        Err(Error::Http(response)) => response.status().as_u16(),
        Ok(_) => 101,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_newest_socket_of_a_session_replaces_the_one_before() {
    let server = Server::start().await;
    let mut old = greeted(&server, "session_id=a").await;
    let mut other = greeted(&server, "session_id=A").await;
    let mut new = greeted(&server, "session_id=a").await;
    assert_eq!(close(&mut old).await, Some((4001, "replaced".to_owned())));
    for client in [&mut new, &mut other] {
        client.send(Message::text("still here")).await.unwrap();
        assert_eq!(text(client).await, "still here");
    }
    assert_eq!(server.metrics.replaced.get(), 1);
    drop(old);
    until(&server, 2).await;
}

#[tokio::test]
async fn the_limit_holds_over_all_sessions_until_a_socket_ends() {
    let server = Server::with(|wanted| wanted.settings.max_connections = 1).await;
    let first = greeted(&server, "session_id=a").await;
    server.shake("/supr/ws?session_id=b", &bearer()).await.assert_text(503, "too many connections");
    // The limit is looked at before the upgrade.
    server
        .ask(&format!("GET /supr/ws?session_id=b\n{}", bearer()))
        .await
        .assert_text(503, "too many connections");
    let mut first = first;
    first.close(None).await.unwrap();
    while let Some(Ok(_)) = first.next().await {}
    until(&server, 0).await;
    greeted(&server, "session_id=b").await;
}

#[tokio::test]
async fn a_replacement_passes_at_the_limit() {
    let server = Server::with(|wanted| wanted.settings.max_connections = 1).await;
    let mut first = greeted(&server, "session_id=a").await;
    let second = greeted(&server, "session_id=a").await;
    assert_eq!(close(&mut first).await, Some((4001, "replaced".to_owned())));
    drop(first);
    until(&server, 1).await;
    assert_eq!(status(server.try_connect("session_id=b").await), 503);
    drop(second);
    until(&server, 0).await;
}

#[tokio::test]
async fn a_refused_handshake_neither_replaces_nor_keeps_a_place() {
    let server = Server::with(|wanted| {
        wanted.settings.max_connections = 1;
        wanted.configured.allow_origins = vec!["http://a:1".to_owned()];
    })
    .await;
    server.shake("/supr/ws?session_id=a", &bearer()).await.assert_text(403, "Forbidden");
    server.shake("/supr/ws?session_id=a", &bearer()).await.assert_text(403, "Forbidden");
    assert_eq!(taken(&server).await, "parlor_connections 0");
}

#[tokio::test]
async fn a_client_that_is_gone_before_the_answer_leaves_its_place() {
    let server = Server::with(|wanted| wanted.settings.max_connections = 4).await;
    for _ in 0..50 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = handshake("/supr/ws", &bearer()).replacen('\n', " HTTP/1.1\n", 1).replace('\n', "\r\n");
        stream.write_all(format!("{request}\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        drop(stream);
    }
    until(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_newcomers_leaves_one_socket_for_each_session() {
    let server = Server::with(|wanted| wanted.settings.max_connections = 200).await;
    let all: Vec<_> = (0..120).map(|n| format!("session_id={}", n % 3)).collect();
    let mut clients = futures_util::future::join_all(all.iter().map(|query| greeted(&server, query))).await;
    let ends =
        clients.iter_mut().enumerate().map(|(number, client)| async move { (number, close(client).await) });
    let mut ends: FuturesUnordered<_> = ends.collect();
    let mut gone = HashSet::new();
    while gone.len() < 117 {
        let (number, told) = ends.next().await.unwrap();
        assert_eq!(told.map(|(code, _)| code), Some(4001));
        gone.insert(number);
    }
    drop(ends);
    let living = clients.into_iter().enumerate().filter(|(number, _)| !gone.contains(number));
    let mut living: Vec<Client> = living.map(|(_, client)| client).collect();
    for client in &mut living {
        client.send(Message::text("ping")).await.unwrap();
        assert_eq!(text(client).await, "ping");
    }
    assert_eq!(server.metrics.replaced.get(), 117);
    until(&server, 3).await;
    drop(living);
    until(&server, 0).await;
}

#[tokio::test]
async fn when_the_server_ends_sockets_are_told_and_nobody_else_is_let_in() {
    let mut server = Server::start().await;
    let mut client = greeted(&server, "").await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let before = crate::support::Answer::read;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(before(&mut idle).await.status, 200);
    server.stop.cancel();
    assert_eq!(close(&mut client).await, Some((1001, "going away".to_owned())));
    while client.next().await.is_some() {}
    (&mut server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(before(&mut idle).await.status, 0);
}

#[tokio::test]
async fn a_client_that_does_not_leave_does_not_keep_the_server() {
    let mut server =
        Server::with(|wanted| wanted.settings.limits.stop_wait = Duration::from_millis(50)).await;
    // It never says goodbye in return.
    let _client = greeted(&server, "").await;
    server.stop.cancel();
    (&mut server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_handshake_that_comes_while_the_server_ends_is_told_so() {
    let server = Server::start().await;
    // It keeps the server from being gone.
    let _client = greeted(&server, "").await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The head is begun before the end, and completed after it.
    let request = handshake("/supr/ws", &bearer()).replacen('\n', " HTTP/1.1\n", 1).replace('\n', "\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    until(&server, 1).await;
    server.stop.cancel();
    stream.write_all(b"\r\nHost: localhost\r\n\r\n").await.unwrap();
    let answer = crate::support::Answer::read(&mut stream).await;
    assert!(answer.status == 503 || answer.status == 0, "{answer:?}");
    if answer.status == 503 {
        answer.assert_text(503, "channel not running");
    }
}

#[tokio::test]
async fn who_comes_too_often_waits() {
    let rate = Rate { per_second: 0.001, burst: 3.0 };
    let server = Server::with(|wanted| {
        wanted.settings.limits.local_handshakes = rate;
        wanted.settings.limits.local_requests = rate;
    })
    .await;
    for expected in [401, 401, 401, 429, 429] {
        let answer = server.shake("/supr/ws", "").await;
        assert_eq!(answer.status, expected);
        assert_eq!(answer.header("retry-after"), (expected == 429).then_some("1"));
    }
    // Other requests are counted apart.
    for expected in [200, 200, 200, 429] {
        assert_eq!(server.ask("GET /healthz").await.status, expected);
    }
}
