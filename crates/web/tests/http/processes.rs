//! Processes: the list, starting and ending, and looking on over a socket.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use futures_util::{SinkExt, StreamExt};
use parlor_transport::MAX_TERMINAL_SIDE;
use parlor_web::MAX_TYPED_BYTES;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::{Client, Server, TOKEN, bearer, close};

async fn look(server: &Server, id: &str) -> Result<Client, Error> {
    let mut request = format!("ws://{}/api/processes/{id}/ws", server.address).into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", format!("token.{TOKEN}").parse().unwrap());
    let stream = TcpStream::connect(server.address).await.unwrap();
    Ok(client_async(request, stream).await?.0)
}

async fn shown(client: &mut Client) -> Message {
    client.next().await.unwrap().unwrap()
}

#[tokio::test]
async fn processes_are_listed_started_and_ended() {
    let server = Server::start().await;
    let list = server.ask("GET /api/processes").await.json();
    assert_eq!(
        list,
        json!([{
            "id": "p", "name": "sh", "door": "supr", "pid": 7, "command": ["sh"], "tty": true, "running": true,
            "exit_code": null, "started": "2026-01-02T03:04:05.006Z", "cols": 80, "rows": 24, "here": true,
        }])
    );
    let started =
        server.tell("POST /api/processes", r#"{"command":["ls","-l"],"cols":0,"rows":65535}"#).await;
    assert_eq!(started.status, 201);
    let started = started.json();
    assert_eq!(started["command"], json!(["ls", "-l"]));
    assert_eq!((&started["cols"], &started["rows"]), (&1.into(), &MAX_TERMINAL_SIDE.into()));
    for (asked, made) in [("0", 1), ("1", 1), ("65536", 1000), ("18446744073709551615", 1000)] {
        let body = format!(r#"{{"cols":{asked},"rows":{asked}}}"#);
        let line = server.tell("POST /api/processes", &body).await.json();
        assert_eq!(json!([line["cols"], line["rows"]]), json!([made, made]), "{asked}");
    }
    assert_eq!(server.tell("POST /api/processes", "").await.json()["cols"], 80);
    for (program, status) in [("none", 400), ("many", 409), ("forbidden", 403)] {
        let answer = server.tell("POST /api/processes", &format!(r#"{{"command":["{program}"]}}"#)).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    for wrong in ["[]", r#"{"command":"ls"}"#, r#"{"cols":-1}"#] {
        assert_eq!(server.tell("POST /api/processes", wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(server.ask("DELETE /api/processes/p").await.status, 204);
    server.ask("DELETE /api/processes/x").await.assert_text(404, "process not found");
    // From elsewhere nothing of this goes without the token.
    for request in ["GET /api/processes", "POST /api/processes", "DELETE /api/processes/p"] {
        let far = server.tell(&format!("{request}\nX-Forwarded-For: 192.0.2.1"), "").await;
        assert_eq!(far.status, 401, "{request}");
    }
}

#[tokio::test]
async fn who_looks_on_sees_types_and_is_told_the_end() {
    let server = Server::start().await;
    let mut client = look(&server, "p").await.unwrap();
    assert_eq!(shown(&mut client).await, Message::binary(b"hello".to_vec()));
    client.send(Message::binary(b"ls\r".to_vec())).await.unwrap();
    assert_eq!(shown(&mut client).await, Message::binary(b"ls\r".to_vec()));
    client.send(Message::text(r#"{"type":"resize","cols":100,"rows":0}"#)).await.unwrap();
    assert_eq!(shown(&mut client).await, Message::binary(b"100 by 1".to_vec()));
    client.send(Message::text(r#"{"type":"resize","cols":70000,"rows":7}"#)).await.unwrap();
    assert_eq!(shown(&mut client).await, Message::binary(b"1000 by 7".to_vec()));
    client.send(Message::binary(b"exit".to_vec())).await.unwrap();
    assert_eq!(shown(&mut client).await, Message::text(r#"{"type":"exited","exit_code":3}"#));
    assert_eq!(close(&mut client).await, Some((1000, String::new())));
}

#[tokio::test]
async fn what_cannot_be_meant_ends_the_looking() {
    let server = Server::start().await;
    for (message, code) in [
        (Message::text("ls"), 1007),
        (Message::text(r#"{"type":"resize","cols":-1,"rows":1}"#), 1007),
        (Message::binary(b"deaf".to_vec()), 1008),
    ] {
        let mut client = look(&server, "p").await.unwrap();
        client.send(message).await.unwrap();
        assert_eq!(close(&mut client).await.unwrap().0, code);
    }
    let mut client = look(&server, "p").await.unwrap();
    client.send(Message::binary(vec![b'x'; MAX_TYPED_BYTES])).await.unwrap();
    shown(&mut client).await;
    assert_eq!(shown(&mut client).await.len(), MAX_TYPED_BYTES);
    let _ = client.send(Message::binary(vec![b'x'; MAX_TYPED_BYTES + 1])).await;
    assert_eq!(close(&mut client).await, None);
}

#[tokio::test]
async fn looking_on_needs_the_token_and_a_place() {
    let server = Server::with(|wanted| wanted.settings.max_connections = 1).await;
    server.shake("/api/processes/p/ws", "").await.assert_text(401, "unauthorized");
    server.shake("/api/processes/x/ws", &bearer()).await.assert_text(404, "process not found");
    // A browser elsewhere has no way to send the token but this.
    let far =
        format!("X-Forwarded-For: 192.0.2.1\nSec-WebSocket-Protocol: token.{TOKEN}\nConnection: Upgrade");
    let other = Server::start().await;
    assert_eq!(other.shake("/api/processes/p/ws", &far).await.status, 101);
    let mut first = look(&server, "p").await.unwrap();
    shown(&mut first).await;
    server.shake("/api/processes/p/ws", &bearer()).await.assert_text(503, "too many connections");
    server.stop.cancel();
    assert_eq!(close(&mut first).await.unwrap().0, 1001);
}
