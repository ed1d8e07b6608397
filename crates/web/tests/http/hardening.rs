//! What is turned away before it is answered.

use std::time::Duration;

use parlor_doors::supr::MAX_SESSION_ID_BYTES;
use parlor_web::{CONNECTION_LIFE, MAX_BODY_BYTES, MAX_HEADER_BYTES, MAX_HEADERS, UNREAD_WAIT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Answer, Server, bearer};

#[tokio::test]
async fn a_name_that_is_not_ours_is_refused_whatever_is_asked() {
    let server = Server::with(|wanted| wanted.settings.allow_hosts = vec!["chat.example".to_owned()]).await;
    for host in ["evil.example", "evil.example:18790", "localhost.evil.example", "192.0.2.1"] {
        for request in
            ["GET /api/supr/token", "GET /", "GET /healthz", "POST /api/supr/token\nContent-Length: 0"]
        {
            let answer = server.ask(&format!("{request}\nHost: {host}\n{}", bearer())).await;
            assert_eq!(answer.status, 403, "{host} {request}");
            assert!(answer.body.contains("allow_hosts"), "{}", answer.body);
        }
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:18790", "chat.example"] {
        assert_eq!(server.ask(&format!("GET /healthz\nHost: {host}")).await.status, 200, "{host}");
    }
    assert_eq!(server.ask("GET http://evil.example/healthz\nHost: localhost").await.status, 403);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 400);
}

#[tokio::test]
async fn headers_that_decide_stand_once() {
    let server = Server::start().await;
    for header in ["Host: localhost", "Origin: http://localhost", "Sec-Fetch-Site: same-origin"] {
        let name = header.split(':').next().unwrap().to_lowercase();
        // The request has a Host already.
        let headers =
            if name == "host" { format!("Host: localhost\n{header}") } else { format!("{header}\n{header}") };
        let answer = server.ask(&format!("GET /api/sessions\n{headers}\n{}", bearer())).await;
        assert_eq!(answer.status, 400, "{headers}");
        assert!(answer.body.contains(&name), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_page_of_another_site_gets_and_changes_nothing() {
    let server = Server::start().await;
    let foreign = [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost:3000",
        "Sec-Fetch-Site: cross-site",
        "X-Forwarded-For: 192.0.2.7",
        "X-Forwarded-Host: localhost",
        "X-Real-IP: 127.0.0.1",
        "Via: 1.1 proxy",
    ];
    for header in foreign {
        for request in [
            "GET /api/supr/token",
            "POST /api/supr/token\nContent-Length: 0",
            "POST /api/pico/setup\nContent-Length: 0",
            "DELETE /api/sessions/c",
            "GET /api/sessions",
            "GET /metrics",
        ] {
            let answer = server.ask(&format!("{request}\n{header}")).await;
            assert_eq!(
                (answer.status, answer.header("www-authenticate")),
                (401, Some("Bearer")),
                "{header} {request}"
            );
            assert!(answer.body.contains("parlor token"), "{}", answer.body);
        }
        let known = server.ask(&format!("GET /api/sessions\n{header}\n{}", bearer())).await;
        assert_eq!(known.status, 200, "{header}");
    }
    let own = format!("DELETE /api/sessions/c\nOrigin: http://{}", server.address);
    assert_eq!(server.ask(&own).await.status, 204);
    // There is no TLS here, so a page that came by it is another's.
    assert_eq!(server.ask(&own.replace("http:", "https:")).await.status, 401);
    // A name that is allowed is not this machine.
    let server = Server::with(|wanted| wanted.settings.allow_hosts = vec!["chat.example".to_owned()]).await;
    assert_eq!(server.ask("GET /api/supr/token\nHost: chat.example").await.status, 401);
    assert_eq!(server.ask("GET /\nHost: chat.example").await.status, 200);
}

#[tokio::test]
async fn every_answer_tells_browsers_what_not_to_do() {
    let server = Server::start().await;
    for request in [
        "GET /",
        "GET /assets/index-0a1b2c.js",
        "GET /api/supr/token",
        "GET /nothing.txt",
        "GET /\nHost: evil.example",
        "GET /supr/ws",
    ] {
        let answer = server.ask(request).await;
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{request}");
        }
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[tokio::test]
async fn a_body_is_dropped_and_a_large_one_refused() {
    let server = Server::start().await;
    let ask = |size: usize| {
        let body = "x".repeat(size);
        let text = format!(
            "POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n{body}"
        );
        let address = server.address;
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(text.as_bytes()).await;
            Answer::read(&mut stream).await.status
        }
    };
    assert_eq!(ask(MAX_BODY_BYTES).await, 200);
    assert_eq!(ask(MAX_BODY_BYTES + 1).await, 413);
    // One that does not say how long it is.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    stream.write_all(format!("{head}{}", chunk.repeat(5)).as_bytes()).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
}

#[tokio::test]
async fn a_body_that_says_that_it_is_too_large_is_not_waited_for() {
    let server = Server::with(|wanted| wanted.settings.limits.body_wait = Duration::from_secs(3600)).await;
    let size = MAX_BODY_BYTES + 1;
    for more in ["", "\nExpect: 100-continue"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head =
            format!("POST /api/supr/setup HTTP/1.1\nHost: localhost\nContent-Length: {size}{more}\n\n");
        stream.write_all(head.replace('\n', "\r\n").as_bytes()).await.unwrap();
        let answer = Answer::read(&mut stream).await;
        answer.assert_text(413, &format!("a body has at most {MAX_BODY_BYTES} bytes"));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(closed(&mut stream).await, "");
    }
}

#[tokio::test]
async fn who_sends_too_much_before_it_reads_sees_the_answer_all_the_same() {
    let server = Server::start().await;
    let large = "x".repeat(200 * MAX_BODY_BYTES);
    let length = large.len();
    let whole = format!("Content-Length: {length}\r\n\r\n{large}");
    let pieces = format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{large}\r\n0\r\n\r\n");
    for body in [whole, pieces] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        // All of it is taken, which a connection that was cut off would not do.
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    }
}

#[tokio::test]
async fn who_never_ends_a_body_that_is_too_large_is_cut_off() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    assert_eq!(closed(&mut stream).await, "");
    assert!(begun.elapsed() < 2 * UNREAD_WAIT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn ids_that_are_no_text_are_refused_in_our_words() {
    let server = Server::start().await;
    for request in [
        "GET /api/sessions/%ff",
        "PATCH /api/sessions/a%C3\nContent-Length: 0",
        "DELETE /api/sessions/%80",
        "GET /api/sessions/%ff/events",
        "GET /api/media/%ff",
        "DELETE /api/processes/%ff",
    ] {
        server.ask(request).await.assert_text(400, "the id in the address is not UTF-8");
    }
    server.shake("/api/processes/%ff/ws", "").await.assert_text(401, "unauthorized");
    let known = server.shake("/api/processes/%ff/ws", &bearer()).await;
    known.assert_text(400, "the id in the address is not UTF-8");
    let known = server.shake("/supr/ws?session_id=%ff", &bearer()).await;
    known.assert_text(400, "session_id is not UTF-8");
    let long = format!("/supr/ws?session_id={}", "x".repeat(MAX_SESSION_ID_BYTES + 1));
    server.shake(&long, &bearer()).await.assert_text(400, "session_id is longer than 256 bytes");
    let long = format!("GET /api/sessions/{}", "x".repeat(4000));
    server.ask(&long).await.assert_text(404, "session not found");
}

#[tokio::test]
async fn heads_have_a_size_and_a_number_of_lines() {
    let server = Server::start().await;
    let fits = format!("GET /healthz\nX: {}", "x".repeat(MAX_HEADER_BYTES / 2));
    assert_eq!(server.ask(&fits).await.status, 200);
    let large = format!("GET /healthz\nX: {}", "x".repeat(MAX_HEADER_BYTES));
    assert_eq!(server.ask(&large).await.status, 431);
    let lines = |count: usize| (0..count).map(|n| format!("\nX-{n}: y")).collect::<String>();
    assert_eq!(server.ask(&format!("GET /healthz{}", lines(MAX_HEADERS - 1))).await.status, 200);
    assert_eq!(server.ask(&format!("GET /healthz{}", lines(MAX_HEADERS + 1))).await.status, 431);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    let server = Server::with(|wanted| wanted.settings.limits.body_wait = Duration::from_millis(50)).await;
    let answer = server.ask("POST /api/supr/setup\nContent-Length: 5").await;
    answer.assert_text(408, "the body did not arrive in time");
}

#[tokio::test]
async fn so_many_connections_speak_http_and_the_next_one_waits() {
    let server = Server::with(|wanted| wanted.settings.limits.http_connections.all = 1).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut first).await.status, 200);
    let mut second = std::pin::pin!(server.ask("GET /healthz"));
    // Whoever has a place is served while the other waits.
    first.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    tokio::select! {
        biased;
        answer = &mut second => panic!("it was served: {answer:?}"),
        answer = Answer::read(&mut first) => assert_eq!(answer.status, 200),
    }
    drop(first);
    assert_eq!(second.await.status, 200);
    // A socket takes no such place.
    let mut client = server.connect("").await;
    crate::support::text(&mut client).await;
    assert_eq!(server.ask("GET /healthz").await.status, 200);
}

/// Waits for the server to close the connection; what it says before is given back.
async fn closed(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn who_dribbles_or_says_nothing_is_not_waited_for() {
    let hasty = Server::with(|wanted| wanted.settings.limits.header_wait = Duration::from_millis(200)).await;
    let mut silent = TcpStream::connect(hasty.address).await.unwrap();
    let mut slow = TcpStream::connect(hasty.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut idle = TcpStream::connect(hasty.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(!closed(&mut silent).await.contains("200"));
    assert!(!closed(&mut slow).await.contains("200"));
    let said = closed(&mut idle).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.matches("HTTP/1.1").count() == 1, "{said}");
}

#[tokio::test]
async fn who_is_slow_within_the_limits_is_served() {
    let patient = Server::with(|wanted| {
        wanted.settings.limits.header_wait = Duration::from_secs(3600);
        wanted.settings.limits.connection_life = Duration::from_secs(3600);
    })
    .await;
    let mut stream = TcpStream::connect(patient.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 200);
    // Longer than anybody waits by default.
    tokio::time::pause();
    tokio::time::advance(2 * CONNECTION_LIFE).await;
    tokio::time::resume();
    stream.write_all(b"lth HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 200);
}

#[tokio::test]
async fn a_connection_that_never_ends_is_ended() {
    let server = Server::with(|wanted| {
        wanted.settings.limits.connection_life = Duration::from_millis(500);
        wanted.settings.limits.header_wait = Duration::from_secs(3600);
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(closed(&mut stream).await.contains("200"));
    // A socket is not.
    let mut client = server.connect("").await;
    crate::support::text(&mut client).await;
    let mut other = TcpStream::connect(server.address).await.unwrap();
    closed(&mut other).await;
    futures_util::SinkExt::send(&mut client, tokio_tungstenite::tungstenite::Message::text("here"))
        .await
        .unwrap();
    assert_eq!(crate::support::text(&mut client).await, "here");
}

#[tokio::test]
async fn what_is_no_http_does_no_harm() {
    let server = Server::start().await;
    for nonsense in
        [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/3.0\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(nonsense).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(!closed(&mut stream).await.contains("200"));
    }
    assert_eq!(server.ask("GET /healthz").await.status, 200);
}
