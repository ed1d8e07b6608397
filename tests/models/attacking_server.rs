//! A model server that attacks its clients, and a `parlor serve` process as the victim.
#![expect(clippy::disallowed_methods, reason = "starts gzip, as a shell would")]
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parlor_client::supr::{SuprClient, SuprEvent, SuprSettings};
use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::api_format::ApiFormat;
use crate::home::Home;

/// A request with this word is answered with the attack.
pub(crate) const ATTACK: &str = "attack";

/// The token of the supr door.
const TOKEN: &str = "token-of-the-door";

/// The interval for polling another process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The capacity of the channels of started and ended attacks.
const MAX_REPORTS: usize = 64;

/// The bytes that the server sends: a response head, a first piece of the body, then another piece repeatedly.
#[derive(Clone, Default)]
pub(crate) struct Attack {
    pub(crate) head: String,
    pub(crate) first: Vec<u8>,
    pub(crate) repeated: Vec<u8>,
    pub(crate) times: usize,
    /// Whether the connection then stays open without data.
    pub(crate) hangs: bool,
}

/// A server on loopback that answers requests with [`ATTACK`] with the attack, and others like a model.
pub(crate) struct AttackingServer {
    pub(crate) url: String,
    started: Receiver<()>,
    ended: Receiver<usize>,
}

impl AttackingServer {
    pub(crate) fn start(api: ApiFormat, attack: Attack) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (start_sender, started) = sync_channel(MAX_REPORTS);
        let (end_sender, ended) = sync_channel(MAX_REPORTS);
        let attack = Arc::new(attack);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (attack, started, ended) =
                    (Arc::clone(&attack), start_sender.clone(), end_sender.clone());
                std::thread::spawn(move || answer(connection, api, &attack, &started, &ended));
            }
        });
        Self { url, started, ended }
    }

    /// Waits until the client has received the first megabyte of an attack, or all of it.
    pub(crate) fn wait_until_started(&self) {
        self.started.recv_timeout(STEP_TIMEOUT).expect("a client sends the request");
    }

    /// Waits until the client has disconnected or received all of an attack; returns the number of bytes sent.
    pub(crate) fn wait_until_ended(&self) -> usize {
        self.ended.recv_timeout(STEP_TIMEOUT).expect("the client disconnects")
    }
}

fn answer(
    mut connection: TcpStream,
    api: ApiFormat,
    attack: &Attack,
    started: &SyncSender<()>,
    ended: &SyncSender<usize>,
) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.trim_end().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    // The request for the list of models has no body; it is attacked too.
    if length > 0 && !String::from_utf8_lossy(&body).contains(ATTACK) {
        let answer = api.text("Hello.") + &api.end();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        return connection.write_all((head.to_owned() + &answer).as_bytes()).unwrap();
    }
    let mut sent = 0;
    let mut is_reported = false;
    let pieces = [attack.head.as_bytes(), &attack.first];
    let pieces = pieces.into_iter().chain(std::iter::repeat_n(&attack.repeated[..], attack.times));
    for piece in pieces {
        if connection.write_all(piece).is_err() {
            break;
        }
        sent += piece.len();
        if sent > 1 << 20 && !is_reported {
            is_reported = true;
            let _ = started.try_send(());
        }
    }
    if !is_reported {
        let _ = started.try_send(());
    }
    if attack.hangs {
        let _ = reader.read(&mut [0]);
    }
    let _ = ended.try_send(sent);
}

/// The output of a shell command, compressed with `gzip -9`.
pub(crate) fn gzipped(command: &str) -> Vec<u8> {
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &format!("{command} | gzip -9")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A running `parlor serve`. Killed on drop.
pub(crate) struct ServeProcess {
    child: Child,
    http: String,
}

impl ServeProcess {
    pub(crate) fn start(home: &Home) -> Self {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
        command.env("SUPRCLAW_CHANNELS_SUPR_TOKEN", TOKEN);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let file = home.state().join("serve.json");
        let address = || {
            let served: Value = serde_json::from_str(&std::fs::read_to_string(&file).ok()?).ok()?;
            Some(served["http"].as_str()?.to_owned())
        };
        let http = loop {
            if let Some(http) = address() {
                break http;
            }
            assert!(child.try_wait().unwrap().is_none(), "parlor serve exited");
            std::thread::sleep(POLL_INTERVAL);
        };
        Self { child, http }
    }

    /// The status line of `GET /health`.
    pub(crate) fn health(&self) -> String {
        let mut connection = TcpStream::connect(&self.http).unwrap();
        connection.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        let request = format!("GET /health HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.http);
        connection.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).expect("/health answers in time");
        line
    }

    /// Connects a client with a new session.
    pub(crate) async fn client(&self) -> SuprClient {
        let settings = SuprSettings::new(format!("ws://{}/supr/ws", self.http), TOKEN);
        SuprClient::connect(settings).await.expect("the server accepts the client")
    }

    /// The peak memory of the process, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        peak_memory_of(self.child.id())
    }

    /// Stops the process with SIGTERM, and waits until it has exited.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let deadline = Instant::now() + STEP_TIMEOUT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the server exits after SIGTERM");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peak memory of a process, in bytes.
pub(crate) fn peak_memory_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Waits for the event that ends a client's run; returns its type and data.
pub(crate) async fn wait_for_run_end(client: &mut SuprClient) -> String {
    let end = async {
        loop {
            if let SuprEvent::Activity(event) = client.next().await.unwrap()
                && ["run.completed", "run.failed"].contains(&&*event.event_type)
            {
                return format!("{} {:?}", event.event_type, event.data);
            }
        }
    };
    tokio::time::timeout(STEP_TIMEOUT * 3, end).await.expect("the run ends")
}
