//! The ACP door on a WebSocket of `parlor serve`.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::frames::text;
use crate::home::Home;
use crate::server::TOKEN;
use crate::supr::serve;
use crate::terminal::TIMEOUT;

struct Editor {
    socket: WebSocketStream<TcpStream>,
    requests: u64,
}

impl Editor {
    async fn connect(address: SocketAddr, token: &str) -> Result<Self, Error> {
        let mut request = format!("ws://{address}/acp").into_client_request()?;
        request.headers_mut().insert("Authorization", format!("Bearer {token}").parse().unwrap());
        let stream = TcpStream::connect(address).await?;
        let (socket, response) = timeout(TIMEOUT, client_async(request, stream)).await.expect("an answer")?;
        assert!(response.headers().contains_key("acp-connection-id"), "{response:?}");
        Ok(Self { socket, requests: 0 })
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).await.unwrap();
        self.requests
    }

    async fn next(&mut self) -> Value {
        loop {
            let message = timeout(TIMEOUT, self.socket.next()).await.expect("a frame");
            if let Message::Text(text) = message.expect("the socket is open").unwrap() {
                return serde_json::from_str(text.as_str()).unwrap();
            }
        }
    }

    /// Waits for an answer. Returns the text of the agent before it, and the answer.
    async fn answer(&mut self, id: u64) -> (String, Value) {
        let mut said = String::new();
        loop {
            let frame = self.next().await;
            if frame["id"] == id {
                return (said, frame);
            }
            if frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
                said.push_str(&text(&frame["params"]["update"]["content"]["text"]));
            }
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> (String, Value) {
        let id = self.send(method, params).await;
        self.answer(id).await
    }
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

#[tokio::test]
async fn a_run_outlives_its_connection_and_is_loaded_by_the_next_one() {
    let home = Home::new();
    let server = serve(&home);
    let refused = Editor::connect(server.http, "wrong").await;
    assert!(matches!(refused, Err(Error::Http(response)) if response.status() == 401));

    let mut editor = Editor::connect(server.http, TOKEN).await.unwrap();
    let (_, early) = editor.call("session/list", json!({})).await;
    assert_eq!(early["error"]["code"], -32600);
    editor.call("initialize", json!({"protocolVersion": 1})).await;
    let (_, relative) = editor.call("session/new", json!({"cwd": ".", "mcpServers": []})).await;
    assert_eq!(relative["error"]["code"], -32602, "the client may be on another machine: {relative}");
    let (_, new) = editor.call("session/new", json!({"cwd": home.folder(), "mcpServers": []})).await;
    let session = text(&new["result"]["sessionId"]);
    let (said, answer) = editor.call("session/prompt", prompt(&session, "/say over a socket")).await;
    assert_eq!((said.as_str(), &answer["result"]["stopReason"]), ("over a socket", &json!("end_turn")));
    editor.send("session/prompt", prompt(&session, "/wait 600")).await;
    loop {
        let frame = editor.next().await;
        if frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
            break;
        }
    }
    drop(editor);

    let mut next = Editor::connect(server.http, TOKEN).await.unwrap();
    next.call("initialize", json!({"protocolVersion": 1})).await;
    let load = json!({"sessionId": session, "cwd": home.folder(), "mcpServers": []});
    let (said, answer) = next.call("session/load", load).await;
    assert!(said.starts_with("over a socket") && answer.get("result").is_some(), "{said} {answer}");
    // The run is still active, so the next prompt waits until it is stopped.
    let id = next.send("session/prompt", prompt(&session, "/say after")).await;
    home.run(&["chat", "--session", &session, "--stop"]);
    let (said, answer) = next.answer(id).await;
    assert!(said.ends_with("after"), "{said}");
    assert_eq!(answer["result"]["stopReason"], "end_turn");
}
