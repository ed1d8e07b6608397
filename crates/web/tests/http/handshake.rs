//! Which handshakes are accepted, and how the others are refused, in the order of the checks.

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, bearer, frame, frame_with, greeting, handshake, send_message};
use crate::server::{Server, TOKEN};

#[tokio::test]
async fn a_handshake_without_or_with_a_wrong_token_is_refused() {
    let server = Server::start().await;
    for headers in
        ["", "Authorization: Bearer wrong", "Sec-WebSocket-Protocol: token.wrong", "Authorization: Basic x"]
    {
        let answer = server.handshake("/supr/ws", headers).await;
        answer.assert_text(401, "unauthorized");
        assert_eq!(answer.header("www-authenticate"), None);
    }
}

#[tokio::test]
async fn a_token_in_the_header_is_accepted_and_not_echoed() {
    let server = Server::start().await;
    let answer = server.handshake("/supr/ws", &bearer()).await;
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(answer.header("sec-websocket-protocol"), None);
    assert_eq!(answer.header("sec-websocket-extensions"), None);
}

#[tokio::test]
async fn a_token_in_the_subprotocol_is_accepted_and_echoed_alone() {
    let server = Server::start().await;
    let offered = format!("Sec-WebSocket-Protocol: foo, token.{TOKEN}, bar");
    for headers in
        [offered.clone(), format!("{offered}\n{}", bearer()), format!("{offered}\nAuthorization: Bearer no")]
    {
        let answer = server.handshake("/supr/ws", &headers).await;
        assert_eq!(answer.status, 101);
        assert_eq!(answer.header("sec-websocket-protocol"), Some(format!("token.{TOKEN}").as_str()));
    }
    let other = format!("Sec-WebSocket-Protocol: token.bad\n{}", bearer());
    let answer = server.handshake("/supr/ws", &other).await;
    assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, None));
}

#[tokio::test]
async fn a_token_in_the_query_is_accepted_only_if_that_is_allowed() {
    let path = format!("/supr/ws?token={TOKEN}");
    Server::start().await.handshake(&path, "").await.assert_text(401, "unauthorized");
    let server = Server::with(|options| options.settings.allow_token_query = true).await;
    let answer = server.handshake(&path, "").await;
    assert_eq!((answer.status, answer.header("sec-websocket-protocol")), (101, None));
    server
        .handshake(&format!("/supr/ws?token=wrong&token={TOKEN}"), "")
        .await
        .assert_text(401, "unauthorized");
}

#[tokio::test]
async fn the_token_is_checked_before_the_origin_and_the_upgrade() {
    let server =
        Server::with(|options| options.configured.allow_origins = vec!["http://a:1".to_owned()]).await;
    server
        .handshake("/supr/ws", "Origin: http://a:2\nAuthorization: Bearer no")
        .await
        .assert_text(401, "unauthorized");
    server.request("POST /supr/ws").await.assert_text(401, "unauthorized");
    for (origin, status) in [
        ("\nOrigin: http://a:1", 101),
        ("\nOrigin: http://a:2", 403),
        ("", 403),
        ("\nOrigin: HTTP://a:1", 403),
    ] {
        let answer = server.handshake("/supr/ws", &format!("{}{origin}", bearer())).await;
        assert_eq!(answer.status, status, "{origin}");
        if status == 403 {
            answer.assert_text(403, "Forbidden");
        }
    }
}

#[tokio::test]
async fn the_acp_door_needs_the_token_a_listed_origin_and_the_right_to_send() {
    let server =
        Server::with(|options| options.configured.allow_origins = vec!["http://a:1".to_owned()]).await;
    for (headers, status) in [
        (String::new(), 401),
        ("Authorization: Bearer no".to_owned(), 401),
        (format!("{}\nOrigin: http://a:2", bearer()), 403),
        (format!("{}\nOrigin: http://a:1", bearer()), 101),
    ] {
        assert_eq!(server.handshake("/acp", &headers).await.status, status, "{headers}");
    }
    let read_only = Server::with(|options| options.settings.may_send = false).await;
    assert_eq!(read_only.handshake("/acp", &bearer()).await.status, 403);
}

#[tokio::test]
async fn an_invalid_handshake_fails_at_its_first_mistake() {
    let server =
        Server::with(|options| options.configured.allow_origins = vec!["http://a:1".to_owned()]).await;
    let bearer = bearer();
    let good = handshake("/supr/ws", &format!("{bearer}\nOrigin: http://a:1"));
    assert_eq!(server.request(&good).await.status, 101);
    let answer = server.request(&format!("GET /supr/ws\n{bearer}")).await;
    answer.assert_text(400, "Bad Request");
    assert_eq!(answer.header("sec-websocket-version"), Some("13"));
    // A wrong method, version, origin and key at once: correcting one shows the next.
    let mut request =
        good.replace("GET", "POST").replace(": 13", ": 12").replace("a:1", "a:2").replace("==", "");
    server.request(&request).await.assert_text(405, "Method Not Allowed");
    request = request.replace("POST", "GET");
    let answer = server.request(&request).await;
    answer.assert_text(400, "Bad Request");
    assert_eq!(answer.header("sec-websocket-version"), None);
    request = request.replace(": 12", ": 13");
    server.request(&request).await.assert_text(403, "Forbidden");
    request = request.replace("a:2", "a:1");
    server.request(&request).await.assert_text(400, "Bad Request");
    let refused = server.request(&format!("GET /metrics\n{bearer}")).await.body;
    for line in ["no_upgrade\"} 1", "method\"} 1", "version\"} 1", "origin\"} 1", "key\"} 1"] {
        assert!(refused.contains(line), "{line} is not in\n{refused}");
    }
}

#[tokio::test]
async fn the_door_has_these_paths_and_no_others() {
    let server = Server::start().await;
    for path in ["/supr/ws", "/supr/ws/", "/pico/ws"] {
        assert_eq!(server.handshake(path, &bearer()).await.status, 101, "{path}");
    }
    for path in ["/supr/xyz", "/supr", "/supr/ws/x", "/pico/wsx"] {
        server.handshake(path, &bearer()).await.assert_text(404, "404 page not found");
    }
    let off = Server::with(|options| options.settings.is_enabled = false).await;
    off.handshake("/supr/ws", &bearer()).await.assert_text(404, "404 page not found");
}

/// The session of a socket with this query, as the server names it in the events of a run.
async fn session_of(server: &Server, query: &str) -> String {
    let mut client = server.connect(query).await;
    greeting(&mut client).await;
    send_message(&mut client, "x").await;
    let started = frame_with(&mut client, "event_type", "run.started").await;
    started["session_id"].as_str().expect("an event names its session").to_owned()
}

#[tokio::test]
async fn a_session_has_the_id_that_the_client_sends_or_a_new_one() {
    let server = Server::start().await;
    let session = "%20A%2FB%00%C3%A9%26+x";
    assert_eq!(session_of(&server, &format!("session_id={session}")).await, " A/B\0é& x");
    assert_eq!(session_of(&server, "").await, "00000000-0000-4000-8000-000000000001");
    assert_eq!(session_of(&server, "session_id=").await, "00000000-0000-4000-8000-000000000002");
    let long = "x".repeat(256);
    assert_eq!(session_of(&server, &format!("session_id={long}")).await, long);
    let answer = server.handshake(&format!("/supr/ws?session_id={long}x"), &bearer()).await;
    answer.assert_text(400, "session_id is longer than 256 bytes");
    let answer = server.handshake(&format!("/supr/ws?session_id={long}x"), "").await;
    answer.assert_text(401, "unauthorized");
    server.handshake("/supr/ws?session_id=%ff", &bearer()).await.assert_text(400, "session_id is not UTF-8");
}

/// The ids of the events that a new socket with this query gets, before the answer to a ping.
async fn replayed(server: &Server, query: &str) -> Vec<String> {
    let mut client = server.connect(query).await;
    greeting(&mut client).await;
    let mut events = Vec::new();
    // The first ping may overtake the replay, whose end no frame marks. The run of a message comes after it.
    send_message(&mut client, "again").await;
    loop {
        let frame = frame(&mut client).await;
        match frame["event_type"].as_str() {
            Some("run.started") if frame["replay"] != true => return events,
            Some(_) => events.push(frame["event_id"].as_str().expect("an event has an id").to_owned()),
            None => {}
        }
    }
}

/// Sends a message and returns the ids of the events until its run has ended.
async fn events_of_run(client: &mut Client) -> Vec<String> {
    send_message(client, "x").await;
    let mut events = Vec::new();
    loop {
        let frame = frame(client).await;
        events.extend(frame["event_id"].as_str().map(str::to_owned));
        if frame["event_type"] == "run.completed" {
            return events;
        }
    }
}

#[tokio::test]
async fn the_query_selects_what_is_replayed() {
    let server = Server::start().await;
    let run = async |session: &str| {
        let mut client = server.connect(&format!("session_id={session}")).await;
        greeting(&mut client).await;
        events_of_run(&mut client).await
    };
    let all = run("whole").await;
    assert_eq!(replayed(&server, "session_id=whole&last_event_id=").await, all);
    let all = run("part").await;
    assert_eq!(replayed(&server, &format!("session_id=part&after={}", all[0])).await, all[1..]);
    run("none").await;
    assert!(replayed(&server, "session_id=none").await.is_empty());
}

#[tokio::test]
async fn the_query_selects_which_other_sessions_are_watched() {
    let server = Server::start().await;
    let mut watching = server.connect("session_id=a&watch=one&watch=two").await;
    greeting(&mut watching).await;
    for session in ["one", "unwatched", "two"] {
        session_of(&server, &format!("session_id={session}")).await;
    }
    for session in ["one", "two"] {
        let started = frame_with(&mut watching, "event_type", "run.started").await;
        assert_eq!(started["session_id"], session);
    }
    let many: String = (0..17).map(|n| format!("&watch={n}")).collect();
    let answer = server.handshake(&format!("/supr/ws?x{many}"), &bearer()).await;
    answer.assert_text(400, "watch occurs more than 16 times");
}

#[tokio::test]
async fn runs_belong_to_the_trace_of_the_handshake() {
    let server = Server::start().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (parent, expected) in [
        (format!("00-{trace}-00f067aa0ba902b7-01"), Value::from(trace)),
        ("nonsense".to_owned(), Value::Null),
    ] {
        let mut client = server.connect_with("", &[("traceparent", &parent)]).await.unwrap();
        greeting(&mut client).await;
        send_message(&mut client, "x").await;
        let started = frame_with(&mut client, "event_type", "run.started").await;
        assert_eq!(started["trace_id"], expected, "{started}");
    }
}

#[tokio::test]
async fn a_read_only_client_gets_no_answer_to_its_messages() {
    let server = Server::with(|options| options.settings.may_send = false).await;
    let mut client = server.connect("session_id=a").await;
    greeting(&mut client).await;
    send_message(&mut client, "x").await;
    client.send(Message::text(json!({"type": "ping"}).to_string())).await.unwrap();
    assert_eq!(frame(&mut client).await["type"], "pong");
    server.request("GET /api/sessions/a").await.assert_text(404, "session not found");
}

#[tokio::test]
async fn clients_that_may_only_read_cannot_answer_questions_or_undo_runs() {
    let server = Server::with(|options| options.settings.may_send = false).await;
    let allow_from = "allow_from in [channels.supr] lets clients only read";
    for path in ["questions/q/answer", "runs/r/undo"] {
        let request = format!("POST /api/sessions/a/{path}\n{}", bearer());
        server.request(&request).await.assert_text(403, allow_from);
    }
    let mode = format!("PUT /api/sessions/a/mode\n{}", bearer());
    server.request(&mode).await.assert_text(403, allow_from);
}

#[tokio::test]
async fn a_frame_right_behind_the_handshake_is_not_lost() {
    use tokio::io::AsyncWriteExt;
    use tokio_tungstenite::tungstenite::protocol::Role;
    let server = Server::start().await;
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request = handshake("/supr/ws", &bearer()).replacen('\n', " HTTP/1.1\n", 1).replace('\n', "\r\n");
    let mut bytes = format!("{request}\r\nHost: {}\r\n\r\n", server.address).into_bytes();
    // A ping of the supr door as a text frame, masked with zeros.
    let ping = br#"{"type":"ping","id":"early"}"#;
    bytes.extend_from_slice(&[0x81, 0x80 | ping.len() as u8, 0, 0, 0, 0]);
    bytes.extend_from_slice(ping);
    stream.write_all(&bytes).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap());
    }
    let mut client = Client::from_raw_socket(stream, Role::Client, None).await;
    greeting(&mut client).await;
    assert_eq!(frame_with(&mut client, "type", "pong").await["id"], "early");
}
