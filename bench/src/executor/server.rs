//! The executors that the codex CLI can use, parlor and its own, and a client of either.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::channel::Channel;
use crate::exec_server::payload;
use crate::process_status::status_number;

/// How long a server may take to open its port.
const START_WAIT: Duration = Duration::from_secs(20);

/// How often the helper looks whether parlor has written its addresses.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Stdio,
    WebSocket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Parlor,
    Codex,
}

/// The paths of the programs.
pub(super) struct Programs {
    pub(super) parlor: PathBuf,
    pub(super) codex: PathBuf,
}

/// A running server, which is killed on drop.
pub(super) struct Server {
    child: Child,
    /// `None` on stdio.
    pub(super) address: Option<SocketAddr>,
    home: TempDir,
}

impl Server {
    /// Starts a server. On stdio, also returns the channel.
    pub(super) fn start(
        programs: &Programs,
        kind: Kind,
        transport: Transport,
    ) -> anyhow::Result<(Self, Option<Channel>)> {
        let home = tempfile::tempdir()?;
        let (program, args): (&Path, &[&str]) = match (kind, transport) {
            (Kind::Parlor, Transport::Stdio) => (&programs.parlor, &["stdio", "exec"]),
            (Kind::Parlor, Transport::WebSocket) => {
                (&programs.parlor, &["serve", "--no-http", "--no-supex", "--exec", "ws://127.0.0.1:0"])
            }
            (Kind::Codex, Transport::Stdio) => (&programs.codex, &["exec-server", "--listen", "stdio"]),
            (Kind::Codex, Transport::WebSocket) => {
                (&programs.codex, &["exec-server", "--listen", "ws://127.0.0.1:0"])
            }
        };
        let mut child = Command::new(program)
            .args(args)
            .env("PARLOR_HOME", home.path())
            .env("CODEX_HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let (input, output) = (child.stdin.take().context("stdin is piped")?, child.stdout.take());
        let output = output.context("stdout is piped")?;
        let mut server = Self { child, address: None, home };
        match (kind, transport) {
            (_, Transport::Stdio) => return Ok((server, Some(Channel::lines(input, output)))),
            (Kind::Codex, Transport::WebSocket) => {
                let mut line = String::new();
                BufReader::new(output).read_line(&mut line)?;
                let address = line.trim().strip_prefix("ws://").context("codex names its port")?;
                server.address = Some(address.parse()?);
            }
            (Kind::Parlor, Transport::WebSocket) => server.address = Some(server.served_address()?),
        }
        Ok((server, None))
    }

    fn served_address(&self) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + START_WAIT;
        loop {
            if let Ok(text) = std::fs::read_to_string(self.home.path().join("serve.json")) {
                let served: Value = serde_json::from_str(&text)?;
                return Ok(served["exec"].as_str().context("the exec door is open")?.parse()?);
            }
            ensure!(Instant::now() < deadline, "parlor does not open its port");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The peak of the server's resident memory, in MiB.
    pub(super) fn peak_mib(&self) -> anyhow::Result<f64> {
        Ok(status_number(self.child.id(), "VmHWM:")? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client past its handshake.
pub(super) struct Client {
    channel: Channel,
    next_id: u64,
    pub(super) session: String,
}

impl Client {
    /// The handshake. The error has the code of a refusal.
    pub(super) fn open(channel: Channel, resume: Option<&str>) -> anyhow::Result<Result<Self, i64>> {
        let mut client = Self { channel, next_id: 1, session: String::new() };
        let id = client.request("initialize", &json!({"clientName": "bench", "resumeSessionId": resume}))?;
        let answer = loop {
            let message = client.message()?;
            if message["id"] == id {
                break message;
            }
        };
        if let Some(code) = answer["error"]["code"].as_i64() {
            return Ok(Err(code));
        }
        client.session = answer["result"]["sessionId"].as_str().context("a session")?.to_owned();
        client.channel.send(br#"{"method":"initialized","params":{}}"#)?;
        Ok(Ok(client))
    }

    pub(super) fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({"id": id, "method": method, "params": params});
        self.channel.send(&serde_json::to_vec(&message)?)?;
        Ok(id)
    }

    /// Loses the connection without a word.
    pub(super) fn lose(&self) -> anyhow::Result<()> {
        self.channel.lose()
    }

    /// The next message, decoded.
    pub(super) fn message(&mut self) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(self.channel.next()?)?)
    }

    /// Runs `argv` until the end of its output, and returns how many bytes of output it had.
    pub(super) fn run(&mut self, argv: &[&str]) -> anyhow::Result<usize> {
        let process_id = format!("p{}", self.next_id);
        let params =
            json!({"processId": process_id, "argv": argv, "cwd": "file:///", "env": {}, "tty": false});
        self.request("process/start", &params)?;
        let mut bytes = 0;
        loop {
            let message = self.channel.next()?;
            let head = &message[..message.len().min(256)];
            if memmem::find(head, br#""error":"#).is_some() {
                bail!("the server refused: {}", String::from_utf8_lossy(head));
            }
            if memmem::find(head, b"process/closed").is_some() {
                return Ok(bytes);
            }
            bytes += payload(message);
        }
    }
}
