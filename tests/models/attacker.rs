//! A model server that attacks whoever asks it, and `parlor serve` that is attacked.
#![expect(clippy::disallowed_methods, reason = "gzip is run as a shell would run it")]
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parlor_client::supr::{SuprClient, SuprSettings, SuprEvent};
use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::forms::Form;
use crate::home::Home;

/// The word by which the attacker knows that it is to attack.
pub(crate) const ATTACK: &str = "attack";

/// What clients of the server must know.
const TOKEN: &str = "token-of-the-door";

/// How long between two looks at another process.
const LOOK: Duration = Duration::from_millis(5);

/// How many reports of attacks that began or ended may wait.
const REPORTS: usize = 64;

/// What an attacker sends: a head, a body once, then another again and again.
#[derive(Clone, Default)]
pub(crate) struct Attack {
    pub(crate) head: String,
    pub(crate) first: Vec<u8>,
    pub(crate) again: Vec<u8>,
    pub(crate) times: usize,
    /// Whether the connection is then kept open, in silence.
    pub(crate) hangs: bool,
}

/// A server on loopback that answers whoever says [`ATTACK`] with an attack, and others as a model does.
pub(crate) struct Attacker {
    pub(crate) url: String,
    begun: Receiver<()>,
    ended: Receiver<usize>,
}

impl Attacker {
    pub(crate) fn start(form: Form, attack: Attack) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (begin, begun) = sync_channel(REPORTS);
        let (end, ended) = sync_channel(REPORTS);
        let attack = Arc::new(attack);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (attack, begin, end) = (Arc::clone(&attack), begin.clone(), end.clone());
                std::thread::spawn(move || answer(connection, form, &attack, &begin, &end));
            }
        });
        Self { url, begun, ended }
    }

    /// Waits until an attack is under way: its first megabyte, or all of it, was taken.
    pub(crate) fn wait_until_begun(&self) {
        self.begun.recv_timeout(STEP_TIMEOUT).expect("it is asked");
    }

    /// Waits until the other side has left, or has taken all of an attack, and says how many bytes it took.
    pub(crate) fn wait_until_ended(&self) -> usize {
        self.ended.recv_timeout(STEP_TIMEOUT).expect("it is left")
    }
}

fn answer(
    mut connection: TcpStream,
    form: Form,
    attack: &Attack,
    begin: &SyncSender<()>,
    end: &SyncSender<usize>,
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
    // A list of models has no body.
    if length > 0 && !String::from_utf8_lossy(&body).contains(ATTACK) {
        let said = form.text("Hello.") + &form.end();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        return connection.write_all((head.to_owned() + &said).as_bytes()).unwrap();
    }
    let mut sent = 0;
    let mut has_begun = false;
    let pieces = [attack.head.as_bytes(), &attack.first];
    let pieces = pieces.into_iter().chain(std::iter::repeat_n(&attack.again[..], attack.times));
    for piece in pieces {
        if connection.write_all(piece).is_err() {
            break;
        }
        sent += piece.len();
        if sent > 1 << 20 && !has_begun {
            has_begun = true;
            let _ = begin.try_send(());
        }
    }
    if !has_begun {
        let _ = begin.try_send(());
    }
    if attack.hangs {
        let _ = reader.read(&mut [0]);
    }
    let _ = end.try_send(sent);
}

/// `gzip` of what a shell command prints.
pub(crate) fn gzipped(command: &str) -> Vec<u8> {
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &format!("{command} | gzip -9")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// `parlor serve`, which ends with the test.
pub(crate) struct Served {
    child: Child,
    http: String,
}

impl Served {
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
            assert!(child.try_wait().unwrap().is_none(), "it serves");
            std::thread::sleep(LOOK);
        };
        Self { child, http }
    }

    /// The first line of what it answers to a question for its health.
    pub(crate) fn health(&self) -> String {
        let mut connection = TcpStream::connect(&self.http).unwrap();
        connection.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        let request = format!("GET /health HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.http);
        connection.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).expect("it answers in time");
        line
    }

    /// A client with a session of its own.
    pub(crate) async fn client(&self) -> SuprClient {
        let settings = SuprSettings::new(format!("ws://{}/supr/ws", self.http), TOKEN);
        SuprClient::connect(settings).await.expect("it listens")
    }

    /// The most memory that it ever had, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        peak_of(self.child.id())
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let deadline = Instant::now() + STEP_TIMEOUT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it ends when it is told to");
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most memory that a process ever had, in bytes.
pub(crate) fn peak_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The event that ends the run which a client has started.
pub(crate) async fn end_of_run(client: &mut SuprClient) -> String {
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
