//! Terminals of the server, which clients start, watch, type into and end over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use futures_util::{SinkExt, StreamExt};
use parlor_process::MAX_TERMINALS;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::client::within_timeout;
use crate::http_api::{get, send_request};
use crate::server::{PARLOR, Server, TOKEN};

/// A WebSocket that shows the output of a process.
pub(crate) struct ProcessViewer {
    socket: WebSocketStream<TcpStream>,
    shown: String,
}

impl ProcessViewer {
    pub(crate) async fn open(server: &Server, id: &str) -> Self {
        Self::connect(server, &format!("{id}/ws")).await
    }

    /// Watches from the offset `after` on. Returns the offset at which the output begins, too.
    async fn resume(server: &Server, id: &str, after: usize) -> (Self, u64) {
        let mut viewer = Self::connect(server, &format!("{id}/ws?after={after}")).await;
        let told = viewer.until("never").await.expect("the offset comes before output");
        assert_eq!((&told["type"], viewer.shown.as_str()), (&json!("output"), ""));
        (viewer, told["offset"].as_u64().unwrap())
    }

    async fn connect(server: &Server, path: &str) -> Self {
        let url = format!("ws://{}/api/processes/{path}", server.http);
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let stream = TcpStream::connect(server.http).await.unwrap();
        let (socket, _) = within_timeout(tokio_tungstenite::client_async(request, stream)).await.unwrap();
        Self { socket, shown: String::new() }
    }

    pub(crate) async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// Waits until the process has shown `text`. If a text message comes first, such as that of the exit, returns it.
    pub(crate) async fn until(&mut self, text: &str) -> Option<Value> {
        while !self.shown.contains(text) {
            match within_timeout(self.socket.next()).await {
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
async fn a_shell_runs_until_it_is_deleted_whether_or_not_someone_watches() {
    let server = Server::start();
    let (status, line) = send_request(
        &server,
        Method::POST,
        "/api/processes",
        json!({"command": ["sh"], "cols": 91, "rows": 33}),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED, "{line}");
    let id = line["id"].as_str().unwrap().to_owned();
    let mut viewer = ProcessViewer::open(&server, &id).await;
    viewer.send(Message::binary(b"stty size; echo $TERM\n".to_vec())).await;
    assert_eq!(viewer.until("33 91").await, None);
    assert_eq!(viewer.until("xterm-256color").await, None);
    viewer.send(Message::text(r#"{"type":"resize","cols":120,"rows":40}"#)).await;
    viewer.send(Message::binary(b"stty size; sleep 600 & echo job=$!.\n".to_vec())).await;
    assert_eq!(viewer.until("40 120").await, None);
    viewer.until(".\r\n").await;
    drop(viewer);
    // Another viewer sees the earlier output, and the list shows that the shell runs.
    let mut other = ProcessViewer::open(&server, &id).await;
    assert_eq!(other.until("40 120").await, None);
    let list = get(&server, "/api/processes").await;
    assert_eq!(
        (&list[0]["running"], &list[0]["cols"], &list[0]["here"]),
        (&json!(true), &json!(120), &json!(true))
    );
    assert_eq!(list[0]["pid"], line["pid"]);
    let path = format!("/api/processes/{id}");
    let (status, _) = send_request(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(other.until("never").await.unwrap()["type"], "exited");
    let list = get(&server, "/api/processes").await;
    assert_eq!(list[0]["running"], false);
    send_request(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(get(&server, "/api/processes").await, json!([]));
    assert_eq!(send_request(&server, Method::DELETE, &path, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn programs_report_their_exit_code_and_end_with_the_server() {
    let mut server = Server::start();
    let start = async |command: Value| {
        send_request(&server, Method::POST, "/api/processes", json!({"command": command})).await
    };
    let (_, line) = start(json!(["sh", "-c", "echo out; exit 7"])).await;
    let mut viewer = ProcessViewer::open(&server, line["id"].as_str().unwrap()).await;
    assert_eq!(viewer.until("never").await, Some(json!({"type": "exited", "exit_code": 7})));
    let (status, error) = start(json!(["no-such-program"])).await;
    assert_eq!((status, error.as_str().unwrap().contains("no-such-program")), (StatusCode::CONFLICT, true));
    let (_, line) = start(json!(["sleep", "600"])).await;
    assert_eq!(line["name"], "sleep");
    let proc = format!("/proc/{}", line["pid"]);
    assert!(std::path::Path::new(&proc).exists());
    assert!(server.stop().success());
    assert!(!std::path::Path::new(&proc).exists());
}

#[tokio::test]
async fn starting_more_than_the_limit_is_refused_with_advice() {
    let server = Server::start();
    let start = async || {
        send_request(&server, Method::POST, "/api/processes", json!({"command": ["sleep", "600"]})).await
    };
    for _ in 0..MAX_TERMINALS {
        assert_eq!(start().await.0, StatusCode::CREATED);
    }
    let expected = format!("{MAX_TERMINALS} processes are running, which is the limit; end one first\n");
    assert_eq!(start().await, (StatusCode::CONFLICT, json!(expected)));
}

#[tokio::test]
async fn a_client_that_may_not_send_may_not_start_processes() {
    let server = Server::with("allow_from = [\"somebody-else\"]");
    let (status, error) = send_request(&server, Method::POST, "/api/processes", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(error.as_str().unwrap().contains("allow_from"), "{error}");
}

/// `parlor stdio exec` on the server's state folder, after its handshake.
struct Exec(Child);

impl Exec {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(PARLOR);
        command.args(["stdio", "exec"]);
        Self::spawn(server, command)
    }

    fn spawn(server: &Server, mut command: Command) -> Self {
        command.env("PARLOR_HOME", &server.home);
        let mut exec = Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        exec.send(&json!({"id": 1, "method": "initialize", "params": {"clientName": "test"}}));
        exec.send(&json!({"method": "initialized"}));
        exec
    }

    fn send(&mut self, frame: &Value) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{frame}").unwrap();
    }

    /// Starts a shell script and waits until the output contains `text`.
    fn run(&mut self, name: &str, script: &str, text: &str) {
        self.run_with_cap(name, script, text, 1 << 20);
    }

    fn run_with_cap(&mut self, name: &str, script: &str, text: &str, cap: usize) {
        let params = json!({
            "processId": name, "argv": ["/bin/sh", "-c", script], "cwd": "/", "env": {"SECRET": "hidden"}, "tty": true,
            "outputBytesCap": cap,
        });
        self.send(&json!({"id": 2, "method": "command/exec", "params": params}));
        let encoded = base64_simd::STANDARD.encode_to_string(text);
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(&encoded)));
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn processes_of_a_stdio_client_can_be_watched() {
    let server = Server::start();
    let mut exec = Exec::start(&server);
    assert_eq!(process_sockets(&server), 0, "there is no socket before the first process");
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
    let (status, error) =
        send_request(&server, Method::DELETE, &format!("/api/processes/{id}"), Value::Null).await;
    assert_eq!((status, error.as_str().unwrap().contains("looked at")), (StatusCode::FORBIDDEN, true));
    let mut viewer = ProcessViewer::open(&server, &id).await;
    assert_eq!(viewer.until("ready").await, None);
    let typed = base64_simd::STANDARD.encode_to_string("it\n");
    exec.send(
        &json!({"id": 3, "method": "command/exec/write", "params": {"processId": "job", "chunk": typed}}),
    );
    assert_eq!(viewer.until("got it").await, None);
    assert_eq!(viewer.until("never").await, Some(json!({"type": "exited", "exit_code": 5})));
    assert_eq!(get(&server, "/api/processes").await, json!([]));
    // A killed process leaves its socket, and the next request for the list removes it.
    drop(exec);
    assert!(socket.exists());
    get(&server, "/api/processes").await;
    assert!(!socket.exists());
    // A process that ends normally leaves no socket.
    let mut exec = Exec::start(&server);
    exec.run("job", "echo ready", "ready\r\n");
    drop(exec.0.stdin.take());
    assert!(exec.0.wait().unwrap().success());
    assert_eq!(process_sockets(&server), 0);
}

#[tokio::test]
async fn a_viewer_of_a_stdio_client_resumes_after_an_offset() {
    let server = Server::start();
    let mut exec = Exec::start(&server);
    exec.run("job", "echo ready; read a; echo got $a; read b; exit 5", "ready\r\n");
    let id = get(&server, "/api/processes").await[0]["id"].as_str().unwrap().to_owned();
    let (mut first, offset) = ProcessViewer::resume(&server, &id, 0).await;
    assert_eq!(offset, 0);
    assert_eq!(first.until("ready\r\n").await, None);
    let seen = std::mem::take(&mut first.shown);
    drop(first);
    // Output that nobody watches, until another client sees all of it.
    let typed = |text: &str| {
        let chunk = base64_simd::STANDARD.encode_to_string(text);
        json!({"id": 3, "method": "command/exec/write", "params": {"processId": "job", "chunk": chunk}})
    };
    exec.send(&typed("it\n"));
    let mut other = ProcessViewer::open(&server, &id).await;
    assert_eq!(other.until("got it\r\n").await, None);
    let (mut second, offset) = ProcessViewer::resume(&server, &id, seen.len()).await;
    assert_eq!(offset, seen.len() as u64);
    assert_eq!(second.until("got it\r\n").await, None);
    assert_eq!(format!("{seen}{}", second.shown), other.shown, "no byte is missing or double");
    let (_, offset) = ProcessViewer::resume(&server, &id, usize::MAX).await;
    assert_eq!(offset, other.shown.len() as u64, "an offset beyond the end is clamped");
    exec.send(&typed("\n"));
    assert_eq!(second.until("never").await, Some(json!({"type": "exited", "exit_code": 5})));
    // Of this one only four bytes are retained.
    exec.run_with_cap("gap", "printf 0123456789; read a", "0123456789", 4);
    let id = get(&server, "/api/processes").await[0]["id"].as_str().unwrap().to_owned();
    let (mut viewer, offset) = ProcessViewer::resume(&server, &id, 2).await;
    assert_eq!((offset, viewer.until("6789").await), (6, None));
    assert_eq!(viewer.shown, "6789");
}

/// How many sockets of clients with processes there are.
fn process_sockets(server: &Server) -> usize {
    let sockets = std::fs::read_dir(server.home.join("run")).unwrap().map(|entry| entry.unwrap().path());
    sockets.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).count()
}

#[tokio::test]
async fn a_client_of_the_link_codex_exec_server_can_be_watched_too() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    server.prints(&["link", folder.path().to_str().unwrap()]);
    let mut exec = Exec::spawn(&server, Command::new(folder.path().join("codex-exec-server")));
    exec.run("job", "echo ready; read a", "ready\r\n");
    assert_eq!(get(&server, "/api/processes").await[0]["name"], "job");
}

#[tokio::test]
async fn a_start_of_the_server_removes_the_sockets_of_killed_ones() {
    let mut server = Server::start();
    let folder = server.home.join("run");
    std::fs::create_dir_all(&folder).unwrap();
    let (stale, living) = (folder.join("1.sock"), folder.join("2.sock"));
    drop(UnixListener::bind(&stale).unwrap());
    let _listener = UnixListener::bind(&living).unwrap();
    server.kill_and_restart();
    assert!(!stale.exists() && living.exists());
}
