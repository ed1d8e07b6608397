//! Processes: the list, starting and ending them, and watching one over a socket.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use futures_util::{SinkExt, StreamExt};
use parlor_process::{MAX_TERMINALS, TERMINAL_BYTES, TERMINAL_INPUT_BYTES};
use parlor_transport::MAX_TERMINAL_SIDE;
use parlor_web::MAX_TYPED_BYTES;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::client::{Client, bearer, close};
use crate::server::{Server, TOKEN};

/// Prints `hello`, repeats each line that it reads, prints the size of its terminal when that changes, and ends with code 3
/// when it reads `exit`.
const ECHO: &str = "stty raw -echo; trap 'stty size' WINCH; printf hello; \
    while :; do if read -r line; then [ \"$line\" = exit ] && exit 3; printf 'got %s' \"$line\"; fi; done";

/// Never reads what is typed.
const DEAF: &str = "stty raw -echo; printf hello; exec sleep 600";

/// Starts a shell script on a terminal.
async fn start(server: &Server, script: &str) -> Value {
    let body = json!({"command": ["/bin/sh", "-c", script]}).to_string();
    let answer = server.request_with_body("POST /api/processes", &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

/// Starts a shell script and watches it until it has printed `hello`.
async fn watch_script(server: &Server, script: &str) -> Client {
    let started = start(server, script).await;
    let mut client = watch(server, started["id"].as_str().unwrap()).await.unwrap();
    expect_output(&mut client, "hello").await;
    client
}

async fn watch(server: &Server, id: &str) -> Result<Client, Error> {
    open(server, &format!("{id}/ws")).await
}

/// Watches a process from an offset on. Returns the offset that the server tells first, too.
async fn watch_after(server: &Server, id: &str, after: u64) -> (Client, u64) {
    let mut client = open(server, &format!("{id}/ws?after={after}")).await.unwrap();
    let message = client.next().await.unwrap().unwrap();
    let offset = told_offset(&message).unwrap_or_else(|| panic!("{message:?} comes before the offset"));
    (client, offset)
}

/// The offset in a message that tells the offset of the next output.
fn told_offset(message: &Message) -> Option<u64> {
    let Message::Text(text) = message else { return None };
    let message: Value = serde_json::from_str(text.as_str()).unwrap();
    assert_eq!(message["type"], "output", "{message}");
    message["offset"].as_u64()
}

async fn open(server: &Server, path: &str) -> Result<Client, Error> {
    let mut request = format!("ws://{}/api/processes/{path}", server.address).into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", format!("token.{TOKEN}").parse().unwrap());
    let stream = TcpStream::connect(server.address).await.unwrap();
    Ok(client_async(request, stream).await?.0)
}

/// Asserts that the next output is `expected`, in however many messages it comes.
async fn expect_output(client: &mut Client, expected: &str) {
    let mut output = Vec::new();
    while output.len() < expected.len() {
        let message = client.next().await.unwrap().unwrap();
        let Message::Binary(bytes) = &message else { panic!("{message:?} comes before {expected:?}") };
        output.extend_from_slice(bytes);
    }
    assert_eq!(String::from_utf8_lossy(&output), expected);
}

#[tokio::test]
async fn processes_are_listed_started_and_ended() {
    let server = Server::start().await;
    let pid = std::process::id();
    let script = "sleep 600";
    let started = start(&server, script).await;
    assert!(started["pid"].as_u64().is_some_and(|child| child > 0 && child != u64::from(pid)), "{started}");
    assert_eq!(
        server.request("GET /api/processes").await.json(),
        json!([{
            "id": format!("{pid}-1"), "name": "sh", "door": "supr", "pid": started["pid"],
            "command": ["/bin/sh", "-c", script], "tty": true, "running": true, "exit_code": null,
            "started": "2026-01-02T03:04:07.006Z", "cols": 80, "rows": 24, "here": true,
        }])
    );
    let started = server
        .request_with_body("POST /api/processes", r#"{"command":["ls","-l"],"cols":0,"rows":65535}"#)
        .await;
    assert_eq!(started.status, 201);
    let started = started.json();
    assert_eq!(started["command"], json!(["ls", "-l"]));
    assert_eq!((&started["cols"], &started["rows"]), (&1.into(), &MAX_TERMINAL_SIDE.into()));
    for (asked, made) in [("0", 1), ("1", 1), ("65536", 1000), ("7.0", 7), ("18446744073709551615", 1000)] {
        let body = format!(r#"{{"cols":{asked},"rows":{asked}}}"#);
        let started = server.request_with_body("POST /api/processes", &body).await.json();
        assert_eq!(json!([started["cols"], started["rows"]]), json!([made, made]), "{asked}");
        assert_eq!(started["command"], json!(["/bin/sh"]));
    }
    assert_eq!(server.request_with_body("POST /api/processes", "").await.json()["cols"], 80);
    for wrong in
        ["[]", r#"{"command":"ls"}"#, r#"{"cols":-1}"#, r#"{"rows":1.5}"#, r#"{"command":["ls","a\u0000"]}"#]
    {
        assert_eq!(server.request_with_body("POST /api/processes", wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(server.request(&format!("DELETE /api/processes/{pid}-1")).await.status, 204);
    for unknown in ["x".to_owned(), format!("{pid}-999")] {
        server
            .request(&format!("DELETE /api/processes/{unknown}"))
            .await
            .assert_text(404, "process not found");
    }
    let other = server.request("DELETE /api/processes/1-1").await;
    assert!(other.status == 403 && other.body.starts_with("process 1 has started it"), "{other:?}");
    // A client on another machine needs the token for all of this.
    for request in ["GET /api/processes", "POST /api/processes", "DELETE /api/processes/p"] {
        let remote = server.request_with_body(&format!("{request}\nX-Forwarded-For: 192.0.2.1"), "").await;
        assert_eq!(remote.status, 401, "{request}");
    }
}

#[tokio::test]
async fn a_process_that_cannot_or_may_not_start_is_refused() {
    let server = Server::start().await;
    let missing = server.request_with_body("POST /api/processes", r#"{"command":["no-such-program"]}"#).await;
    assert!(missing.status == 409 && missing.body.contains("no-such-program"), "{missing:?}");
    for _ in 0..MAX_TERMINALS {
        start(&server, "sleep 600").await;
    }
    assert_eq!(server.request_with_body("POST /api/processes", "").await.status, 409);
    let read_only = Server::with(|options| options.may_start = false).await;
    let refused = read_only.request_with_body("POST /api/processes", "").await;
    assert!(refused.status == 403 && refused.body.contains("allow_from"), "{refused:?}");
}

#[tokio::test]
async fn a_viewer_sees_output_types_resizes_and_gets_the_exit_code() {
    let server = Server::start().await;
    let mut client = watch_script(&server, ECHO).await;
    client.send(Message::binary(b"ls\n".to_vec())).await.unwrap();
    expect_output(&mut client, "got ls").await;
    client.send(Message::text(r#"{"type":"resize","cols":100,"rows":0}"#)).await.unwrap();
    expect_output(&mut client, "1 100\n").await;
    client.send(Message::text(r#"{"type":"resize","cols":70000,"rows":7}"#)).await.unwrap();
    expect_output(&mut client, "7 1000\n").await;
    client.send(Message::text(r#"{"type":"resize","cols":5.0,"rows":18446744073709551616}"#)).await.unwrap();
    expect_output(&mut client, "1000 5\n").await;
    client.send(Message::binary(b"exit\n".to_vec())).await.unwrap();
    let exited = client.next().await.unwrap().unwrap();
    assert_eq!(exited, Message::text(r#"{"type":"exited","exit_code":3}"#));
    assert_eq!(close(&mut client).await, Some((1000, String::new())));
}

#[tokio::test]
async fn a_viewer_resumes_after_an_offset() {
    let server = Server::start().await;
    let started = start(&server, ECHO).await;
    let id = started["id"].as_str().unwrap();
    let (mut client, offset) = watch_after(&server, id, 0).await;
    assert_eq!(offset, 0);
    expect_output(&mut client, "hello").await;
    client.send(Message::binary(b"one\n".to_vec())).await.unwrap();
    expect_output(&mut client, "got one").await;
    drop(client);
    // Somebody else sees all of it, and causes output that the first client has not seen.
    let mut other = watch(&server, id).await.unwrap();
    expect_output(&mut other, "hellogot one").await;
    other.send(Message::binary(b"two\n".to_vec())).await.unwrap();
    expect_output(&mut other, "got two").await;
    let seen = "hellogot one".len() as u64;
    let (mut client, offset) = watch_after(&server, id, seen).await;
    assert_eq!(offset, seen);
    expect_output(&mut client, "got two").await;
    // An offset beyond the end is clamped, and a client at the end gets new output only.
    let end = seen + "got two".len() as u64;
    for after in [end, end + 1, u64::MAX] {
        let (mut client, offset) = watch_after(&server, id, after).await;
        assert_eq!(offset, end, "{after}");
        drop(client.close(None).await);
    }
    let (mut late, _) = watch_after(&server, id, end).await;
    other.send(Message::binary(b"exit\n".to_vec())).await.unwrap();
    for client in [&mut client, &mut late] {
        let exited = client.next().await.unwrap().unwrap();
        assert_eq!(exited, Message::text(r#"{"type":"exited","exit_code":3}"#));
    }
    // The output of an ended process can be resumed too.
    let (mut client, offset) = watch_after(&server, id, 5).await;
    assert_eq!(offset, 5);
    expect_output(&mut client, "got onegot two").await;
}

#[tokio::test]
async fn a_viewer_that_resumes_too_late_sees_the_gap() {
    let server = Server::start().await;
    // Numbers, so that output from a wrong offset is not the expected one.
    let script = "stty raw -echo; printf hello; read -r line; seq -f %06.0f -s '' 60000; exec sleep 600";
    let started = start(&server, script).await;
    let id = started["id"].as_str().unwrap();
    let (mut client, _) = watch_after(&server, id, 0).await;
    expect_output(&mut client, "hello").await;
    drop(client);
    let mut other = watch(&server, id).await.unwrap();
    other.send(Message::binary(b"\n".to_vec())).await.unwrap();
    let mut shown = Vec::new();
    while !shown.ends_with(b"060000\n") {
        shown.extend(other.next().await.unwrap().unwrap().into_data());
    }
    let numbers: String = (1..=60000).map(|number| format!("{number:06}")).collect();
    let all = format!("hello{numbers}\n");
    let (_, kept) = all.split_at(all.len() - TERMINAL_BYTES);
    let (mut client, offset) = watch_after(&server, id, 5).await;
    assert_eq!(offset, (all.len() - TERMINAL_BYTES) as u64);
    expect_output(&mut client, kept).await;
}

#[tokio::test]
async fn an_offset_that_is_no_number_is_refused() {
    let server = Server::start().await;
    let started = start(&server, DEAF).await;
    let id = started["id"].as_str().unwrap();
    for after in ["", "x", "-1", "1.5", "%20", "%ff", "18446744073709551616"] {
        let path = format!("/api/processes/{id}/ws?after={after}");
        let answer = server.handshake(&path, &bearer()).await;
        assert!(answer.status == 400 && answer.body.starts_with("after is a whole number"), "{answer:?}");
    }
    server.handshake(&format!("/api/processes/{id}/ws?after=x"), "").await.assert_text(401, "unauthorized");
}

#[tokio::test]
async fn an_invalid_message_closes_the_socket() {
    let server = Server::start().await;
    for message in [Message::text("ls"), Message::text(r#"{"type":"resize","cols":-1,"rows":1}"#)] {
        let mut client = watch_script(&server, DEAF).await;
        client.send(message).await.unwrap();
        assert_eq!(close(&mut client).await.unwrap().0, 1007);
    }
    // A program that reads nothing: at some point its input is full.
    let mut client = watch_script(&server, DEAF).await;
    client.send(Message::binary(vec![b'x'; TERMINAL_INPUT_BYTES])).await.unwrap();
    // The kernel takes some of it for the terminal, and no more than this.
    client.send(Message::binary(vec![b'x'; TERMINAL_INPUT_BYTES / 2])).await.unwrap();
    let (code, reason) = close(&mut client).await.unwrap();
    assert!(code == 1008 && reason.contains("1 MiB of earlier input"), "{code} {reason}");
    let count = format!("stty raw -echo; printf hello; head -c {MAX_TYPED_BYTES} | wc -c");
    let mut client = watch_script(&server, &count).await;
    client.send(Message::binary(vec![b'x'; MAX_TYPED_BYTES])).await.unwrap();
    expect_output(&mut client, &format!("{MAX_TYPED_BYTES}\n")).await;
    let mut client = watch_script(&server, DEAF).await;
    let _ = client.send(Message::binary(vec![b'x'; MAX_TYPED_BYTES + 1])).await;
    assert_eq!(close(&mut client).await, None);
}

#[tokio::test]
async fn watching_needs_the_token_and_a_free_slot() {
    let server = Server::with(|options| options.settings.max_connections = 1).await;
    let started = start(&server, DEAF).await;
    let path = format!("/api/processes/{}/ws", started["id"].as_str().unwrap());
    server.handshake(&path, "").await.assert_text(401, "unauthorized");
    server.handshake("/api/processes/x/ws", &bearer()).await.assert_text(404, "process not found");
    // A browser on another machine can send the token only as a subprotocol.
    let remote =
        format!("X-Forwarded-For: 192.0.2.1\nSec-WebSocket-Protocol: token.{TOKEN}\nConnection: Upgrade");
    let other = Server::start().await;
    let other_started = start(&other, DEAF).await;
    let other_path = format!("/api/processes/{}/ws", other_started["id"].as_str().unwrap());
    assert_eq!(other.handshake(&other_path, &remote).await.status, 101);
    let mut first = watch(&server, started["id"].as_str().unwrap()).await.unwrap();
    expect_output(&mut first, "hello").await;
    server.handshake(&path, &bearer()).await.assert_text(503, "too many connections");
    server.stop.cancel();
    assert_eq!(close(&mut first).await.unwrap().0, 1001);
}
