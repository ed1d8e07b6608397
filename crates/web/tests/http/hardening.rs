//! Requests that the server refuses before a handler sees them, and clients that are slow or send too much.

use std::time::Duration;

use parlor_doors::supr::MAX_SESSION_ID_BYTES;
use parlor_web::{CONNECTION_LIFE, MAX_BODY_BYTES, MAX_HEADER_BYTES, MAX_HEADERS, UNREAD_WAIT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Answer, bearer, greeting, handshake, ping};
use crate::server::Server;

#[tokio::test]
async fn a_request_for_another_host_is_refused() {
    let server = Server::with(|options| options.settings.allow_hosts = vec!["chat.example".to_owned()]).await;
    for host in ["evil.example", "evil.example:18790", "localhost.evil.example", "192.0.2.1"] {
        for request in
            ["GET /api/supr/token", "GET /", "GET /healthz", "POST /api/supr/token\nContent-Length: 0"]
        {
            let answer = server.request(&format!("{request}\nHost: {host}\n{}", bearer())).await;
            assert_eq!(answer.status, 403, "{host} {request}");
            assert!(answer.body.contains("allow_hosts"), "{}", answer.body);
        }
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:18790", "chat.example"] {
        assert_eq!(server.request(&format!("GET /healthz\nHost: {host}")).await.status, 200, "{host}");
    }
    assert_eq!(server.request("GET http://evil.example/healthz\nHost: localhost").await.status, 403);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 400);
}

#[tokio::test]
async fn a_second_security_header_of_a_kind_is_refused() {
    let server = Server::start().await;
    for header in ["Host: localhost", "Origin: http://localhost", "Sec-Fetch-Site: same-origin"] {
        let name = header.split(':').next().unwrap().to_lowercase();
        // A request without `Host` gets one.
        let headers =
            if name == "host" { format!("Host: localhost\n{header}") } else { format!("{header}\n{header}") };
        for request in
            ["GET /api/sessions", &handshake("/supr/ws", ""), &handshake("/api/processes/1/ws", "")]
        {
            let answer = server.request(&format!("{request}\n{headers}\n{}", bearer())).await;
            assert_eq!(answer.status, 400, "{request} {headers}");
            assert!(answer.body.contains(&name), "{request} {}", answer.body);
        }
    }
}

#[tokio::test]
async fn a_page_of_another_site_needs_the_token() {
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
            let answer = server.request(&format!("{request}\n{header}")).await;
            assert_eq!(
                (answer.status, answer.header("www-authenticate")),
                (401, Some("Bearer")),
                "{header} {request}"
            );
            assert!(answer.body.contains("parlor token"), "{}", answer.body);
        }
        let known = server.request(&format!("GET /api/sessions\n{header}\n{}", bearer())).await;
        assert_eq!(known.status, 200, "{header}");
    }
    let own = format!("DELETE /api/sessions/c\nOrigin: http://{}", server.address);
    assert_eq!(server.request(&own).await.status, 204);
    // The server speaks no TLS, so a page from an https origin belongs to another site.
    assert_eq!(server.request(&own.replace("http:", "https:")).await.status, 401);
    // A request for a listed name does not count as local.
    let server = Server::with(|options| options.settings.allow_hosts = vec!["chat.example".to_owned()]).await;
    assert_eq!(server.request("GET /api/supr/token\nHost: chat.example").await.status, 401);
    assert_eq!(server.request("GET /\nHost: chat.example").await.status, 200);
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let server = Server::start().await;
    for request in [
        "GET /",
        "GET /assets/index-0a1b2c.js",
        "GET /api/supr/token",
        "GET /nothing.txt",
        "GET /\nHost: evil.example",
        "GET /supr/ws",
    ] {
        let answer = server.request(request).await;
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
async fn a_body_is_ignored_and_a_large_one_refused() {
    let server = Server::start().await;
    let post = |size: usize| {
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
    assert_eq!(post(MAX_BODY_BYTES).await, 200);
    assert_eq!(post(MAX_BODY_BYTES + 1).await, 413);
    // A body without `Content-Length`.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    stream.write_all(format!("{head}{}", chunk.repeat(5)).as_bytes()).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
}

#[tokio::test]
async fn a_body_with_too_large_a_length_is_refused_at_once() {
    let server = Server::with(|options| options.settings.limits.body_wait = Duration::from_secs(3600)).await;
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
async fn a_client_that_sends_too_much_before_it_reads_still_gets_the_response() {
    let server = Server::start().await;
    let large = "x".repeat(200 * MAX_BODY_BYTES);
    let length = large.len();
    let whole = format!("Content-Length: {length}\r\n\r\n{large}");
    let pieces = format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{large}\r\n0\r\n\r\n");
    for body in [whole, pieces] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"POST /api/supr/setup HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        // The server reads the whole body; on a connection that it had reset, this write would fail.
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    }
}

#[tokio::test]
async fn a_client_that_never_ends_too_large_a_body_is_disconnected() {
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
async fn ids_that_are_not_utf8_are_refused() {
    let server = Server::start().await;
    for request in [
        "GET /api/sessions/%ff",
        "PATCH /api/sessions/a%C3\nContent-Length: 0",
        "DELETE /api/sessions/%80",
        "GET /api/sessions/%ff/events",
        "GET /api/media/%ff",
        "DELETE /api/processes/%ff",
    ] {
        server.request(request).await.assert_text(400, "the id in the address is not UTF-8");
    }
    server.handshake("/api/processes/%ff/ws", "").await.assert_text(401, "unauthorized");
    let known = server.handshake("/api/processes/%ff/ws", &bearer()).await;
    known.assert_text(400, "the id in the address is not UTF-8");
    let known = server.handshake("/supr/ws?session_id=%ff", &bearer()).await;
    known.assert_text(400, "session_id is not UTF-8");
    let long = format!("/supr/ws?session_id={}", "x".repeat(MAX_SESSION_ID_BYTES + 1));
    server.handshake(&long, &bearer()).await.assert_text(400, "session_id is longer than 256 bytes");
    let long = format!("GET /api/sessions/{}", "x".repeat(4000));
    server.request(&long).await.assert_text(404, "session not found");
}

#[tokio::test]
async fn the_head_of_a_request_has_a_maximum_size_and_number_of_headers() {
    let server = Server::start().await;
    let fits = format!("GET /healthz\nX: {}", "x".repeat(MAX_HEADER_BYTES / 2));
    assert_eq!(server.request(&fits).await.status, 200);
    let large = format!("GET /healthz\nX: {}", "x".repeat(MAX_HEADER_BYTES));
    assert_eq!(server.request(&large).await.status, 431);
    let lines = |count: usize| (0..count).map(|n| format!("\nX-{n}: y")).collect::<String>();
    assert_eq!(server.request(&format!("GET /healthz{}", lines(MAX_HEADERS - 1))).await.status, 200);
    assert_eq!(server.request(&format!("GET /healthz{}", lines(MAX_HEADERS + 1))).await.status, 431);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_refused() {
    let server = Server::with(|options| options.settings.limits.body_wait = Duration::from_millis(50)).await;
    let answer = server.request("POST /api/supr/setup\nContent-Length: 5").await;
    answer.assert_text(408, "the body did not arrive in time");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_free_one() {
    let server = Server::with(|options| options.settings.limits.http_connections.all = 1).await;
    let first = server.busy_connection().await;
    let mut second = std::pin::pin!(server.request("GET /healthz"));
    tokio::select! {
        biased;
        answer = &mut second => panic!("the second was served: {answer:?}"),
        () = tokio::task::yield_now() => {}
    }
    drop(first);
    assert_eq!(second.await.status, 200);
    // An open WebSocket does not count.
    let mut client = server.connect("").await;
    greeting(&mut client).await;
    assert_eq!(server.request("GET /healthz").await.status, 200);
}

#[tokio::test]
async fn half_sent_heads_make_room_for_new_connections() {
    let server = Server::with(|options| {
        options.settings.limits.header_wait = Duration::from_secs(3600);
        options.settings.limits.http_connections.all = 4;
    })
    .await;
    let busy = server.busy_connection().await;
    let mut half_sent = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: local").await.unwrap();
        half_sent.push(stream);
    }
    assert_eq!(server.request("GET /health").await.status, 200);
    // Those that have waited longest were closed: three for the later ones, and one for the request.
    for (number, stream) in half_sent.iter_mut().enumerate() {
        if number < 4 {
            assert_eq!(closed(stream).await, "");
        } else {
            stream.write_all(b"host\r\n\r\n").await.unwrap();
            assert_eq!(Answer::read(stream).await.status, 200);
        }
    }
    drop(busy);
}

#[tokio::test]
async fn half_sent_bodies_make_room_for_new_connections() {
    let server = Server::with(|options| {
        options.settings.limits.body_wait = Duration::from_secs(3600);
        options.settings.limits.http_connections.all = 3;
    })
    .await;
    let mut half_sent = Vec::new();
    for _ in 0..5 {
        half_sent.push(server.half_sent_body().await);
    }
    assert_eq!(server.request("GET /health").await.status, 200);
    for (number, stream) in half_sent.iter_mut().enumerate() {
        if number < 3 {
            assert_eq!(closed(stream).await, "");
        } else {
            stream.write_all(b"{}").await.unwrap();
            assert_eq!(Answer::read(stream).await.status, 200);
        }
    }
}

/// A client that reads no answers does not keep its connections for itself.
#[tokio::test]
async fn unread_answers_make_room_for_new_connections() {
    let server = Server::with(|options| {
        options.settings.limits.http_connections.all = 4;
        options.settings.limits.write_wait = Duration::from_secs(3600);
    })
    .await;
    let requests = "GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(500);
    let mut unread = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (mut stream, requests) = (TcpStream::connect(server.address).await.unwrap(), requests.clone());
        unread.spawn(async move {
            // The server stops reading when its answers are not read.
            let _ = stream.write_all(requests.as_bytes()).await;
            std::future::pending::<()>().await;
        });
    }
    for _ in 0..100 {
        assert_eq!(server.request("GET /health").await.status, 200);
    }
}

/// Reads until the server closes the connection.
async fn closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn silent_and_slow_connections_are_closed() {
    let impatient =
        Server::with(|options| options.settings.limits.header_wait = Duration::from_millis(200)).await;
    let mut silent = TcpStream::connect(impatient.address).await.unwrap();
    let mut slow = TcpStream::connect(impatient.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut idle = TcpStream::connect(impatient.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(!closed(&mut silent).await.contains("200"));
    assert!(!closed(&mut slow).await.contains("200"));
    let response = closed(&mut idle).await;
    let responses = response.matches("HTTP/1.1").count();
    assert!(response.starts_with("HTTP/1.1 200") && responses == 1, "{response}");
}

#[tokio::test]
async fn a_slow_client_within_the_limits_is_served() {
    let patient = Server::with(|options| {
        options.settings.limits.header_wait = Duration::from_secs(3600);
        options.settings.limits.connection_life = Duration::from_secs(3600);
    })
    .await;
    let mut stream = TcpStream::connect(patient.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 200);
    // Longer than the default limits.
    tokio::time::pause();
    tokio::time::advance(2 * CONNECTION_LIFE).await;
    tokio::time::resume();
    stream.write_all(b"lth HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 200);
}

#[tokio::test]
async fn a_connection_has_a_maximum_life_and_a_socket_has_not() {
    let server = Server::with(|options| {
        options.settings.limits.connection_life = Duration::from_millis(500);
        options.settings.limits.header_wait = Duration::from_secs(3600);
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(closed(&mut stream).await.contains("200"));
    let mut client = server.connect("").await;
    greeting(&mut client).await;
    let mut other = TcpStream::connect(server.address).await.unwrap();
    closed(&mut other).await;
    ping(&mut client).await;
}

#[tokio::test]
async fn input_that_is_not_http_does_no_harm() {
    let server = Server::start().await;
    for nonsense in
        [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/3.0\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(nonsense).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(!closed(&mut stream).await.contains("200"));
    }
    assert_eq!(server.request("GET /healthz").await.status, 200);
}
