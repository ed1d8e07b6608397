//! The servers to measure, and clients of them.

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
use crate::process_status::status_number;
use crate::profile::end;

/// The token of the servers in this benchmark.
const TOKEN: &str = "bench-0123456789abcdef0123456789";

/// How long a server may take to start.
const START_WAIT: Duration = Duration::from_secs(60);

/// Raises the limit of open files to the most that is allowed, because each connection is one.
pub(crate) fn raise_file_limit() -> anyhow::Result<()> {
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
    /// Starts `parlor serve` with an agent that runs `script`, and its state in a new folder below `parent`.
    pub(crate) fn parlor(program: &Path, parent: impl AsRef<Path>, script: &str) -> anyhow::Result<Self> {
        let agent =
            "default_agent = \"script\"\n[agents.script]\nkind = \"script\"\nfile = \"script.toml\"\n";
        Self::with(program, parent, agent, script)
    }

    /// Starts `parlor serve` with these agents in its settings, and `script` in `script.toml`.
    pub(crate) fn with(
        program: &Path,
        parent: impl AsRef<Path>,
        agents: &str,
        script: &str,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&parent)?;
        let home = tempfile::tempdir_in(&parent)?;
        // Clients that read nothing for a while are not lost: under valgrind, a thousand handshakes take minutes.
        let patience = "ping_interval = 600\nread_timeout = 1200\nwrite_timeout = 600\n";
        let settings =
            format!("{agents}[channels.supr]\ntoken = \"{TOKEN}\"\nmax_connections = 20000\n{patience}");
        std::fs::write(home.path().join("parlor.toml"), settings)?;
        std::fs::write(home.path().join("script.toml"), script)?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--no-supex"])
            .env("PARLOR_HOME", home.path())
            .env("PARLOR_LOG", "error")
            .stdout(Stdio::null())
            // The log is written as usual, but not shown: thousands of connections make thousands of lines.
            .stderr(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline {
            if let Ok(text) = std::fs::read_to_string(home.path().join("serve.json")) {
                let addresses: serde_json::Value = serde_json::from_str(&text)?;
                let address =
                    addresses["http"].as_str().context("serve.json has no http address")?.to_owned();
                return Ok(Self { child, address, path: "/supr/ws", _home: Some(home) });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        bail!("`parlor serve` was not ready within {START_WAIT:?}")
    }

    /// Starts the bare server.
    pub(crate) fn bare() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).arg(BARE).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().to_owned(), path: "", _home: None })
    }

    /// Connects a client. `suffix` follows the server's path in the address.
    pub(crate) async fn connect(&self, suffix: &str) -> anyhow::Result<Client> {
        let url = format!("ws://{}{}{suffix}", self.address, self.path);
        let mut request = url.into_client_request()?;
        request.headers_mut().insert("authorization", HeaderValue::from_str(&format!("Bearer {TOKEN}"))?);
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        // Small buffers, because this process has thousands of clients.
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let (socket, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await?;
        Ok(Client(socket))
    }

    /// Asks the server to end, and waits for it.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        end(&mut self.child)
    }

    /// The CPU time that the server has used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after_name = stat.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
        let ticks = |index: usize| -> anyhow::Result<f64> {
            Ok(after_name.split_whitespace().nth(index).context("/proc/PID/stat is too short")?.parse()?)
        };
        // `utime` and `stime`, the 14th and the 15th field; two fields come before `after_name`.
        Ok((ticks(11)? + ticks(12)?) / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The memory of the server that is resident now, in KiB.
    pub(crate) fn memory_kib(&self) -> anyhow::Result<f64> {
        status_number(self.child.id(), "VmRSS:")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of a server.
pub(crate) struct Client(WebSocketStream<TcpStream>);

impl Client {
    /// Sends a frame.
    pub(crate) async fn send(&mut self, text: impl Into<Utf8Bytes>) -> anyhow::Result<()> {
        Ok(self.0.send(Message::Text(text.into())).await?)
    }

    /// Sends a message to the session of the connection.
    pub(crate) async fn send_message(&mut self, text: &str) -> anyhow::Result<()> {
        self.send(format!(r#"{{"type":"message.send","payload":{{"content":"{text}"}}}}"#)).await
    }

    /// Waits for the next frame.
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
