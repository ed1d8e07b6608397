//! Servers to measure and connections to them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::{Utf8Bytes, protocol::WebSocketConfig};

use super::BARE;

/// The token of the servers here.
const TOKEN: &str = "bench-0123456789abcdef0123456789";

/// How long to wait for a server to be there.
const START_WAIT: Duration = Duration::from_secs(20);

/// Thousands of connections are as many files.
pub(crate) fn raise_limit() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}

/// A server in a process of its own, killed when dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
    path: &'static str,
    _home: Option<tempfile::TempDir>,
}

impl Server {
    /// `parlor serve` with a script agent that does what `script` says, and its state below `place`.
    pub(crate) fn parlor(program: &Path, place: &str, script: &str) -> anyhow::Result<Self> {
        let agent =
            "default_agent = \"script\"\n[agents.script]\nkind = \"script\"\nfile = \"script.toml\"\n";
        Self::with(program, place, agent, script)
    }

    /// `parlor serve` with these agents, and `script` in `script.toml`.
    pub(crate) fn with(program: &Path, place: &str, agents: &str, script: &str) -> anyhow::Result<Self> {
        std::fs::create_dir_all(place)?;
        let home = tempfile::tempdir_in(place)?;
        let settings = format!("{agents}[channels.supr]\ntoken = \"{TOKEN}\"\nmax_connections = 20000\n");
        std::fs::write(home.path().join("parlor.toml"), settings)?;
        std::fs::write(home.path().join("script.toml"), script)?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--no-supex"])
            .env("PARLOR_HOME", home.path())
            .env("PARLOR_LOG", "error")
            .stdout(Stdio::null())
            // It is written, as it would be; thousands of connections are thousands of lines.
            .stderr(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline {
            if let Ok(text) = std::fs::read_to_string(home.path().join("serve.json")) {
                let served: serde_json::Value = serde_json::from_str(&text)?;
                let address = served["http"].as_str().context("no web door")?.to_owned();
                return Ok(Self { child, address, path: "/supr/ws", _home: Some(home) });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        bail!("parlor does not serve")
    }

    /// The bare server.
    pub(crate) fn bare() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).arg(BARE).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout was asked for")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().to_owned(), path: "", _home: None })
    }

    /// A connection; `to` is what follows the server's path.
    pub(crate) async fn connect(&self, to: &str) -> anyhow::Result<Peer> {
        let url = format!("ws://{}{}{to}", self.address, self.path);
        let mut request = url.into_client_request()?;
        request.headers_mut().insert("authorization", HeaderValue::from_str(&format!("Bearer {TOKEN}"))?);
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        // There are thousands of these in one process.
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let (socket, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await?;
        Ok(Peer(socket))
    }

    /// The time that the server has computed so far, in seconds.
    pub(crate) fn computed(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after_name = stat.rsplit_once(')').context("a name")?.1;
        let ticks = |place: usize| -> anyhow::Result<f64> {
            Ok(after_name.split_whitespace().nth(place).context("a figure")?.parse()?)
        };
        // The 14th and 15th of all, of which two stand before.
        Ok((ticks(11)? + ticks(12)?) / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The memory that the server has right now, in KiB.
    pub(crate) fn memory_kib(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's connection.
pub(crate) struct Peer(WebSocketStream<TcpStream>);

impl Peer {
    /// Sends a frame.
    pub(crate) async fn send(&mut self, text: impl Into<Utf8Bytes>) -> anyhow::Result<()> {
        Ok(self.0.send(Message::Text(text.into())).await?)
    }

    /// Says something to the session of the connection.
    pub(crate) async fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.send(format!(r#"{{"type":"message.send","payload":{{"content":"{text}"}}}}"#)).await
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> anyhow::Result<Utf8Bytes> {
        loop {
            match self.0.next().await.context("the connection ended")?? {
                Message::Text(text) => return Ok(text),
                Message::Ping(_) | Message::Pong(_) => {}
                other @ (Message::Binary(_) | Message::Close(_) | Message::Frame(_)) => {
                    bail!("unexpected: {other:?}")
                }
            }
        }
    }
}
