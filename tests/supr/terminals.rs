//! Terminals of the server: started, looked at, typed into and ended over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use futures_util::{SinkExt, StreamExt};
use parlor_process::MAX_TERMINALS;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::client::patiently;
use crate::house::{ask, get};
use crate::server::{PARLOR, Server, TOKEN};

/// One who looks at a process.
pub(crate) struct View {
    socket: WebSocketStream<TcpStream>,
    shown: String,
}

impl View {
    pub(crate) async fn open(server: &Server, id: &str) -> Self {
        let url = format!("ws://{}/api/processes/{id}/ws", server.http);
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let stream = TcpStream::connect(server.http).await.unwrap();
        let (socket, _) = patiently(tokio_tungstenite::client_async(request, stream)).await.unwrap();
        Self { socket, shown: String::new() }
    }

    pub(crate) async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// Waits until `text` was shown, or for the end, which it gives.
    pub(crate) async fn until(&mut self, text: &str) -> Option<Value> {
        while !self.shown.contains(text) {
            match patiently(self.socket.next()).await {
                Some(Ok(Message::Binary(bytes))) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(text.as_str()).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{text:?} never came after {:?}: {other:?}", self.shown),
            }
        }
        None
    }
}

#[tokio::test]
async fn a_shell_lives_until_it_is_ended_whoever_looks() {
    let server = Server::start();
    let (status, line) =
        ask(&server, Method::POST, "/api/processes", json!({"command": ["sh"], "cols": 91, "rows": 33}))
            .await;
    assert_eq!(status, StatusCode::CREATED, "{line}");
    let id = line["id"].as_str().unwrap().to_owned();
    let mut view = View::open(&server, &id).await;
    view.send(Message::binary(b"stty size; echo $TERM\n".to_vec())).await;
    assert_eq!(view.until("33 91").await, None);
    assert_eq!(view.until("xterm-256color").await, None);
    view.send(Message::text(r#"{"type":"resize","cols":120,"rows":40}"#)).await;
    view.send(Message::binary(b"stty size; sleep 600 & echo job=$!.\n".to_vec())).await;
    assert_eq!(view.until("40 120").await, None);
    view.until(".\r\n").await;
    drop(view);
    // Somebody else sees what was shown, and that it runs.
    let mut other = View::open(&server, &id).await;
    assert_eq!(other.until("40 120").await, None);
    let list = get(&server, "/api/processes").await;
    assert_eq!(
        (&list[0]["running"], &list[0]["cols"], &list[0]["here"]),
        (&json!(true), &json!(120), &json!(true))
    );
    assert_eq!(list[0]["pid"], line["pid"]);
    let path = format!("/api/processes/{id}");
    let (status, _) = ask(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(other.until("never").await.unwrap()["type"], "exited");
    let list = get(&server, "/api/processes").await;
    assert_eq!(list[0]["running"], false);
    ask(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(get(&server, "/api/processes").await, json!([]));
    assert_eq!(ask(&server, Method::DELETE, &path, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn programs_end_with_their_code_and_with_the_server() {
    let mut server = Server::start();
    let start = async |command: Value| {
        ask(&server, Method::POST, "/api/processes", json!({"command": command})).await
    };
    let (_, line) = start(json!(["sh", "-c", "echo out; exit 7"])).await;
    let mut view = View::open(&server, line["id"].as_str().unwrap()).await;
    assert_eq!(view.until("never").await, Some(json!({"type": "exited", "exit_code": 7})));
    let (status, why) = start(json!(["no-such-program"])).await;
    assert_eq!((status, why.as_str().unwrap().contains("no-such-program")), (StatusCode::BAD_REQUEST, true));
    let (_, line) = start(json!(["sleep", "600"])).await;
    assert_eq!(line["name"], "sleep");
    let proc = format!("/proc/{}", line["pid"]);
    assert!(std::path::Path::new(&proc).exists());
    assert!(server.end().success());
    assert!(!std::path::Path::new(&proc).exists());
}

#[tokio::test]
async fn one_more_than_may_run_is_told_what_to_do_once() {
    let server = Server::start();
    let start =
        async || ask(&server, Method::POST, "/api/processes", json!({"command": ["sleep", "600"]})).await;
    for _ in 0..MAX_TERMINALS {
        assert_eq!(start().await.0, StatusCode::CREATED);
    }
    let what = format!("{MAX_TERMINALS} processes are running, which is the limit; end one first\n");
    assert_eq!(start().await, (StatusCode::CONFLICT, json!(what)));
}

#[tokio::test]
async fn who_may_not_send_may_not_start_anything() {
    let server = Server::with("allow_from = [\"somebody-else\"]");
    let (status, why) = ask(&server, Method::POST, "/api/processes", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(why.as_str().unwrap().contains("allow_from"), "{why}");
}

/// `parlor stdio exec` on the state of a server, with its handshake done.
struct Exec(Child);

impl Exec {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(PARLOR);
        command.args(["stdio", "exec"]).env("PARLOR_HOME", &server.home);
        let mut exec = Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        exec.say(&json!({"id": 1, "method": "initialize", "params": {"clientName": "test"}}));
        exec.say(&json!({"method": "initialized"}));
        exec
    }

    fn say(&mut self, frame: &Value) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{frame}").unwrap();
    }

    /// Starts a shell and waits until its first words are told.
    fn run(&mut self, name: &str, script: &str, words: &str) {
        let params = json!({
            "processId": name, "argv": ["/bin/sh", "-c", script], "cwd": "/", "env": {"SECRET": "hidden"}, "tty": true,
        });
        self.say(&json!({"id": 2, "method": "command/exec", "params": params}));
        let words = base64_simd::STANDARD.encode_to_string(words);
        let mut said = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains(&words)));
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn what_a_client_on_stdio_runs_can_be_looked_at() {
    let server = Server::start();
    let mut exec = Exec::start(&server);
    assert!(!server.home.join("run").exists(), "nothing is offered before there is something");
    exec.run("job", "echo ready; read a; echo got $a; exit 5", "ready\r\n");
    let socket = server.home.join(format!("run/{}.sock", exec.0.id()));
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let list = get(&server, "/api/processes").await;
    let line = &list[0];
    assert_eq!(
        json!([line["name"], line["door"], line["tty"], line["running"], line["here"], line["command"][0]]),
        json!(["job", "exec", true, true, false, "/bin/sh"])
    );
    assert!(!list.to_string().contains("hidden"));
    let id = line["id"].as_str().unwrap().to_owned();
    let (status, why) = ask(&server, Method::DELETE, &format!("/api/processes/{id}"), Value::Null).await;
    assert_eq!((status, why.as_str().unwrap().contains("looked at")), (StatusCode::FORBIDDEN, true));
    let mut view = View::open(&server, &id).await;
    assert_eq!(view.until("ready").await, None);
    let typed = base64_simd::STANDARD.encode_to_string("it\n");
    exec.say(
        &json!({"id": 3, "method": "command/exec/write", "params": {"processId": "job", "chunk": typed}}),
    );
    assert_eq!(view.until("got it").await, None);
    assert_eq!(view.until("never").await, Some(json!({"type": "exited", "exit_code": 5})));
    assert_eq!(get(&server, "/api/processes").await, json!([]));
    // One that was killed leaves its socket, and the next who looks removes it.
    drop(exec);
    assert!(socket.exists());
    get(&server, "/api/processes").await;
    assert!(!socket.exists());
    // One that ends in good order leaves nothing.
    let mut exec = Exec::start(&server);
    exec.run("job", "echo ready", "ready\r\n");
    drop(exec.0.stdin.take());
    assert!(exec.0.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(server.home.join("run")).unwrap().count(), 0);
}
